"""Disks that are full, fail or cannot be written: what is refused is not held, what was acknowledged is safe."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.clients import as_json
from tests.process.durability.faults import fill, small_file_system, why_no_mounts
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import Strangers, flags, people
from tests.process.durability.reading import check_exact, read_held
from tests.serving import Running, serving, wait_for


def add(server: Running, strangers: Strangers, *names: str) -> tuple[int, dict[str, Any]]:
    return server.ask("POST", "/samples", {"samples": [as_json(Sent(name, strangers.meet())) for name in names]})


@pytest.fixture
def small(begun: Path, tmp_path: Path) -> Iterator[Path]:
    """A small file system with a data directory on it."""
    with small_file_system(tmp_path / "small", "24m") as place:
        shutil.copytree(begun / "oubli-data", place / "oubli-data")
        yield place


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
def test_a_full_disk_refuses_additions_and_takes_deletions(begun, small):
    strangers = Strangers(random.Random(0))
    here = flags("--data-dir", str(small / "oubli-data"), "--erasure-deadline", "600")
    with serving(*here, cwd=begun) as server:
        assert add(server, strangers, "before")[0] == 201
        filler = fill(small)
        refused = _add_until_refused(server, strangers)
        n_samples = server.get("/model")[1]["n_samples"]
        status, problem = add(server, strangers, "late")
        assert (status, problem["type"].rpartition(":")[0]) == (503, "urn:oubli:problem")
        assert [server.get(f"/samples/{name}")[0] for name in ("late", refused)] == [404, 404]
        assert server.get("/model")[1]["n_samples"] == n_samples
        assert server.ask("POST", "/predict", {"instances": [list(people(1)["p0"].features)]})[0] == 200
        # Restrict, and delete by id, by query, by subject and in a batch: all of it must work on a full disk.
        status, made = server.ask("POST", "/subjects/restrict", {"subjects": ["h21", "h22"]})
        assert (status, made["samples"]) == (200, 8)
        asked = (
            server.ask("DELETE", "/samples/before"),
            server.ask("DELETE", "/samples?id=p0&id=p1"),
            server.ask("DELETE", "/samples?subject=h9"),
            server.ask("POST", "/samples/batch-delete", {"ids": [f"p{i}" for i in range(100, 150)]}),
            server.ask("POST", "/samples/batch-delete", {"subjects": ["h20", "h21"]}),
        )
        assert [status for status, _ in asked] == [200] * 5, asked
        assert [receipt["unlearned"] for _, receipt in asked] == [1, 2, 4, 50, 8]
        assert [server.get(f"/samples/{name}")[0] for name in ("before", "p0", "p36", "p100", "p80")] == [404] * 5
        held, version = read_held(server)
        filler.unlink()
        wait_for(lambda: add(server, strangers, "after")[0] == 201, "room for additions")
        server.process.kill()
    with serving(*here, cwd=begun) as server:
        now, later = read_held(server)
        assert later == version + 1
        assert now.pop("after")
        assert now == held
        check_exact(server, read_held(server)[0])
        for _, receipt in asked:
            server.wait_until_erased(receipt["id"])


def _add_until_refused(server: Running, strangers: Strangers) -> str:
    """What SQLite has reserved may hold some more."""
    for i in range(2000):
        names = [f"fill{i}-{j}" for j in range(20)]
        if add(server, strangers, *names)[0] != 201:
            return names[0]
    raise AssertionError("the disk does not get full")
