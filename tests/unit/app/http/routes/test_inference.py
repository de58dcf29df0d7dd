"""The Open Inference Protocol: the same predictions as elsewhere, bit for bit, and refusals in its own form."""

import gzip
import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from starlette.testclient import TestClient

from oubli.app.http.inference import DTYPES
from oubli.core import DynamicForestClassifier
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from tests.unit.app.support import forest, make_service, pick, rows, samples, served

INFER = "/v2/models/oubli/infer"
LENGTH = "Inference-Header-Content-Length"
MARK, NUMBER = "XYZZY", 98765.4375
TYPES = {"age": "FP32", "job": "BYTES", "member": "BOOL"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with served(max_body_bytes=200_000) as client:
        yield client


def tensor(name: str, datatype: str, values: Any, shape: list[int] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or [len(values)], "data": values, **more}


def inputs(instances: list[list[Any]]) -> list[dict[str, Any]]:
    columns = zip(*instances, strict=True)
    return [tensor(name, kind, list(column)) for (name, kind), column in zip(TYPES.items(), columns, strict=True)]


def infer(client: TestClient, sent: list[dict[str, Any]], **more: Any) -> Any:
    """Ask for predictions with JSON alone."""
    return client.post(INFER, content=orjson.dumps({"inputs": sent, **more}))


def outputs(answer: Any) -> dict[str, Any]:
    return {output["name"]: np.reshape(output["data"], output["shape"]) for output in answer.json()["outputs"]}


def packed(content: dict[str, Any], *parts: bytes) -> tuple[bytes, dict[str, str]]:
    """A body with bytes behind the JSON, and the header that says where they begin."""
    header = orjson.dumps(content)
    return b"".join((header, *parts)), {LENGTH: str(len(header))}


def announced(name: str, datatype: str, shape: Any, n_bytes: Any) -> dict[str, Any]:
    """An input whose bytes come behind the JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": n_bytes}}


# --- what is told of server and model


def test_the_server_and_its_model_are_described(client):
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    for path in ("/v2/models/oubli", "/v2/models/oubli/versions/1"):
        told = client.get(path).json()
        assert pick(told, "name versions platform") == ("oubli", ["1"], "oubli_forest")
        assert told["inputs"] == [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in TYPES.items()]
        assert [one["name"] for one in told["outputs"]] == ["predictions", "probabilities", "classes"]


def test_the_name_of_the_model_is_a_setting():
    with served(model_name="adult.v1") as client:
        assert client.get("/v2/models/adult.v1").json()["name"] == "adult.v1"
        assert client.get("/v2/models/oubli").status_code == 404
        paths = client.get("/openapi/inference.json").json()["paths"]
        assert paths["/v2/models/{model_name}"]["get"]["parameters"][0]["schema"]["enum"] == ["adult.v1"]


def test_health_and_readiness():
    service, body = make_service(), orjson.dumps({"inputs": inputs(rows(1))})
    asked = (
        ("GET", "/v2/health/live", {"live": True}), ("GET", "/v2", None),
        ("GET", "/v2/health/ready", {"live": True, "ready": True}), ("GET", "/v2/models/oubli", None),
        *(("GET", f"/v2/models/oubli{at}/ready", {"name": "oubli", "ready": True}) for at in ("", "/versions/1")),
        ("POST", INFER, None),
    )  # fmt: skip
    with served(service) as client:
        for method, path, expected in asked:
            answer = client.request(method, path, content=body)
            assert (answer.status_code, expected or answer.json()) == (200, answer.json())
        service.model.state.phase = "starting"
        for method, path, _ in asked[2:]:
            refused = client.request(method, path, content=body)
            assert (refused.status_code, list(refused.json())) == (503, ["error"]), path
            assert int(refused.headers["retry-after"]) > 0
        assert [client.get(path).status_code for _, path, _ in asked[:2]] == [200, 200]
        service.model.state.phase = "ready"
    with served(make_service(forest(0))) as client:
        refused = client.post(INFER, content=body)
        assert (refused.status_code, list(refused.json())) == (409, ["error"]), "an empty model says so"
        assert client.get("/v2/models/oubli/ready").status_code == 200


# --- predictions


def test_predictions_are_those_of_predict_and_of_the_library(client):
    for n in (120, 3000):  # many rows take a thread
        asked = [*rows(n - 2), [None, None, None], [1, "never seen", False]]
        answer = infer(client, inputs(asked), id="a-b")
        found, told = {name: values.tolist() for name, values in outputs(answer).items()}, answer.json()
        plain = client.post("/predict", json={"instances": asked})
        predicted, shares = forest().predict(asked).tolist(), forest().predict_proba(asked).tolist()
        assert found == {"predictions": predicted, "classes": ["no", "yes"], "probabilities": shares}
        assert {**found, **told["parameters"]} == plain.json()
        assert pick(told, "id model_name model_version") == ("a-b", "oubli", "1")
        assert answer.headers["cache-control"] == plain.headers["cache-control"] == "no-store"
    refused = infer(client, inputs(rows(3001)))
    assert (refused.status_code, list(refused.json())) == (413, ["error"])


def test_outputs_are_chosen_one_by_one(client):
    chosen = [{"name": "classes"}, {"name": "probabilities", "parameters": {"binary_data": True}}]
    answer = infer(client, inputs(rows(2)), outputs=chosen)
    assert answer.headers["content-type"] == "application/octet-stream"
    told = orjson.loads(answer.content[: int(answer.headers[LENGTH])])
    assert [(one["name"], "data" in one) for one in told["outputs"]] == [("classes", True), ("probabilities", False)]
    assert answer.content[int(answer.headers[LENGTH]) :] == forest().predict_proba(rows(2)).tobytes()
    chosen = [{"name": "predictions", "parameters": {"binary_data": False}}]
    answer = infer(client, inputs(rows(2)), outputs=chosen, parameters={"binary_data_output": True})
    assert list(outputs(answer)) == ["predictions"]


def test_missing_values_are_null_and_the_literal_nan(client):
    plain = client.post("/predict", json={"instances": [[None, None, None], [1, "a", None]]}).json()
    asked = orjson.dumps({"inputs": inputs([[7.5, None, None], [1, "a", None]])}).replace(b"7.5", b"NaN")
    assert np.array_equal(outputs(client.post(INFER, content=asked))["probabilities"], plain["probabilities"])
    member = tensor("member", "FP64", [None, math.nan])
    body = orjson.dumps({"inputs": [*inputs([[None, None, True], [1, "a", True]])[:2], member]})
    assert np.array_equal(outputs(client.post(INFER, content=body))["probabilities"], plain["probabilities"])


WIDTHS = ("float32", "float64", "float32")
THREE = tuple(Column(f"f{j}", ColumnType.NUMERIC, width) for j, width in enumerate(WIDTHS))
WIDE = Schema(THREE, Task.CLASSIFICATION, LabelType.INTEGER)


@pytest.fixture(scope="module")
def numeric() -> Iterator[tuple[TestClient, Any]]:
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = DynamicForestClassifier(n_estimators=7, random_state=1)
    model.fit(X.tolist(), [int(v) for v in (X.sum(axis=1) > 0) + (X[:, 0] > 1)], schema=WIDE)
    with served(make_service(model.copy())) as client:
        yield client, model


def test_a_numeric_model_takes_all_features_at_once(numeric):
    client, model = numeric
    told = client.get("/v2/models/oubli").json()
    assert told["inputs"] == [{"name": "features", "datatype": "FP64", "shape": [-1, 3]}]
    assert [one["datatype"] for one in told["outputs"]] == ["INT64", "FP64", "INT64"]
    X = np.random.default_rng(1).normal(size=(30, 3))
    X[3, 1] = np.nan
    for name in ("features", "input-0", "f1"):
        for listed in (X.tolist(), X.ravel().tolist()):
            body = orjson.dumps({"inputs": [tensor(name, "FP64", listed, [30, 3])]}).replace(b"null", b"NaN")
            found = outputs(client.post(INFER, content=body))
            assert np.array_equal(found["probabilities"], model.predict_proba(X))
            assert np.array_equal(found["predictions"], model.predict(X))


@pytest.mark.parametrize("datatype", sorted(set(DTYPES) - {"BOOL"}))
def test_every_type_of_number_predicts_as_the_library_does(numeric, datatype):
    client, model = numeric
    dtype = DTYPES[datatype]
    X = (np.arange(51) * 37 % 101 / (7 if dtype.kind == "f" else 1)).astype(dtype).reshape(17, 3)
    tensors = [("x", X), *((f"f{j}", X[:, j]) for j in (2, 1, 0))]
    sent = [announced(name, datatype, [*x.shape], x.nbytes) for name, x in tensors]
    for some in (slice(1), slice(1, 4)):  # all at once, or column by column
        body, headers = packed({"inputs": sent[some]}, *(x.tobytes() for _, x in tensors[some]))
        zipped = {"content": gzip.compress(body), "headers": {**headers, "Content-Encoding": "gzip"}}
        for request in ({"content": body, "headers": headers}, zipped):
            found = outputs(client.post(INFER, **request))
            assert np.array_equal(found["probabilities"], model.predict_proba(X))
    found = outputs(infer(client, [tensor("x", datatype, X.tolist(), [17, 3])]))
    assert np.array_equal(found["probabilities"], model.predict_proba(X))


def test_categories_come_as_numbers_as_well(client):
    for values, datatype, cells in (([3, 4], "INT8", ["3", "4"]), ([0.1, 2.0], "FP32", ["0.1", "2"])):
        instances = [[1, cells[0], True], [2, cells[1], False]]
        plain, (age, _, member) = client.post("/predict", json={"instances": instances}).json(), inputs(instances)
        found = outputs(infer(client, [age, tensor("job", datatype, values), member]))
        assert np.array_equal(found["probabilities"], plain["probabilities"])


def test_labels_of_every_type_come_back():
    for label_type, labels, datatype in (
        (LabelType.BOOLEAN, [False, True], "BOOL"), (LabelType.INTEGER, [-4, 3], "INT64"),
        (LabelType.NUMBER, [0.5, 2.5], "FP64"), (LabelType.SCALAR, ["1", 1], "BYTES"),
    ):  # fmt: skip
        schema = Schema((Column("a", ColumnType.NUMERIC),), Task.CLASSIFICATION, label_type, named=True)
        model = DynamicForestClassifier(n_estimators=3, random_state=0)
        model.fit([[float(i)] for i in range(40)], [labels[i < 20] for i in range(40)], schema=schema)
        with served(make_service(model)) as client:
            sent = [tensor("a", "FP32", [0.0, 39.0])]
            told = {one["name"]: one for one in infer(client, sent).json()["outputs"]}
            plain = client.post("/predict", json={"instances": [[0.0], [39.0]]}).json()
            assert datatype == "BYTES" or plain["classes"] == labels
            for name in ("classes", "predictions"):
                data = told[name]["data"]
                if datatype == "BYTES":
                    data = [orjson.loads(text) for text in data]
                    assert told[name]["parameters"] == {"content_type": "application/json"}
                assert (told[name]["datatype"], data) == (datatype, plain[name])
            assert infer(client, sent, parameters={"binary_data_output": True}).status_code == 200


def test_versions_are_the_models():
    with served() as client:
        body = orjson.dumps({"inputs": inputs(rows(1))})
        assert client.post("/v2/models/oubli/versions/1/infer", content=body).status_code == 200
        assert client.post("/samples", json=samples(1)).json()["model_version"] == 2
        for path in ("", "/ready", "/infer"):
            method = "POST" if path == "/infer" else "GET"
            refused = client.request(method, f"/v2/models/oubli/versions/1{path}", content=body)
            assert (refused.status_code, "version 2" in refused.json()["error"]) == (404, True)
            assert client.request(method, f"/v2/models/oubli/versions/2{path}", content=body).status_code == 200
        for least, status in ((2, 200), (3, 503), (-1, 422), ("2", 422), (True, 422)):
            assert infer(client, inputs(rows(1)), parameters={"min_version": least}).status_code == status, least


# --- refusals


def one(feature: str, **more: Any) -> dict[str, Any]:
    """Right inputs, but for one."""
    right = {sent["name"]: sent for sent in inputs(rows(2))}
    return {"inputs": [{**sent, **(more if key == feature else {})} for key, sent in right.items()]}


def raw(content: dict[str, Any], data: bytes, shift: int = 0) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """A body with bytes behind its JSON, and a length of the JSON that may be wrong."""
    body, headers = packed(content, data)
    return body, ((LENGTH, str(int(headers[LENGTH]) + shift)),)


def sized(size: Any, datatype: str = "FP32", shape: Any = (2,)) -> dict[str, Any]:
    return {"inputs": [announced("age", datatype, shape, size), *inputs(rows(2))[1:]]}


DEEP = b'{"inputs": ' + b"[" * 5000 + b"]" * 5000 + b"}"
OVERLAP = {"inputs": [announced(sent["name"], sent["datatype"], [2], 8) for sent in inputs(rows(2))]}
INFINITE = orjson.dumps(one("age", datatype="FP64", data=[1, 2.5])).replace(b"2.5", b"1e999")
LONG = orjson.dumps(one("age")).replace(b"[2]", b"[" + b"9" * 4000 + b"]", 1)
TOP = {"name": "classes", "parameters": {"classification": 2}}
WRONG: dict[tuple[int, str], list[Any]] = {  # bodies, some with headers, by the status and what the error must name
    (400, "JSON"): [MARK.encode(), DEEP, *(raw(sized(8), bytes(8), shift) for shift in (-1, 1))],
    (422, "object"): [[MARK]], (422, "'inputs'"): [{**one(""), MARK: 1}], (422, "/id"): [{**one(""), "id": NUMBER}],
    (422, "/inputs"): [{"id": MARK}, {"inputs": []}, {"inputs": [tensor(MARK, "FP32", [1])] * 4}],
    (422, "/inputs/0"): [
        DEEP.replace(b"[" * 4900, b"").replace(b"]" * 4900, b""), one("age", data=None), raw(sized(7), bytes(7)),
        raw(one("age", parameters={"binary_data_size": 8}), bytes(8)),
        raw(sized(8, "BYTES"), b"\xff\xff\xff\xff\x00\x00\x00\x00"), raw(sized(2, "BOOL"), b"\x02\x01"),
    ],
    (422, "/inputs/1"): [one("job", **{MARK: 1})], (422, "/inputs/0/name"): [one("age", name=MARK)],
    (422, "/inputs/1/name"): [one("job", name="age", datatype="FP32", data=[1, 2])],
    (422, "'member'"): [{"inputs": inputs(rows(2))[:2]}], (422, "/inputs/0/datatype"): [one("age", datatype=MARK)],
    (422, "feature 'age'"): [INFINITE, raw(sized(16, "FP64"), np.array([1, np.inf]).tobytes())],
    (422, "/inputs/0/data"): [*(one("age", data=x) for x in ([1], MARK)), one("age", shape=[2, 1], data=[[1], 2])],
    (422, "/inputs/0/shape"): [
        *(one("age", shape=shape) for shape in ([2, 1, 1], [-2])), one("age", shape=[0], data=[]),
        *({"inputs": [tensor("x", "FP32", [1, 2], shape)]} for shape in ([1, 2], [2, 1])),
    ],
    (422, "/inputs/1/shape"): [one("job", shape=[1], data=[MARK])],
    (413, "3000 rows"): [one("age", shape=[2**40], data=[1]), LONG, raw(sized(8, shape=[2**40]), bytes(8))],
    (422, "/outputs/0/name"): [{**one(""), "outputs": [{"name": MARK}]}],
    (422, "/outputs/1/name"): [{**one(""), "outputs": [{"name": "classes"}] * 2}],
    (422, "/outputs"): [{**one(""), "outputs": MARK}], (422, "classification"): [{**one(""), "outputs": [TOP]}],
    (422, "binary_data_output"): [{**one(""), "parameters": {"binary_data_output": MARK}}],
    (422, "/parameters"): [{**one(""), "parameters": {"a": [MARK]}}],
    (422, "shared_memory_region"): [one("age", parameters={"shared_memory_region": MARK})],
    (422, LENGTH): [
        sized(8), raw(sized(8), bytes(8), 100_000), (one(""), ((LENGTH, MARK),)), (one(""), ((LENGTH, "3"),) * 2),
    ],
    (422, "binary_data_size"): [raw(sized(8), bytes(7)), raw(sized(-8), bytes(8)), raw(OVERLAP, bytes(16))],
    (422, "1 bytes behind"): [raw(sized(8), bytes(9))],
    (400, "Content-Encoding"): [(b"XYZZY", (("Content-Encoding", "gzip"),))],
    (413, "limit"): [{"id": MARK * 60_000}], (421, "host"): [(one(""), (("Host", "xyzzy.example"),))],
}  # fmt: skip
CASES = [
    *((*error, "POST", INFER, sent) for error, bodies in WRONG.items() for sent in bodies),
    (404, "'oubli'", "POST", f"/v2/models/{MARK}/infer", one("")),
    (404, "version 1", "POST", f"/v2/models/oubli/versions/{MARK}/infer", one("")),
    (404, "route", "POST", f"/v2/{MARK}", one("")),
    (405, "POST", "PUT", INFER, b""),
]


@pytest.mark.parametrize("wrong", CASES)
def test_refused(client, wrong, caplog):
    status, names, method, path, sent = wrong
    body, headers = sent if isinstance(sent, tuple) else (sent, ())
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    with caplog.at_level(logging.INFO, logger="oubli"):
        answer = client.request(method, path, content=content, headers=list(headers))
    assert (answer.status_code, list(answer.json())) == (status, ["error"]), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert names in answer.json()["error"]
    del answer.headers["x-request-id"]
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("oubli"))
    said = (answer.text + str(answer.headers) + logged).lower()
    submitted = (MARK.lower(), "98765", "987654321", "1e39", str(2**40), str(2**62))
    assert not [word for word in submitted if word in said]
