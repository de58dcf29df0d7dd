"""A kill between two slices of a large change: it was on the disk before the first, so that it comes back whole."""

import http.client
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.clients import as_json
from tests.process.durability.evidence import check_evidence
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import flags, people, write_csv
from tests.process.durability.reading import check_set, live_digest, read_held
from tests.process.durability.steps import Kill, Plan, started
from tests.serving import serving

N, N_CHANGED = 9000, 600
# So many occurrences make a change of these samples long enough for some slices, and short of planting all again.
FLAGS = flags("--n-estimators", "40", "--occurrence", "1")
PAUSE = "ModelLock.pause"
GONE = [f"p{15 * i}" for i in range(N_CHANGED)]


def change(name: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a change of many samples."""
    if name == "delete":
        return "/samples/batch-delete", {"ids": GONE}
    new = list(people(N + N_CHANGED).values())[N:]
    return "/samples", {"samples": [as_json(Sent(f"new {i}", content)) for i, content in enumerate(new)]}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data directory that holds many people."""
    folder = tmp_path_factory.mktemp("many")
    write_csv(folder / "people.csv", N)
    with serving(*FLAGS, cwd=folder) as server:
        assert server.stop() == 0
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", ["add", "delete"])
@pytest.mark.parametrize("number", [1, 2, 4, 6])
def test_killed_between_slices(many: Path, tmp_path: Path, name: str, number: int) -> None:
    plan, (path, body) = Plan(tmp_path / "copy", Kill(PAUSE, number, "before")), change(name)
    shutil.copytree(many, plan.folder)
    with started(plan, FLAGS) as server:
        assert server is not None
        with pytest.raises((OSError, http.client.HTTPException)):
            server.ask("POST", path, body, Idempotency_Key="once")
        assert server.process.wait(timeout=60) == -9
    assert plan.steps_taken()[PAUSE] == number
    with serving(*FLAGS, cwd=plan.folder) as server:
        held, version = read_held(server)
        expected = {f"p{i}" for i in range(N)}
        expected = expected - set(GONE) if name == "delete" else expected | {f"new {i}" for i in range(N_CHANGED)}
        assert (held.keys(), version) == (expected, 2)
        # A caller that got no answer sends the request again, and gets the answer to the change that was made.
        status, answer = server.ask("POST", path, body, Idempotency_Key="once")
        assert status in (200, 201), answer
        if name == "delete":
            check_evidence(server, [answer])
        assert read_held(server)[1] == version
        check_set(server)
        assert live_digest(server, by_snapshot=False)
        assert server.stop() == 0
