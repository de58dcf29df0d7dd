"""A small model behind the application, as most tests of the service need it."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import orjson
import pytest
from starlette.testclient import TestClient

from oubli.api.base import Message
from oubli.app.http.app import create_app
from oubli.app.http.monitoring.observer import Observer
from oubli.app.http.openapi import MAIN, PARTS
from oubli.app.service.build import Limits, Means, compose, open_directory, open_nothing
from oubli.app.service.outbox.deliveries import Push
from oubli.app.service.outbox.subject_requests import Processor
from oubli.app.service.recovery.start import LedgerChoice
from oubli.app.service.service import Service
from oubli.app.settings import Settings
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.estimators import KINDS
from oubli.core.forest.engine import ForestEngine
from tests.closing import closed_at_the_end

COLUMNS = (
    Column("age", ColumnType.NUMERIC),
    Column("job", ColumnType.CATEGORICAL),
    Column("member", ColumnType.BOOLEAN),
)
CLASSES = Schema(COLUMNS, Task.CLASSIFICATION, LabelType.STRING, label_name="income", named=True)
NUMBERS = Schema(COLUMNS, Task.REGRESSION, LabelType.NUMBER, label_name="income", named=True)
JSON = {"Content-Type": "application/json"}
TENSORS = [  # a row for the inference protocol
    {"name": name, "datatype": datatype, "shape": [1], "data": [value]}
    for name, datatype, value in (("age", "FP32", 1.5), ("job", "BYTES", "a"), ("member", "BOOL", True))
]
BASE = "http://127.0.0.1"


def rows(n: int) -> list[list[Any]]:
    return [[(7 * i) % 40, "abc"[i % 3], i % 2 == 0] for i in range(n)]


def fitted(kind: str, n: int = 60, schema: Schema = CLASSES, **parameters: Any) -> Any:
    """A model of any kind with the samples c0, c1, ..., without subjects."""
    is_classification = schema.task is Task.CLASSIFICATION
    model: Any = KINDS[kind, schema.task](**parameters)
    if not n:
        return model.start(schema)
    labels = [("yes" if i % 4 else "no") if is_classification else i / 8 for i in range(n)]
    return model.fit(rows(n), labels, ids=[f"c{i}" for i in range(n)], schema=schema)


def with_subjects(model: Any, n: int) -> Any:
    """The model, with the subjects s0 to s4, of which each has every fifth of its n samples."""
    for i in range(n):
        model.samples_.set_subject(f"c{i}", f"s{i % 5}")
    return model


def forest(n: int = 60, schema: Schema = CLASSES, n_estimators: int = 5, **parameters: Any) -> Any:
    """A small forest with samples and subjects."""
    return with_subjects(fitted("forest", n, schema, n_estimators=n_estimators, random_state=0, **parameters), n)


def boosted(schema: Schema = CLASSES, n: int = 60) -> Any:
    """A small boosted model of the samples of `forest`."""
    kind = "incremental-boosting" if schema.task is Task.CLASSIFICATION else "online-boosting"
    return with_subjects(fitted(kind, n, schema, n_estimators=5, min_child_weight=0.1, random_state=0), n)


EACH_KIND: dict[str, Callable[[], Any]] = {
    "forest": forest,
    "forest of numbers": lambda: forest(schema=NUMBERS),
    "tree": lambda: fitted("tree", random_state=0),
    "incremental-boosting": boosted,
    "online-boosting of numbers": lambda: boosted(NUMBERS),
}


def make_service(
    model: Any = None,
    directory: Path | None = None,
    *,
    max_queue: int = 1024,
    max_empty_erasures: int = 1000,
    idle_resolve: bool = False,
    processor: Processor | None = None,
    push: Push | None = None,
    **more: Any,
) -> Service:
    """A service that is kept in a directory, or in memory; `more` is for `compose`."""
    opened = open_nothing() if directory is None else open_directory(directory)
    closed_at_the_end(opened.database)
    limits = Limits(max_queue=max_queue, max_empty_erasures=max_empty_erasures)
    means = Means(push=push, processor=processor)
    return compose(opened.begin(model or forest()), limits=limits, idle_resolve=idle_resolve, means=means, **more)


def reopened(directory: Path, choice: LedgerChoice | None = None, **more: Any) -> Service:
    """A service over the files of one that has ended or been killed."""
    opened = open_directory(directory)
    closed_at_the_end(opened)
    assert opened.snapshots is not None
    return compose(opened.recover(opened.snapshots.recover(), choice), idle_resolve=False, **more)


def ended(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    """Wait until a job has ended."""
    while job["status"] in ("queued", "running"):
        time.sleep(0.01)
        job = client.get(f"/jobs/{job['id']}").json()
    return job


def problem_of(answer: Any) -> tuple[int, str]:
    """The status and the kind of a refusal."""
    return answer.status_code, answer.json()["type"].removeprefix("urn:oubli:problem:")


def pick(content: Mapping[str, Any], names: str) -> tuple[Any, ...]:
    """Some fields of an answer, which are named with blanks between them."""
    return tuple(content[name] for name in names.split())


@cache
def _plain_settings() -> Settings:
    """Those of most tests: to look for each of them in the environment takes as long as a small fit."""
    return Settings(max_rows=3000)


def make_settings(**values: Any) -> Settings:
    """Settings of a small server; constants of the class may have other values too."""
    constants = {name: values.pop(name) for name in [*values] if name not in Settings.model_fields}
    settings = Settings(**{"max_rows": 3000, **values}) if values else _plain_settings().model_copy()
    vars(settings).update({"page_size_max": 50, **constants})
    return settings


def make_changes_long(monkeypatch: pytest.MonkeyPatch, *, a_slice: int = 0) -> None:
    """Have changes of two samples and more of a forest take long: on a copy, or in slices of so many samples."""
    monkeypatch.setattr(ForestEngine, "seconds_to_change", lambda engine, n_changed, problem: n_changed - 1.0)
    if a_slice:
        monkeypatch.setattr(ForestEngine, "_slice_size", lambda engine, problem: a_slice)
    else:
        monkeypatch.setattr(ForestEngine, "can_be_sliced", lambda *_, **options: False)


def make_answers_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have predictions of two rows and more take long."""
    monkeypatch.setattr(ForestEngine, "seconds_to_answer", lambda engine, n_rows: n_rows * 1.0)


def mentions(content: Any, name: str) -> bool:
    """Whether a name is in JSON as a word; random bytes in Base64 hold any two letters sooner or later."""
    return re.search(rf"(?<![\w+/]){re.escape(name)}(?![\w+/=])", json.dumps(content)) is not None


@contextmanager
def served(
    service: Service | None = None,
    observer: Observer | None = None,
    client_address: tuple[str, int] = ("testclient", 50_000),
    **settings: Any,
) -> Iterator[TestClient]:
    """A client of a server that is ready."""
    app = create_app(make_settings(**settings), service or make_service(), observer)
    with TestClient(app, base_url=BASE, client=client_address) as client:
        deadline = time.monotonic() + 60
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline, "the server did not become ready"
            time.sleep(0.005)
        yield client


@asynccontextmanager
async def served_here(service: Service, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client in the event loop of the server, for requests that run at the same time."""
    app = create_app(make_settings(**settings), service)
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - asked as anyone would
                await asyncio.sleep(0.005)
            yield client


def samples(n: int, prefix: str = "n", **more: Any) -> dict[str, Any]:
    return {
        "samples": [
            {"id": f"{prefix}{i}", "features": row, "label": "yes" if i % 3 else "no", **more}
            for i, row in enumerate(rows(n))
        ]
    }


def state(client: TestClient) -> tuple[Any, ...]:
    """Everything a refused request must leave as it is; needs a data directory."""
    description = client.get("/model").json()
    description.pop("lazy_tags")
    listed = client.get("/samples?limit=50&format=csv").text
    return client.post("/snapshot").json()["digest"], description, listed


def described(app: Any) -> dict[str, Any]:
    """The OpenAPI documents of an application as one."""
    pages = [app.openapi(name) for name in (MAIN, *PARTS)]
    components: dict[str, dict[str, Any]] = {}
    for page in pages:
        for kind, named in page["components"].items():
            components.setdefault(kind, {}).update(named)
    return {"paths": {path: found for page in pages for path, found in page["paths"].items()}, "components": components}


def require_conforms(message: type[Message], answer: Any) -> Any:
    """Compare an answer, JSON or an object made from it, with the JSON schema of its message, as clients know it."""
    content = orjson.loads(answer) if isinstance(answer, bytes | str) else answer
    jsonschema_rs.validate(message.model_json_schema(), content)
    return message.model_validate(content)
