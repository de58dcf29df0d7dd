"""Closed classes and `max_classes`, as a client sees them; and what a restart makes of them."""

import asyncio
import gc
import json
import shutil
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.errors import StartError
from oubli.app.progress import silent
from oubli.app.service.build import begin_directory, open_nothing
from oubli.app.service.recovery.start import LedgerChoice
from oubli.app.settings import Settings
from oubli.core import DynamicForestClassifier
from oubli.core.forest.engine import ForestEngine
from tests.unit.app.support import ended, forest, make_service, pick, problem_of, reopened, served, served_here, state

pytestmark = pytest.mark.anyio

CLOSED = "must be one of the classes of the model, which are closed: correct it, or fit with classes 'open'"


ROW = [1, "a", True]


def sample(label: str, name: str = "n0", **more: Any) -> dict[str, Any]:
    return {"id": name, "features": ROW, "label": label, **more}


def limited(classes: str | None, max_classes: int | None = None) -> Any:
    model = forest()
    model.set_classes(classes, max_classes)
    return model


def fit(client: TestClient, **content: Any) -> dict[str, Any]:
    answer = client.post("/model/fit", json={"score": False, **content})
    assert answer.status_code == 202, answer.text
    assert ended(client, answer.json())["status"] == "succeeded"
    return dict(client.get("/model").json())


def refusal(answer: Any) -> tuple[int, str, str]:
    (error,) = answer.json()["errors"]
    assert "hgih" not in answer.text
    return answer.status_code, error["pointer"], error["detail"]


def test_a_typo_is_refused_by_every_route_that_takes_labels() -> None:
    with served(make_service(limited("closed"))) as client:
        before = client.get("/model").json()
        assert (before["closed_classes"], before["max_classes"]) == (["no", "yes"], 1000)
        sent = {
            "application/json": json.dumps({"samples": [sample("no", "n1"), sample("hgih", "n2")]}),
            "application/x-ndjson": "\n".join(json.dumps(sample(label, label)) for label in ("yes", "hgih")),
            "text/csv": "age,job,member,income\n1,a,true,no\n2,b,false,hgih\n",
        }
        for kind, content in sent.items():
            answer = client.post("/samples", content=content, headers={"Content-Type": kind})
            assert refusal(answer) == (422, "/samples/1/label", CLOSED)
        assert refusal(client.put("/samples/c1", json={"features": ROW, "label": "hgih"})) == (422, "/label", CLOSED)
        assert client.get("/model").json() == before
        assert client.post("/samples", json={"samples": [sample("no")]}).status_code == 201


async def test_changes_that_are_committed_together_do_not_exceed_the_limit(tmp_path: Path) -> None:
    service = make_service(limited(None, 5), tmp_path)
    async with served_here(service) as client:
        asked = [client.post("/samples", json={"samples": [sample(f"l{i}", f"n{i}")]}) for i in range(40)]
        asked += [client.put(f"/samples/c{i}", json={"features": ROW, "label": f"k{i}"}) for i in range(1, 20)]
        statuses = [answer.status_code for answer in await asyncio.gather(*asked)]
        assert len((await client.get("/model")).json()["classes"]) == 5
        assert service.model.state.stopped is None
    assert statuses.count(422) == 59 - 3
    assert set(statuses) <= {200, 201, 422}


def test_a_fit_closes_and_opens_classes_and_says_how_many(kept: TestClient) -> None:
    kept.post("/samples", json={"samples": [sample("rare", "r", subject="ada")]})
    kept.post("/subjects/restrict", json={"subjects": ["ada"]})
    model = fit(kept, classes="closed", max_classes=4)
    assert pick(model, "closed_classes max_classes") == (["no", "rare", "yes"], 4)
    assert refusal(kept.post("/samples", json={"samples": [sample("hgih")]}))[2] == CLOSED
    assert kept.post("/subjects/release", json={"subjects": ["ada"]}).json()["samples"] == 1
    assert fit(kept, parameters={"n_estimators": 3})["closed_classes"] == ["no", "rare", "yes"], "a fit keeps it"
    assert pick(fit(kept, classes="open"), "closed_classes max_classes") == (None, 4)
    assert kept.post("/samples", json={"samples": [sample("fourth", "f")]}).status_code == 201
    status, place, detail = refusal(kept.post("/samples", json={"samples": [sample("hgih")]}))
    assert (status, place, "max_classes, 4" in detail) == (422, "/samples/0/label", True)


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_restart_keeps_the_rules(tmp_path: Path, *, snapshots: bool) -> None:
    with served(make_service(directory=tmp_path / "data")) as client:
        fit(client, classes="closed", max_classes=7)
        client.post("/samples/batch-delete", json={"ids": [f"c{i}" for i in range(0, 60, 4)]})
        if snapshots:
            client.post("/snapshot")
        # As a crash leaves it.
        copy = shutil.copytree(tmp_path / "data", tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    with served(reopened(copy)) as client:
        rules = pick(client.get("/model").json(), "classes closed_classes max_classes")
        assert rules == (["yes"], ["no", "yes"], 7)
        assert refusal(client.post("/samples", json={"samples": [sample("hgih")]}))[2] == CLOSED
        assert client.post("/samples", json={"samples": [sample("no")]}).status_code == 201
        assert client.post("/model/verify").status_code == 202


def of_no_memory(*arguments: Any, **more: Any) -> None:
    raise MemoryError


NO_MEMORY = (503, "out-of-memory")


def test_a_class_that_there_is_no_memory_for_changes_nothing(kept: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[weakref.ref[Any]] = []
    copy = DynamicForestClassifier.copy

    def copied(model: Any) -> Any:
        copies.append(weakref.ref(made := copy(model)))
        return made

    before = state(kept)
    gc.disable()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(DynamicForestClassifier, "copy", copied)
            patched.setattr(ForestEngine, "widen", of_no_memory)
            patched.setattr("oubli.core.planning.SMALL_MODEL", 0)
            assert problem_of(kept.put("/samples/c1", json={"features": ROW, "label": "third"})) == NO_MEMORY
            asked = kept.post("/samples", json={"samples": [sample("third")]})
            assert (*problem_of(asked), bool(asked.headers["retry-after"])) == (*NO_MEMORY, True)
            assert kept.post("/samples", json={"samples": [sample("no", "known")]}).status_code == 201
            kept.delete("/samples/known")
        assert [one() for one in copies] == [None, None], "what was half made is let go of at once"
    finally:
        gc.enable()
    after = state(kept)
    assert (after[0], after[2]) == (before[0], before[2])
    assert kept.post("/samples", json={"samples": [sample("third")]}).status_code == 201


@pytest.mark.parametrize("path", ["/predict", "/model/verify", "/snapshot"])
def test_what_there_is_no_memory_for_says_so(kept: TestClient, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DynamicForestClassifier, "query", of_no_memory)
    monkeypatch.setattr(DynamicForestClassifier, "copy", of_no_memory)
    answer = kept.post(path, json={"instances": [ROW]})
    if answer.status_code == 202:
        assert ended(kept, answer.json())["error"] == "the server has no memory for it: nothing was changed"
        return
    assert problem_of(answer) == NO_MEMORY
    monkeypatch.undo()
    assert kept.post("/predict", json={"instances": [ROW]}).status_code == 200


def test_a_change_that_the_journal_has_and_the_model_has_no_memory_for_is_not_denied(kept, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(DynamicForestClassifier, "apply", of_no_memory)
        answer = kept.post("/samples", json={"samples": [sample("no")]})
    assert problem_of(answer) == (503, "changes-stopped")
    assert kept.post("/predict", json={"instances": [ROW]}).status_code == 200


LISTED = {"classes": ["low", "high", "none"]}
DATA = "x,y\n" + "".join(f"{i},{'low' if i % 2 else 'high'}\n" for i in range(20))


THREE = ("high", "low", "none")
CHOICES = [
    (None, {"data": True, "target": "y"}, (None, 1000)),
    (None, {"data": True, "target": "y", "classes": "closed"}, (("high", "low"), 1000)),
    (LISTED, {"data": True}, (THREE, 1000)), (LISTED, {"data": True, "classes": "open"}, (None, 1000)),
    (LISTED, {}, (THREE, 1000)), ({**LISTED, "max_classes": 9}, {}, (THREE, 9)),
    ({**LISTED, "max_classes": 1}, {"data": True, "target": "y"}, "max_classes"),
    ({}, {"classes": "closed"}, "list them in the schema file"),
    (None, {"data": True, "target": "x", "task": "regression", "classes": "closed"}, "a regression has no classes"),
]  # fmt: skip


@pytest.mark.parametrize(("label", "settings", "expected"), CHOICES)
def test_the_settings_say_which_classes_a_new_model_may_have(tmp_path, label, settings, expected):
    if "data" in settings:
        settings = {**settings, "data": tmp_path / "data.csv"}
        settings["data"].write_text(DATA)
    if label is not None:
        settings = {**settings, "schema_file": tmp_path / "schema.json"}
        named = {"name": "y", "type": "string", **label}
        content = {"task": "classification", "label": named, "columns": [{"name": "x", "type": "numeric"}]}
        settings["schema_file"].write_text(json.dumps(content))
    given = Settings(n_estimators=2, ephemeral=True, **settings)
    with nullcontext() if isinstance(expected, tuple) else pytest.raises(StartError, match=expected):
        schema = begin_directory(given, open_nothing(), LedgerChoice(), silent, print).state.model.schema_
        assert (schema.classes, schema.max_classes) == expected
