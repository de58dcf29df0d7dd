"""Bulk bodies and answers: the same as in JSON, whatever the format and however it comes; wrong ones change nothing."""

import gzip
import io
import json
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from oubli.app.http.formats import Format, answer_format, body_format
from oubli.app.service.service import Service
from oubli.core import DynamicForestClassifier, DynamicForestRegressor, IncrementalBoostingClassifier
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from tests.tiers import covering
from tests.unit.app.http.bulk_cases import BULK, WIDE, arrow, predictions, written
from tests.unit.app.http.connections import asgi_scope
from tests.unit.app.support import NUMBERS, forest, make_service, rows, samples, served, served_here

pytestmark = pytest.mark.anyio

NAMES = ("age", "job", "member")
ALL = (*BULK, Format.JSON)
TABLE = pa.table({name: [row[i] for row in rows(20)] for i, name in enumerate(NAMES)})
SETTINGS = {"max_bulk_samples": 500, "max_body_bytes": 100_000}


def post(client: TestClient, path: str, body: Any, given: Format, wanted: Format = Format.JSON, **more: str) -> Any:
    headers = {"Content-Type": given, "Accept": wanted, "Accept-Encoding": "identity", **more}
    return client.post(path, content=body, headers=headers)


# --- the same as in JSON

LABELS: dict[LabelType, list[Any]] = {
    LabelType.STRING: ["yes", 'a "quoted", one', "", "line\nbreak", "Ω"],
    LabelType.INTEGER: [-1, 0, 7, 2**60, 3], LabelType.NUMBER: [0.1, 2.0, -1e300, 1e-300, 5.5],
    LabelType.BOOLEAN: [True, False, True, False, True], LabelType.SCALAR: ["1", 1, True, 1.5, "x"],
}  # fmt: skip
CELLS: list[list[Any]] = [
    [0.1, 0.1, "a", True], [16777216, 9007199254740992, 'b "c", d', False], [None, None, None, None],
    [-0.0, 1e300, "line\nbreak", None], [3.4e38, -1e-300, "Ω", True], [1e-45, 123456789, " spaced ", False],
]  # fmt: skip


def model_of(label_type: LabelType) -> Any:
    schema = Schema(WIDE, Task.CLASSIFICATION, label_type, named=True)
    given, labels = [CELLS[i % 6] for i in range(40)], [LABELS[label_type][(i * i) % 5] for i in range(40)]
    return DynamicForestClassifier(n_estimators=4, random_state=1).fit(given, labels, schema=schema)


def is_told(wanted: Format, cell: Any, value: Any, *, is_json: bool) -> bool:
    """Whether a cell of an answer is the prediction of JSON: CSV has no types, and Arrow has one type a column."""
    if wanted is Format.NDJSON or (wanted is Format.ARROW and not is_json):
        return cell == value and isinstance(cell, bool) == isinstance(value, bool)
    if wanted is Format.ARROW:
        return bool(json.loads(cell) == value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(cell) == value if is_number else cell == (value if isinstance(value, str) else json.dumps(value))


MODELS: dict[str, Callable[[], Any]] = {
    **{label_type: partial(model_of, label_type) for label_type in LABELS},
    "mixed": lambda: forest(60, NUMBERS),
    "numbers": lambda: DynamicForestRegressor(n_estimators=3).fit(np.eye(5), [0.1, 1e300, -2.5, 3, 1e-9]),
    "boosting": lambda: IncrementalBoostingClassifier(n_estimators=3).fit(np.eye(6), [0, 1, 2, 0, 1, 2]),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_format_answers_as_json_does_for_all_labels_cells_and_kinds(name: str) -> None:
    model = MODELS[name]()
    names = model.schema_.names
    cells: list[list[Any]] = {3: rows(30), 4: CELLS * 3}.get(len(names)) or np.eye(len(names)).tolist()
    with served(make_service(model)) as client:
        plain = client.post("/predict", json={"instances": cells})
        expected = predictions(Format.JSON, plain.content)
        asked = [(Format.JSON, plain.request.content)]
        for given in BULK:
            if given is Format.ARROW and name in LABELS:  # it has one type a column
                cells = [[None if x is None else float(x) for x in row[:2]] + row[2:] for row in cells]
            asked.append((given, written(given, names, cells, chunk=5)))
            assert post(client, "/predict", asked[-1][1], given).content == plain.content
        for (given, body), wanted in product(asked, BULK):
            answer = post(client, "/predict", body, given, wanted)
            assert answer.headers["content-type"].startswith(wanted)
            for (cell, *more), (value, *beside) in zip(predictions(wanted, answer.content), expected, strict=True):
                assert more == beside
                assert is_told(wanted, cell, value, is_json=name == LabelType.SCALAR), (given, wanted)


def test_columns_stand_in_any_order_and_a_dictionary_is_as_good_as_texts(shared: TestClient) -> None:
    plain = shared.post("/predict", json={"instances": rows(20)}).content
    # A byte order mark, blank lines and carriage returns change nothing.
    body = written(Format.CSV, NAMES, rows(20)).replace(b"\n", b"\r\n")
    for given, content in (
        (Format.CSV, written(Format.CSV, NAMES[::-1], [row[::-1] for row in rows(20)])),
        (Format.CSV, b"\xef\xbb\xbf" + body + b"\r\n\r\n"),
        (Format.ARROW, arrow(changed("job", TABLE["job"].dictionary_encode()), 10)),
        (Format.NDJSON, b"".join(json.dumps(row).encode() + b"\n" for row in TABLE.to_pylist())),
        (Format.NDJSON, written(Format.NDJSON, NAMES, rows(20)).replace(b"\n", b"\r\n\n")),
    ):
        assert post(shared, "/predict", content, given).content == plain


def test_compressed_bodies_are_read_in_pieces_and_too_large_an_answer_in_json_is_refused(shared: TestClient) -> None:
    body = written(Format.CSV, NAMES, rows(50) * 400)  # more than max_body_bytes
    assert len(body) > 200_000
    answer = post(shared, "/predict", gzip.compress(body), Format.CSV, Format.CSV, **{"Content-Encoding": "gzip"})
    assert len(predictions(Format.CSV, answer.content)) == 20_000
    large = ADD + b",1,a,true,no\n" * 130_000
    assert len(large) > 1_600_000  # 16 times max_body_bytes
    refused = post(shared, "/samples", gzip.compress(large), Format.CSV, **{"Content-Encoding": "gzip"})
    assert refused.status_code == 413
    answer = post(shared, "/predict", written(Format.CSV, NAMES, rows(3001)), Format.CSV)
    assert answer.status_code == 413
    assert "'Accept'" in answer.json()["detail"], "the way out"


@pytest.mark.parametrize(("given", "wanted"), list(zip(BULK, (*BULK[1:], BULK[0]), strict=True)))
def test_a_long_body_is_answered_in_pieces_and_in_full(shared: TestClient, given: Format, wanted: Format) -> None:
    body = written(given, NAMES, rows(2000) * 25)
    plain = predictions(Format.JSON, shared.post("/predict", json={"instances": rows(2000)}).content)
    answer = post(shared, "/predict", (body[at : at + 70_001] for at in range(0, len(body), 70_001)), given, wanted)
    assert (answer.status_code, "content-length" in answer.headers) == (200, False)
    found = predictions(wanted, answer.content)
    assert found[:2000] == plain
    assert [row[1] for row in found] == [row[1] for row in plain] * 25


# --- additions


def sample_body(given: Format, content: list[dict[str, Any]]) -> bytes:
    """Samples of `support.samples` as a body."""
    if given is Format.NDJSON:
        return b"".join(json.dumps(one).encode() + b"\n" for one in content)
    beside = ["id", "subject", "expires_at", "weight", "readd"]
    table = [[*(one[name] for name in beside), *one["features"], one["label"]] for one in content]
    return written(given, [*beside, *NAMES, "income"], table)


@pytest.mark.parametrize(("wanted", "given"), covering(ALL, BULK))
def test_samples_in_bulk_are_those_in_json(given: Format, wanted: Format) -> None:
    content = samples(200, subject="s", expires_at="2999-01-01T00:00:00Z", weight=2.5, readd=False)["samples"]
    found = []
    for body, form in ((json.dumps({"samples": content}).encode(), Format.JSON), (sample_body(given, content), given)):
        service = make_service()
        with served(service) as client:
            answer, again = [post(client, "/samples", body, form, wanted) for _ in range(2)]
            assert (answer.status_code, again.status_code) == (201, 200), answer.text
            assert answer.content == again.content
            store = service.model.state.model.samples_
            found.append(([store.get(f"n{i}") for i in range(200)], service.model.state.model.digest(), answer.content))
    assert found[0] == found[1]


def test_ids_are_generated_where_there_are_none_and_a_key_repeats_them() -> None:
    with served() as client:
        body = b"id,age,job,member,income\n,1,a,true,yes\nx,2,b,,no\n,3,c,false,yes\n"
        key = {"Idempotency-Key": "k"}
        first = post(client, "/samples", body, Format.CSV, Format.CSV, **key)
        assert first.text.splitlines()[0] == "id,model_version,n_samples,durable"
        assert [line.split(",")[0] for line in first.text.splitlines()[1:]] == ["0", "x", "1"]
        client.delete("/samples/1")  # its number never comes again
        assert post(client, "/samples", body, Format.CSV, Format.CSV, **key).text == first.text
        assert post(client, "/samples", body + b"\n", Format.CSV, **key).status_code == 422
        last = post(client, "/samples", b"age,job,member,income\n1,a,,no\n", Format.CSV, Format.ARROW)
        table = pa.ipc.open_stream(last.content).read_all()
        assert table.column_names == ["id", "model_version", "n_samples", "durable"]
        assert table["id"].to_pylist() == ["2"]


def test_columns_beside_give_way_to_features_of_their_names() -> None:
    columns = (Column("id", ColumnType.NUMERIC), Column("label", ColumnType.NUMERIC))
    schema = Schema(columns, Task.CLASSIFICATION, LabelType.STRING, label_name="label", named=True)
    model = DynamicForestClassifier(n_estimators=2, random_state=0)
    model.fit([[1, 2], [3, 4]], ["a", "b"], ids=["p", "q"], schema=schema)
    with served(make_service(model)) as client:
        text = client.get("/samples", headers={"Accept": "text/csv"}).text
        assert text.splitlines()[0] == "_id,subject,expires_at,restricted_at,weight,id,label,_label"
        assert post(client, "/samples", text, Format.CSV).status_code == 200
        wrong = post(client, "/samples", "_id,id,label,_label\n,1,2,\n", Format.CSV)
        assert wrong.json()["errors"][0]["pointer"] == "/samples/0/label"


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(30, 0), pa.float64(), pa.int32()])
def test_numbers_that_float32_cannot_hold_are_rounded_in_tables(kind: pa.DataType) -> None:
    value = 2**24 + 1 if kind == pa.int32() else 2**60 + 1
    make = Decimal if pa.types.is_decimal(kind) else float if pa.types.is_floating(kind) else int
    columns = {"age": pa.array([make(value), None], kind), "job": ["a", "b"], "member": [True, False]}
    table = pa.table({"id": ["p", "q"], **columns, "income": ["yes", "no"]})
    with served() as client:
        added = [post(client, "/samples", arrow(table), Format.ARROW) for _ in range(2)]
        assert [answer.status_code for answer in added] == [201, 200]
        held = float(np.float32(float(value)))
        assert np.float32(client.get("/samples/p").json()["features"]["age"]) == held
        answer = post(client, "/predict", arrow(pa.table(columns)), Format.ARROW)
        rounded = client.post("/predict", json={"instances": [[held, "a", True], [None, "b", False]]})
        assert answer.json()["predictions"] == rounded.json()["predictions"]


# --- what is refused

SECRET = "SEKRET"
HEADER = b"age,job,member\n"
ADD = b"id,age,job,member,income\n"


def changed(name: str, values: Any) -> pa.Table:
    return TABLE.set_column(TABLE.column_names.index(name), name, values)


REFUSED: dict[tuple[str, Format], list[tuple[bytes, int, str]]] = {
    ("/predict", Format.CSV): [
        (b"", 422, "/instances"), (HEADER, 422, "/instances"), (b"age,job,member,age\n1,a,true,1\n", 422, ""),
        (HEADER + b"1,a,true\nSEKRET,b,false\n", 422, "/instances/1/age"),
        (HEADER + b"1,a,SEKRET\n", 422, "/instances/0/member"),
        (HEADER + b"inf,SEKRET,true\n", 422, "/instances/0/age"),
        (HEADER + b"1,SEKRET,true,1\n", 422, "/instances/0"), (HEADER + b'1,SEK"RET",true\n', 400, ""),
        (HEADER + b'1,"SEKRET,true\n', 400, ""), (HEADER + b"1,a,true\n1,\xffSEKRET,true\n", 400, "/instances/1"),
        (b"\xff\xfe" + HEADER, 400, ""), (HEADER + b"1," + b"SEKRET" * 80_000 + b",true\n", 413, ""),
    ],
    ("/predict", Format.NDJSON): [
        (b"\n\n", 422, "/instances"), (b'[1, "a", true]\n[1, "SEKRET"\n', 400, "/instances/1"),
        (b'[1, "SEKRET"], [2, "b", true]\n', 400, "/instances/0"),
        (b'[1, "a", true]\n["SEKRET", "b", true]\n', 422, "/instances/1/0"),
        (b'{"age": "SEKRET", "job": "a", "member": true}\n', 422, "/instances/0/age"),
        (b'{"instances": [[1, "SEKRET", true]]}\n', 422, "/instances/0"),
        (b"[" * 5000 + b"\n", 400, "/instances/0"),
    ],
    ("/predict", Format.ARROW): [
        (b"", 400, ""), (b"SEKRET" * 10, 400, ""), (b"ARROW1\0\0" * 10, 400, ""),
        (arrow(TABLE)[:-20], 400, ""), (arrow(TABLE) + b"SEKRET", 400, ""),
        (arrow(TABLE)[:8] + b"\xff" * 40 + arrow(TABLE)[48:], 400, ""),
        (arrow(changed("age", pa.array(["SEKRET"] * 20))), 422, "/instances/0/age"),
        (arrow(changed("age", pa.array([[1]] * 20))), 422, "age"),
        (arrow(changed("job", pa.array([{"a": 1}] * 20))), 422, "job"),
        (arrow(changed("age", pa.array([1.0] * 19 + [float("inf")]))), 422, "/instances/19/age"),
    ],
    # A label is never missing.
    ("/samples?missing_columns=missing", Format.CSV): [(b"id,job\nSEKRET,b\n", 422, "")],
    ("/samples", Format.CSV): [
        (ADD, 422, "/samples"), (ADD + b"a,1,a,true,yes\nSEKRET,x,a,true,no\n", 422, "/samples/1/features/age"),
        (ADD + b"a,1,a,true,yes\na,1,SEKRET,true,no\n", 422, "/samples/1/id"),
        (ADD + b"SEKRET,1,a,true,\n", 422, "/samples/0/label"),
        (ADD + b"c1,30,SEKRET,true,no\n", 409, "/samples/0/id"),
        *((name.encode() + b"," + ADD + b"SEKRET,a,1,a,true,no\n", 422, f"/samples/0/{name}")
          for name in ("expires_at", "weight", "readd")),
        *((ADD + b",1,SEKRET,true,no\n" * n, 413, "") for n in (501, 20_000)),
    ],
    ("/samples", Format.NDJSON): [
        (b'{"features": [1, "a", true], "label": "no"}\n{"SEKRET": 1}\n', 422, "/samples/1"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "given", "body", "status", "place"),
    [(*asked, *one) for asked, listed in REFUSED.items() for one in listed],
)
def test_what_is_wrong_is_named_by_its_place_and_changes_nothing(shared, path, given, body, status, place):
    before = shared.get("/model").json()
    for wanted in ALL:
        answer = post(shared, path, body, given, wanted)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        errors = answer.json().get("errors", [{"pointer": ""}])
        assert place in [one["pointer"] for one in errors] or f"column '{place}'" in answer.text
        assert SECRET not in answer.text
        assert "--" not in answer.text
    assert {**shared.get("/model").json(), "lazy_tags": 0} == {**before, "lazy_tags": 0}


def test_an_arrow_stream_cannot_claim_more_than_it_has(shared: TestClient) -> None:
    nothing = pa.table({"age": pa.nulls(2**21), "job": pa.nulls(2**21), "member": pa.nulls(2**21)})
    assert post(shared, "/predict", arrow(nothing, 2**21), Format.ARROW, Format.ARROW).status_code == 413
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(TABLE)
    assert "compressed" in post(shared, "/predict", sink.getvalue(), Format.ARROW).text
    many = pa.table({name: TABLE[name].take(list(range(20)) * 2000) for name in NAMES})
    assert post(shared, "/predict", arrow(many, 40_000), Format.ARROW, Format.CSV).status_code == 413


# --- what goes wrong in the middle


async def cut_answer(service: Service, body: AsyncIterator[bytes], wanted: Format) -> bytes:
    """What comes of an answer until it is cut off."""
    received = b""
    async with served_here(service) as client:
        app = client._transport.app  # type: ignore[attr-defined]
        sent = body.__aiter__()

        async def receive() -> Any:
            piece = await anext(sent, None)
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

        async def send(message: Any) -> None:
            nonlocal received
            assert message.get("status", 200) == 200
            received += message.get("body", b"")

        scope = asgi_scope("POST", "/predict", content_type=Format.CSV, accept=wanted)
        with pytest.raises(ConnectionAbortedError):
            await app(scope, receive, send)
    return received


def failure(wanted: Format, body: bytes) -> dict[str, Any]:
    """The problem in the last record of an answer."""
    if wanted is Format.ARROW:
        reader = pa.ipc.open_stream(body)
        while True:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            if metadata is not None:
                assert batch.num_rows == 0
                return dict(json.loads(metadata[b"error"]))
    last = body.splitlines()[-1].decode()
    return dict(json.loads(last.removeprefix("#error ")) if wanted is Format.CSV else json.loads(last)["error"])


@pytest.mark.parametrize("wanted", BULK)
async def test_an_error_in_the_middle_is_the_last_record_and_the_answer_is_cut_off(wanted: Format) -> None:
    good = written(Format.CSV, NAMES, rows(2000) * 10)

    async def body() -> AsyncIterator[bytes]:
        yield good
        yield b"SEKRET,a,true\n"
        yield good  # is read and dropped

    received = await cut_answer(make_service(), body(), wanted)
    problem = failure(wanted, received)
    assert problem["type"] == "urn:oubli:problem:invalid-input"
    assert problem["errors"][0]["pointer"] == "/instances/20000/age"
    assert SECRET.encode() not in received


@pytest.mark.parametrize("wanted", [Format.CSV, Format.NDJSON])
async def test_each_row_says_its_version_and_classes_may_change_where_each_row_names_them(wanted: Format) -> None:
    service = make_service()
    good = written(Format.CSV, NAMES, rows(2000) * 20)

    async def body() -> AsyncIterator[bytes]:
        yield good
        await service.changes.delete(ids=["c0"])
        yield good[len(HEADER) :]
        await service.changes.delete(ids=[f"c{i}" for i in range(60) if i % 4 == 0])  # all that say no
        yield good[len(HEADER) :]
        yield b"broken"

    received = await cut_answer(service, body(), wanted)
    lines = received.splitlines()[:-1]
    versions = [row[2] for row in predictions(wanted, b"\n".join(lines))]
    assert versions == sorted(versions)
    if wanted is Format.CSV:
        assert set(versions) == {1, 2}
        assert failure(wanted, received)["type"] == "urn:oubli:problem:model-changed"
    else:
        assert set(versions) == {1, 2, 3}
        assert failure(wanted, received)["errors"][0]["pointer"] == "/instances/120000"
        assert json.loads(lines[-1])["classes"] == ["yes"]


# --- formats


def test_the_format_of_an_answer_is_the_one_wanted_most() -> None:
    for accept, expected in (
        *((accept, Format.JSON) for accept in ([], ["*/*"], ["text/html"], ["text/csv;q=0"])),
        *((["text/csv" + more], Format.CSV) for more in ("", ", */*", ";q=0.9, application/json;q=0.8")),
        (["text/csv, application/json"], Format.JSON),
        (["*/*;q=0.1", "Application/X-NDJSON"], Format.NDJSON),
        (["text/csv;q=x, application/vnd.apache.arrow.stream;q=0.1"], Format.ARROW),
    ):
        assert answer_format(accept) is expected
    assert body_format("text/csv; charset=UTF-8") is Format.CSV
    assert body_format("text/csv; charset=latin1") is None
    assert body_format("text/plain") is None
