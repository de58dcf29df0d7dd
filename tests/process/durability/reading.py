"""What a server holds, asked over HTTP, and what a fresh fit on the same samples gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.estimators import KINDS
from tests.process.durability.evidence import read_pages
from tests.process.durability.people import Content
from tests.serving import Running

_JOB_SECONDS = 120


def read_held(server: Running) -> tuple[dict[str, Content], int]:
    """Return all samples held and the model version; nothing may change them meanwhile."""
    held: dict[str, Content] = {}
    pages = read_pages(server, 1000, "/samples")
    for sample in (sample for page in pages for sample in page["samples"]):
        features, is_restricted = tuple(sample["features"].values()), sample["restricted_at"] is not None
        held[sample["id"]] = Content(features, sample["label"], sample["subject"], is_restricted)
    return held, int(pages[-1]["model_version"])


def read_schema(server: Running) -> Schema:
    """Return the schema of a server's model."""
    model = server.get("/model")[1]
    columns = tuple(Column(one["name"], ColumnType(one["type"]), one["dtype"]) for one in model["features"])
    label = model["label"]
    return Schema(columns, Task(model["task"]), LabelType(label["type"]), label_name=label["name"], named=True)


def fresh_digest(schema: Schema, held: Mapping[str, Content], kind: str = "forest") -> str:
    """Train a model like the servers' on the samples that are not restricted, and return its digest."""
    held = {name: content for name, content in held.items() if not content.is_restricted}
    model: Any = KINDS[kind, Task.CLASSIFICATION](n_estimators=10, random_state=0)
    rows = [list(content.features) for content in held.values()]
    model.fit(rows, [content.label for content in held.values()], ids=list(held), schema=schema)
    return str(model.digest())


def finish(server: Running, path: str, content: Any = None, meanwhile: Callable[[], object] = bool) -> dict[str, Any]:
    """Start a job and return its result; something may be done as long as it runs."""
    status, job = server.ask("POST", path, {} if content is None else content)
    assert status == 202, job
    meanwhile()
    deadline = time.monotonic() + _JOB_SECONDS
    while job["status"] in ("queued", "running"):
        assert time.monotonic() < deadline, job
        time.sleep(0.02)
        job = server.get(f"/jobs/{job['id']}")[1]
    assert job["status"] == "succeeded", job
    return dict(job["result"])


def live_digest(server: Running, *, by_snapshot: bool) -> str:
    """Return the digest of a server's model: of a snapshot written now, or as a verification finds it."""
    if by_snapshot:
        written = server.ask("POST", "/snapshot", {})
        assert written[0] == 201, written
        # The newest one: a deadline may have had another one written meanwhile.
        status, told = server.get("/snapshot")
        assert (status, told["digest"]) == (200, written[1]["digest"]), (written, told)
        return str(told["digest"])
    result = finish(server, "/model/verify")
    assert result["ok"] is True
    assert result["live_digest"] == result["fresh_digest"]
    return str(result["live_digest"])


def check_held(server: Running, expected: Mapping[str, Content]) -> int:
    """Compare what a server holds, and its model with a fresh fit; return the model version."""
    held, version = read_held(server)
    assert held == expected
    assert live_digest(server, by_snapshot=True) == fresh_digest(read_schema(server), held)
    return version
