"""Columns too many or too few mean the same in every format, and numbers beyond 64 bits are named in every one."""

import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.http.formats import Format
from oubli.core.data.schema import Column, ColumnType
from tests.unit.app.http.bulk_cases import written
from tests.unit.app.support import CLASSES, forest, make_service, pick, served

ROWS: list[dict[str, Any]] = [{"age": 3, "job": "a", "member": True}, {"age": 30, "job": "b", "member": False}]
SECRET = "XYZZY"  # a name that only the request has
LAX = "extra_columns=ignore&missing_columns=missing"
FORMS = ("json", "csv", "ndjson", "arrow", "v2")


def ask(client: TestClient, form: str, rows: list[dict[str, Any]], query: str = "") -> Any:
    """Predict for rows in a form; all of them have the same columns."""
    names = list(rows[0])
    if form == "v2":
        kinds = {"age": "BYTES" if type(rows[0].get("age")) is str else "FP64", "member": "BOOL"}
        inputs = [
            {"name": n, "datatype": kinds.get(n, "BYTES"), "shape": [len(rows)], "data": [row[n] for row in rows]}
            for n in names
        ]
        parameters = dict(part.split("=") for part in query.split("&") if part)
        return client.post("/v2/models/oubli/infer", json={"inputs": inputs, "parameters": parameters})
    body, kind = form_body(form, "instances", rows)
    return client.post(f"/predict?{query}", content=body, headers={"Content-Type": kind})


def form_body(form: str, key: str, objects: list[dict[str, Any]]) -> tuple[bytes, Format]:
    """Objects with the same names as a body in a form, and its type."""
    if form == "json":
        return json.dumps({key: objects}).encode(), Format.JSON
    if form == "ndjson":
        return "\n".join(map(json.dumps, objects)).encode(), Format.NDJSON
    kind = Format.CSV if form == "csv" else Format.ARROW
    return written(kind, list(objects[0]), [[*one.values()] for one in objects]), kind


def shares(answer: Any) -> list[float]:
    assert answer.status_code == 200, answer.text
    content = answer.json()
    if "outputs" in content:
        return next(one["data"] for one in content["outputs"] if one["name"] == "probabilities")
    return [share for row in content["probabilities"] for share in row]


@pytest.mark.parametrize("form", FORMS)
def test_columns_too_many_are_refused_by_their_place_or_ignored(shared: TestClient, form: str) -> None:
    more = [{**dict(list(row.items())[:2]), SECRET: "x", "member": row["member"]} for row in ROWS]
    refused = ask(shared, form, more)
    assert (refused.status_code, SECRET in refused.text) == (422, False)
    assert "extra_columns=ignore" in refused.text
    assert {"json": "feature 3", "ndjson": "feature 3", "v2": "/inputs/2"}.get(form, "column 3") in refused.text
    exact = shares(ask(shared, form, ROWS))
    assert shares(ask(shared, form, more, "extra_columns=ignore")) == exact
    assert shares(ask(shared, form, ROWS, LAX)) == exact
    misspelt = ask(shared, form, [{"agee": "x", "job": "a", "member": True, "age": 3}]).text
    assert "the nearest that it has is 'age'" in misspelt
    assert "agee" not in misspelt
    no_rule = ask(shared, form, ROWS, f"extra_columns={SECRET}")
    assert (no_rule.status_code, SECRET in no_rule.text) == (422, False)
    assert "must be 'refuse' or 'ignore'" in no_rule.text


@pytest.mark.parametrize("form", FORMS)
def test_columns_too_few_are_refused_by_their_name_or_missing(shared: TestClient, form: str) -> None:
    few = [{"job": row["job"]} for row in ROWS]
    refused = ask(shared, form, few)
    assert (refused.status_code, "age" in refused.text) == (422, True)
    expected = shared.post("/predict", json={"instances": [[None, row["job"], None] for row in ROWS]})
    assert shares(ask(shared, form, few, "missing_columns=missing")) == shares(expected)
    assert ask(shared, form, few, "extra_columns=ignore").status_code == 422


def test_the_schema_says_what_is_done_where_a_request_does_not() -> None:
    schema = replace(CLASSES, extra_columns="ignore", missing_columns="missing")
    with served(make_service(forest(schema=schema))) as lax:
        assert pick(lax.get("/model").json(), "extra_columns missing_columns") == ("ignore", "missing")
        few = [{"job": row["job"], SECRET: "x"} for row in ROWS]
        for form in FORMS:
            queries = ("", "extra_columns=refuse", "missing_columns=refuse")
            assert [ask(lax, form, few, query).status_code for query in queries] == [200, 422, 422]


def add(client: TestClient, form: str, row: dict[str, Any], query: str = "") -> Any:
    """Add a row as the sample that is named like its form."""
    flat = {"id": form, **row, "income": "yes"}
    one = flat if form in ("csv", "arrow") else {"id": form, "features": row, "label": "yes"}
    body, kind = form_body(form, "samples", [one])
    return client.post(f"/samples{query}", content=body, headers={"Content-Type": kind})


@pytest.mark.parametrize("form", ["json", "csv", "ndjson", "arrow"])
def test_samples_are_added_by_the_same_rules(form: str) -> None:
    row = {"job": "b", SECRET: 1}
    with served() as client:
        for query in ("", "?extra_columns=ignore", "?missing_columns=missing"):
            refused = add(client, form, row, query)
            assert (refused.status_code, SECRET in refused.text) == (422, False)
        added = add(client, form, row, f"?{LAX}")
        assert added.status_code == 201, added.text
        held = client.get(f"/samples/{form}").json()
        assert (held["features"], held["label"]) == ({"age": None, "job": "b", "member": None}, "yes")


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/predict/without?", {"ids": ["c1"]}), ("POST", "/explain?", {}), ("POST", "/influence?", {}),
    *(("PUT", path, {"label": "yes"}) for path in ("/samples/c2?", "/samples?id=c3&")),
])  # fmt: skip
def test_every_route_that_takes_rows_goes_by_the_same_rules(shared, method, path, body):
    def send(row: Any, query: str) -> Any:
        rows = {"features": row} if method == "PUT" else {"instances": [row]}
        return shared.request(method, path + query, json={**body, **rows})

    for query in ("", "extra_columns=ignore", "missing_columns=missing"):
        refused = send({"job": "b", SECRET: 1}, query)
        assert (refused.status_code, SECRET in refused.text) == (422, False)
    assert send({"job": "b"}, f"extra_columns={SECRET}").status_code == 422
    answer = send({"job": "b", SECRET: 1}, LAX)
    assert answer.status_code in (200, 202), answer.text  # the ranking may take long
    if method == "PUT":
        assert shared.get("/samples?id=" + path.strip("?&")[-2:]).json()["samples"][0]["features"]["age"] is None
    elif path != "/influence?":
        assert answer.json() == send([None, "b", None], "").json()


@pytest.mark.parametrize(("unit", "text", "number"), [
    ("day of the week", "2024-02-03", 5), ("day of the week", "2024-02-04T23:30:00-02:00", 0),
    ("day of the year", "1904-12-31", 366), ("seconds of the day", "2024-02-03T01:00:30Z", 3630),
])  # fmt: skip
def test_a_cycle_of_a_date_is_the_same_in_every_form(unit: str, text: str, number: float) -> None:
    column = Column("age", ColumnType.NUMERIC, unit=unit)
    row = {"age": text, "job": "b", "member": True}
    with served(make_service(forest(schema=replace(CLASSES, columns=(column, *CLASSES.columns[1:]))))) as client:
        assert client.get("/model").json()["features"][0]["unit"] == unit
        client.post("/samples", json={"samples": [{"id": "w", "features": {**row, "age": number}, "label": "yes"}]})
        whole = client.get("/samples/w").json()["features"]
        expected = shares(ask(client, "json", [{**row, "age": number}]))
        assert [shares(ask(client, form, [row])) for form in FORMS] == [expected] * len(FORMS)
        for form in FORMS[:-1]:
            assert add(client, form, row).status_code == 201
            assert client.get(f"/samples/{form}").json()["features"] == whole
        refused = ask(client, "json", [{**row, "age": "soon"}])
        assert f"must be a {'time' if unit.startswith('seconds') else 'date'} (" in refused.text


# --- numbers that no 64-bit float holds

INFER = "/v2/models/oubli/infer"
TENSORS = (
    '{"inputs": [{"name": "age", "datatype": "FP64", "shape": [2], "data": [1, NUMBER]},'
    ' {"name": "job", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]},'
    ' {"name": "member", "datatype": "BOOL", "shape": [2], "data": [true, false]}]}'
)
AGE = "(feature 'age')"


@pytest.mark.parametrize("number", ["1e400", "-1e999", "9" * 400])
@pytest.mark.parametrize(("path", "kind", "body", "place"), [
    ("/predict", Format.JSON, '{"instances": [[1, "a", true], [NUMBER, "a", true]]}', f"/instances/1/0 {AGE}"),
    ("/predict", Format.JSON, '{"instances": [{"age": NUMBER, "job": "a", "member": true}]}', "/instances/0/age"),
    ("/samples", Format.JSON, '{"samples": [{"features": [NUMBER, "a", true], "label": "no"}]}',
     f"/samples/0/features/0 {AGE}"),
    ("/predict", Format.NDJSON, '[1, "a", true]\n[NUMBER, "a", true]\n', "/instances/1/0"),
    ("/samples", Format.NDJSON, '{"features": {"age": NUMBER}, "label": "no"}\n', "/samples/0/features/age"),
    ("/predict", Format.CSV, "age,job,member\n1,a,true\nNUMBER,a,true\n", "/instances/1/age"),
    ("/samples", Format.CSV, "age,income\n1,no\nNUMBER,no\n", "/samples/1/features/age"),
    (INFER, Format.JSON, TENSORS, "/inputs/0 (row 1, feature 'age')"),
])  # fmt: skip
def test_a_number_that_no_float_holds_is_named_in_every_format(shared, path, kind, body, place, number):
    query = "" if path == INFER else f"?{LAX}"
    refused = shared.post(f"{path}{query}", content=body.replace("NUMBER", number), headers={"Content-Type": kind})
    assert refused.status_code == 422
    content = refused.json()
    said = content["error"] if path == INFER else "{pointer} {detail}".format(**content["errors"][0])
    if path == INFER and number.isdigit():
        assert "/inputs/0/data holds an integer beyond the range of FP64" in said
    else:
        assert place in said
        assert "is too large for a 64-bit float" in said


def test_json_that_is_broken_behind_such_a_number_is_broken(shared: TestClient) -> None:
    headers = {"Content-Type": "application/json"}
    for body in ('{"instances": [[1e400, "a"', '{"instances": [[NaN, 1e400]]}, ', "1e400 x"):
        assert shared.post("/predict", content=body, headers=headers).status_code == 400
    assert shared.post("/predict", content="1e400", headers=headers).status_code == 422
    csv = shared.post("/predict", content="age,job,member\ninf,a,true\n", headers={"Content-Type": Format.CSV})
    tensors = shared.post(INFER, content=TENSORS.replace("NUMBER", "Infinity"), headers=headers)
    assert all("must be a finite number" in answer.text for answer in (csv, tensors))
