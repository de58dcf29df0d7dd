"""After `erased` nothing of a sample is left, in no encoding: in no file, not in the log, in nothing in memory."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from oubli.app.http.app import create_app
from oubli.app.service.build import build_service
from oubli.app.settings import Settings
from tests.process.durability.canaries import canary, files_with, forms, remains
from tests.process.durability.people import ID_COLUMN, SUBJECT_COLUMN, TARGET, flags, people
from tests.serving import serving, wait_for
from tests.tiers import ordinary

FLAGS = flags("--erasure-deadline", "2")
KINDS = ("forest", "tree", "online-boosting", "incremental-boosting")
ROW = people(1)["p0"].features
# Some with the greatest and the least of their columns, some between others.
FLOCK = [canary(i, people()[f"p{i}"].features, extreme=i < 8) for i in range(12)]
KEPT = canary(500, ROW)  # it stays held: it must be found, or the search is worth nothing
NEVER = canary(900, ROW)  # it is never sent
Ask = Callable[..., tuple[int, Any]]
"""Sends method, path, content and perhaps headers; returns status and JSON, or bytes."""


def learn(ask: Ask) -> None:
    content = {"samples": [one.as_json() for one in [*FLOCK, KEPT]]}
    assert ask("POST", "/samples", content, Idempotency_Key=str(uuid.uuid4()))[0] == 201


def touch_in_passing(ask: Ask) -> None:
    """Use them in requests that keep nothing: predictions, refusals, conflicts, lists."""
    first, place = FLOCK[0], f"/samples/{quote(FLOCK[0].id, safe='')}"
    assert ask("POST", "/predict", {"instances": [list(one.features) for one in FLOCK]})[0] == 200
    told = enumerate(ask("GET", "/v2/models/oubli")[1]["inputs"])
    inputs = [{**one, "shape": [len(FLOCK)], "data": [bird.features[j] for bird in FLOCK]} for j, one in told]
    assert ask("POST", "/v2/models/oubli/infer", {"id": "canaries", "inputs": inputs})[0] == 200
    assert ask("POST", "/samples", {"samples": [first.as_json(label="<=50K")]})[0] == 409
    assert ask("POST", "/samples", {"samples": [first.as_json(unknown=first.word)]})[0] == 422
    assert ask("POST", "/samples", {"samples": [first.as_json()]})[0] == 200
    assert ask("POST", "/samples/search", {"subject": first.subject})[0] == 200
    assert ask("GET", f"{place}?format=csv")[0] == 200
    assert ask("GET", f"/samples?subject={quote(first.subject, safe='')}")[0] == 200


def unlearn(ask: Ask) -> list[str]:
    """Forget all of them, in every way there is; return the receipts' ids."""
    # Tags first, which nothing resolves until the canaries are gone: their values are in what is to be rebuilt.
    asked = [ask("POST", "/samples/batch-delete", {"ids": [f"p{i}" for i in range(200, 240)]})]
    by_id, by_query, by_subject, batch, subjects, rectified = (FLOCK[2 * i : 2 * i + 2] for i in range(6))
    asked += [ask("DELETE", f"/samples/{quote(one.id, safe='')}") for one in by_id]
    asked.append(ask("DELETE", "/samples?" + "&".join(f"id={quote(one.id, safe='')}" for one in by_query)))
    asked += [ask("DELETE", f"/samples?subject={quote(one.subject, safe='')}") for one in by_subject]
    asked.append(ask("POST", "/samples/batch-delete", {"ids": [one.id for one in batch]}))
    content = {"subjects": [one.subject for one in subjects]}
    asked.append(ask("POST", "/samples/batch-delete", content, Idempotency_Key=str(uuid.uuid4())))
    for one, more in zip(rectified, ({}, {"subject": None}), strict=True):
        # Its values go with the rectification; its id, and its subject, with the deletion after it.
        place = f"/samples/{quote(one.id, safe='')}"
        asked.append(ask("PUT", place, {"features": list(ROW), "label": "<=50K", **more}))
        asked.append(ask("DELETE", place))
    assert [status for status, _ in asked] == [200] * len(asked), asked
    assert sum(receipt["unlearned"] for _, receipt in asked) == 40 + len(FLOCK) + len(rectified)
    return [receipt["id"] for _, receipt in asked]


# --- files


def search(folder: Path, *canaries: Any) -> list[str]:
    return files_with(canaries, folder / "oubli-data", folder / "output.txt")


def check_search(folder: Path) -> None:
    assert search(folder, *FLOCK, NEVER) == []
    assert {what.partition(": ")[2] for what in search(folder, KEPT)} == forms(KEPT).keys()


def test_nothing_is_left_of_what_was_erased(begun):
    with serving(*FLAGS, cwd=begun) as server:
        ask = server.ask
        learn(ask)
        assert ask("POST", "/snapshot", {})[0] == 201
        assert search(begun, *FLOCK), "they are not even in the snapshot: the search is blind"
        touch_in_passing(ask)
        for receipt in unlearn(ask):
            assert server.wait_until_erased(receipt)["overdue"] is False
        check_search(begun)
        assert server.stop() == 0

    with serving(*FLAGS, cwd=begun) as server:
        assert server.ask("POST", "/predict", {"instances": [list(ROW)]})[0] == 200
        server.process.kill()
    check_search(begun)


# --- memory


@contextmanager
def serving_here(folder: Path, directory: Path, kind: str) -> Iterator[tuple[Any, Ask]]:
    """The application as the command line builds it, without a socket."""
    columns: dict[str, Any] = {"target": TARGET, "id_column": ID_COLUMN, "subject_column": SUBJECT_COLUMN}
    fixed: dict[str, Any] = {"n_estimators": None if kind == "tree" else 10, "random_state": 0, "erasure_deadline": 600}
    settings = Settings(model=kind, data=folder / "people.csv", data_dir=directory, **columns, **fixed)
    app = create_app(settings, build_service(settings))
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def ask(method: str, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
            how: dict[str, Any] = {"content" if isinstance(content, bytes) else "json": content}
            answer = client.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}, **how)
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status_code, answer.json() if is_json else answer.content

        wait_for(lambda: ask("GET", "/readyz")[0] == 200, "it is ready", 240)
        yield app, ask


def end(ask: Ask, path: str) -> None:
    """Have a job done."""
    place = f"/jobs/{ask('POST', path, {})[1]['id']}"
    wait_for(lambda: ask("GET", place)[1]["status"] not in ("queued", "running"), f"{path} ends", 240)
    assert ask("GET", place)[1]["status"] == "succeeded"


def check_nothing_remains(app: Any, ask: Ask) -> None:
    end(ask, "/model/scrub")
    # Something else is asked for: the last request of each sort may be remembered.
    plain = {"samples": [{"id": "passer-by", "features": list(ROW), "label": "<=50K"}]}
    assert ask("POST", "/samples", plain)[0] == 201
    assert ask("POST", "/predict", {"instances": [list(ROW)]})[0] == 200
    assert ask("DELETE", "/samples/passer-by")[0] == 200
    end(ask, "/model/scrub")
    for one in [*FLOCK, NEVER]:
        assert remains(app, one) == set()
    assert remains(app, KEPT) == forms(KEPT).keys()


@pytest.mark.parametrize("kind", ordinary(KINDS, "forest", "incremental-boosting"))
def test_nothing_can_be_reached_of_what_was_erased(folder, kind):
    """Whatever knew the model has let go of it: by a restore, a fit, a long change on a copy; and so after a crash."""
    with serving_here(folder, folder / "oubli-data", kind) as (app, ask):
        learn(ask)
        touch_in_passing(ask)
        assert remains(app, FLOCK[0]) == forms(FLOCK[0]).keys(), "the search is blind"
        assert ask("POST", "/snapshot")[0] == 201
        assert ask("PUT", "/snapshot/file", ask("GET", "/snapshot/file")[1])[0] == 200
        end(ask, "/model/fit")
        assert ask("POST", "/samples/batch-delete", {"ids": [f"p{i}" for i in range(40, 100)]})[0] == 200
        unlearn(ask)
        # The files as a kill would leave them now; the journal brings the canaries back to life and lets them go again.
        crashed = shutil.copytree(folder / "oubli-data", folder / "crashed")
        check_nothing_remains(app, ask)
    with serving_here(folder, crashed, kind) as (app, ask):
        check_nothing_remains(app, ask)
