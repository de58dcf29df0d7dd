"""What requests hold: places of errors, ids, limits; large bodies, read in a thread or not at all; and problems."""

import asyncio
import json
from contextlib import nullcontext
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import oubli.app.http.inference
import oubli.app.http.parsing
import oubli.app.http.routes.pages
import oubli.app.http.routes.samples
from oubli.app import errors
from oubli.app.http.parsing import SHORT_BODY, Reader, explain, require_few_values
from oubli.app.http.problems import ProblemError, pointer, to_problem
from oubli.core.errors import CapacityError, InputError, UnknownIdError, UnusableModelError
from tests.unit.app.support import CLASSES, JSON, served

READER = Reader(CLASSES, max_rows=10_000, max_depth=8, now_ms=lambda: 0)


def test_deep_json_is_refused_wherever_it_is() -> None:
    for depth in (9, 500, 5000):
        deep = b"[" * depth + b"]" * depth
        for around in (b"%b", b'{"x": %b}', b'{"instances": {"x": %b}}', b'{"instances": [%b]}'):
            with pytest.raises(ProblemError) as caught:
                READER.prediction(around % deep)
            assert "nested too deeply: at most 8 levels" in str(caught.value.content())


def test_errors_of_the_library_are_explained_by_place() -> None:
    listed = [[1, "a", True]] * 2
    for error, place in (
        (InputError("is wrong", row=1, field="job", value="SECRET"), "/samples/1/features/1"),
        (InputError("is wrong", row=1), "/samples/1/features"),
        (InputError("is wrong"), ""),
    ):
        ((pointer, rule),) = explain(error, lambda row: ("samples", row, "features"), listed, CLASSES).errors
        assert (pointer, rule.endswith("is wrong")) == (place, True)


SETTINGS = {"max_rows": 5000}
N = 4000
ROW = [1, "a", True]
NAMES = [f"n{i:05}" for i in range(N)]
TENSOR = {"name": "age", "shape": [N], "datatype": "FP64", "data": [1 / 3] * N}
LARGE: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/samples/c1", {"features": ["x" * SHORT_BODY, "a", True], "label": "yes"}),
    *(("POST", path, content) for path, content in (
        *((path, {"instances": [ROW] * N}) for path in ("/predict", "/influence", "/explain")),
        ("/v2/models/oubli/infer", {"inputs": [TENSOR]}), ("/predict/without", {"instances": [ROW], "ids": NAMES}),
        ("/samples", {"samples": [{"features": ROW, "label": "yes"}] * N}),
        *((f"/samples/{name}", {"ids": NAMES}) for name in ("search", "batch-delete")),
        *((path, {"subject": "x" * (SHORT_BODY + 1)}) for path in ("/samples/absence-proofs", "/subjects/export")),
        *((f"/subjects/{name}", {"subjects": NAMES}) for name in ("restrict", "release")),
        ("/subjects/retain", {"subjects": NAMES, "seconds": None}), ("/model/fit", {"kind": "x" * SHORT_BODY}),
    )),
]  # fmt: skip


def noting_loop(work: Any, on_loop: list[bool]) -> Any:
    """Work that notes each time whether it is done on a running event loop."""

    def noted(*arguments: Any, **more: Any) -> Any:
        on_loop.append(asyncio._get_running_loop() is not None)
        return work(*arguments, **more)

    return noted


@pytest.mark.parametrize(("method", "path", "content"), LARGE, ids=[path for _, path, _ in LARGE])
def test_large_bodies_are_read_beside_the_event_loop_and_many_values_never(shared, method, path, content, monkeypatch):
    on_loop, parsed = list[bool](), list[bytes]()

    def noting(parse: Any) -> Any:
        return lambda text, **more: parsed.append(text) or parse(text, **more)

    for module in (oubli.app.http.parsing, oubli.app.http.inference):
        monkeypatch.setattr(module, "require_few_values", noting_loop(require_few_values, on_loop))
    monkeypatch.setattr(orjson, "loads", noting(orjson.loads))
    monkeypatch.setattr(oubli.app.http.inference, "from_json", noting(oubli.app.http.inference.from_json))
    body, many = orjson.dumps(content), b'{"x": [' + b",".join([b"[]"] * 300_000) + b"]}"
    assert len(body) > SHORT_BODY
    for sent in (body, b"{}"):
        assert shared.request(method, path, content=sent, headers=JSON).status_code < 500
    assert (on_loop, body in parsed) == ([False, True], True)
    answer = shared.request(method, path, content=many, headers=JSON)
    assert (answer.status_code, "more values" in answer.text, many in parsed) == (413, True, False)


def test_a_body_as_large_as_it_may_be_passes(shared: TestClient) -> None:
    for row in ([1, ',[{"\\' * 20, True], {"age": 1, "job": "a,,,,", "member": True}):
        assert shared.post("/predict", json={"instances": [row] * 5000}).status_code == 200


def test_long_pages_and_the_document_are_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, on_loop = oubli.app.http.routes, list[bool]()
    monkeypatch.setattr(routes.samples, "DEFAULT_PAGE", 40)
    monkeypatch.setattr(routes.samples, "page_answer", noting_loop(routes.samples.page_answer, on_loop))
    monkeypatch.setattr(routes.pages, "to_json", noting_loop(routes.pages.to_json, on_loop))
    with served() as client:
        assert len(client.get("/samples?limit=40").json()["samples"]) == 40
        assert on_loop.pop()
        for path in ("/samples?limit=50", "/samples?limit=50&format=csv", "/samples/search", "/openapi.json"):
            ids = {"ids": [f"c{i}" for i in range(45)]} if path == "/samples/search" else None
            assert client.request("POST" if ids else "GET", path, json=ids).status_code == 200
            assert not on_loop.pop()


@given(
    st.recursive(
        st.text(st.sampled_from('a"\\,[{') | st.characters(), max_size=20) | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('",\\[')), inner),
        max_leaves=60,
    ),
    st.booleans(),
)
def test_what_is_counted_is_what_is_in_the_text(value: Any, is_ascii: bool) -> None:
    def count(one: Any) -> int:
        if not isinstance(one, (list, dict)):
            return 0
        return 1 + max(0, len(one) - 1) + sum(map(count, one.values() if isinstance(one, dict) else one))

    body = json.dumps(value, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    padded = body + b" " * 5000
    n = count(value)
    for most, is_refused in ((n, False), (n - 1, True))[: n + 1]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(oubli.app.http.parsing, "_FEW_VALUES", most)  # taken whatever the rows are
            with pytest.raises(ProblemError, match="too-many-rows") if is_refused else nullcontext():
                require_few_values(padded, 0, 0)


ERRORS: dict[str, Exception] = {
    "queue-full": errors.BusyError(), "storage": errors.StorageError("No space left on device"),
    "capacity": CapacityError("SECRET"), "model-unusable": UnusableModelError(),
    "invalid-input": InputError("must be a number", row=3, field="age", value="SECRET"),
}  # fmt: skip


def test_errors_become_problems_without_their_text_and_what_nobody_expected_none() -> None:
    """Those of the service that routes do not meet in other tests."""
    for slug, known in ERRORS.items():
        problem = to_problem(known)
        assert problem.kind.slug == slug
        assert "SECRET" not in str(problem.content())
    for error in (UnknownIdError(["SECRET"]), ValueError("SECRET"), errors.ServiceError("SECRET")):
        assert to_problem(error) is None
    assert pointer("samples", 0, "features", "a/b~c") == "/samples/0/features/a~1b~0c"
