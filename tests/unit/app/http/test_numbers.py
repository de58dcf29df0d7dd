"""What goes in comes out: numbers in the shortest text that reads back, and a copy of an answer changes nothing."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from oubli.app.datasets.loading import load_table
from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.data.schema import LabelType, Schema, Task
from tests.tiers import ordinary
from tests.unit.app.http.bulk_cases import WIDE
from tests.unit.app.support import JSON, make_service, make_settings, served

SCHEMAS = {
    "regression": Schema(WIDE, Task.REGRESSION, LabelType.NUMBER, label_name="y", named=True),
    "numbers": Schema(WIDE, Task.CLASSIFICATION, LabelType.NUMBER, label_name="y", named=True),
}
SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**24), 2**24)
DECIMALS = st.decimals(-1000, 1000, places=2, allow_nan=False).map(float)
ROWS = st.tuples(
    st.none() | SINGLES | WHOLE | DECIMALS, st.none() | DOUBLES | st.integers(-(2**53), 2**53) | DECIMALS,
    st.none() | st.sampled_from(["", "a", "1", "40.3", 'a,"b"', "null"]), st.none() | st.booleans(),
)  # fmt: skip


@pytest.fixture(scope="module", params=ordinary(SCHEMAS, "numbers"))
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    schema = SCHEMAS[request.param]
    kind = DynamicForestRegressor if schema.task is Task.REGRESSION else DynamicForestClassifier
    with served(make_service(kind(n_estimators=1, random_state=0).start(schema))) as client:
        yield client


def add(client: TestClient, **sample: Any) -> Any:
    return client.post("/samples", json={"samples": [{"id": "x", "readd": True, **sample}]})


@settings(max_examples=100, deadline=None)
@given(row=ROWS, label=st.one_of(DOUBLES, WHOLE, DECIMALS))
def test_a_copy_of_an_answer_changes_nothing(client: TestClient, row: tuple[Any, ...], label: float) -> None:
    client.delete("/samples/x")
    assert add(client, features=list(row), label=label, subject="s").status_code == 201
    answer = client.get("/samples/x")
    held = answer.json()
    single, double, text, flag = row
    for name, sent in (("single", single), ("double", double)):
        came = held["features"][name]
        assert (came is None) == (sent is None)
        if sent is not None:
            assert (np.float32(came) == np.float32(sent)) if name == "single" else (came == sent)
            assert came == 0 or type(came) is int or not float(came).is_integer() or abs(came) >= 1e16
            assert type(came) is not int or "e" not in json.dumps(came)
            assert not (came == 0 and math.copysign(1, came) < 0)
    assert (held["features"]["text"], held["features"]["flag"]) == (text, flag)
    assert held["label"] == label
    version = held.pop("model_version")
    again = client.post("/samples", json={"samples": [held]})
    assert (again.status_code, again.json()["model_version"]) == (200, version)
    assert client.get("/samples/x").content == answer.content


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(ROWS.filter(lambda row: row[2] != ""), min_size=1, max_size=20))  # in a data file it is missing
def test_a_csv_answer_is_a_data_file_of_the_same_values(client, rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("csv")
    for one in client.get("/samples", params={"limit": 50}).json()["samples"]:
        client.delete("/samples", params={"id": one["id"]})
    sent = [{"id": f"r{i}", "features": list(row), "label": i / 7, "readd": True} for i, row in enumerate(rows)]
    assert client.post("/samples", json={"samples": sent}).status_code == 201
    (folder / "data.csv").write_bytes(client.get("/samples", params={"limit": 50, "format": "csv"}).content)
    service = client.app.state.context.service  # type: ignore[attr-defined]
    (folder / "schema.json").write_text(json.dumps(service.model.state.model.schema_.to_dict()))
    files = {"data": folder / "data.csv", "schema_file": folder / "schema.json"}
    beside = {"id_column": "id", "subject_column": "subject", "weight_column": "weight"}
    table = load_table(make_settings(**files, **beside, drop=["expires_at", "restricted_at"]))
    store = service.model.state.model.samples_
    prepared = store.prepare(table.X, table.y, table.ids, allow_held=True)
    assert len(store) == prepared.n == len(rows)
    assert all(store.same_content(name, prepared, i) for i, name in enumerate(table.ids or ()))


def test_numbers_are_written_as_people_write_them(client: TestClient) -> None:
    written = {"40.3": "40.3", "40": "40", "40.0": "40", "-0.0": "0", "1e-7": "1e-7", "16777216": "16777216"}
    for sent, shown in written.items():
        client.delete("/samples/x")
        body = f'{{"samples":[{{"id":"x","readd":true,"features":[{sent},{sent},null,null],"label":{sent}}}]}}'
        assert client.post("/samples", content=body, headers=JSON).status_code == 201
        text = client.get("/samples/x").text
        assert f'"single":{shown},"double":{shown},' in text
        assert f'"label":{shown},' in text
        line = client.get("/samples/x?format=csv").text.splitlines()[1].split(",")
        assert [float(line[k]) for k in (5, 6, 9)] == [float(sent)] * 3
        assert sent == "1e-7" or [line[k] for k in (5, 6, 9)] == [shown] * 3
    client.delete("/samples/x")
    assert add(client, features=[3.4028234e38, 1e300, None, None], label=1e300).status_code == 201
    assert '"single":3.4028235e+38,"double":1e+300,' in client.get("/samples/x").text


ROUNDED = [
    ("single", 16777217, "16777216"), ("single", 16777217.0, "16777216"), ("single", -1e39, "-3.4028235e+38"),
    ("single", 2**62 + 1, "4.611686e+18"), ("single", 1e-50, "0"), ("double", 2**53 + 1, "9007199254740992"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sent", "shown"), ROUNDED)
def test_a_number_that_a_column_cannot_hold_is_rounded_and_never_refused(client, name, sent, shown, caplog):
    client.delete("/samples/x")
    store = client.app.state.context.service.model.state.model.samples_  # type: ignore[attr-defined]
    store.encoder.told.clear()
    row = {"single": 0.5, "double": 0.5, "text": "a", "flag": True, name: sent}
    assert add(client, features=row, label=1.0).status_code == 201
    held = client.get("/samples/x")
    assert f'"{name}":{shown}' in held.text
    header, line = ",".join(row), ",".join(str(value).lower() for value in row.values())
    table = f"id,{header},y\nx,{line},1\n"
    for answer in (
        *(add(client, features=again, label=1.0) for again in (row, list(row.values()), held.json()["features"])),
        client.post("/samples", content=table, headers={"Content-Type": "text/csv"}),
    ):
        assert (answer.status_code, answer.json()["model_version"]) == (200, held.json()["model_version"])
    predicted = [client.post("/predict", json={"instances": [one]}) for one in (row, held.json()["features"])]
    assert (predicted[0].status_code, predicted[0].content) == (200, predicted[1].content)
    datatypes = {"text": "BYTES", "flag": "BOOL", **({name: "INT64"} if isinstance(sent, int) else {})}
    inputs = [{"name": n, "datatype": datatypes.get(n, "FP64"), "shape": [1], "data": [row[n]]} for n in row]
    tensors = client.post("/v2/models/oubli/infer", json={"inputs": inputs})
    assert tensors.json()["outputs"][0]["data"] == predicted[0].json()["predictions"]
    assert client.put("/samples/x", json={"features": row, "label": 1.0}).status_code == 200
    (said,) = [record.getMessage() for record in caplog.records if record.name == "oubli.numbers"]
    assert f"column '{name}' are rounded" in said
    assert str(sent) not in said


def test_a_scalar_label_keeps_its_type() -> None:
    schema = Schema(WIDE[:1], Task.CLASSIFICATION, LabelType.SCALAR, label_name="y", named=True)
    with served(make_service(DynamicForestClassifier(n_estimators=1).start(schema))) as client:
        for label in (1, 1.0, True, "1"):
            assert add(client, features=[40.3], label=label).status_code == 201
            held = client.get("/samples/x").json()
            assert (held["label"], type(held["label"])) == (label, type(label))
            client.delete("/samples/x")
