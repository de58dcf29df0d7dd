"""Whatever is wrong with a request: a fitting status, a place and a rule, nothing repeated, nothing changed.

Every submitted text holds MARK or is a number that occurs nowhere else.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from tests.unit.app.support import JSON, forest, make_service, served, state

pytestmark = pytest.mark.usefixtures("patient")

MARK = "XYZZY"
NUMBER = "98765.4375"
GOOD = {"features": [1, "a", True], "label": "yes"}
OF_ONE = {**GOOD, "subject": MARK}
LAX = "/predict?extra_columns=ignore&missing_columns=missing"
ONE = '{"samples": [{"features": [1, "a", true], "label": "no", %s}]}'


@dataclass(frozen=True)
class Bad:
    """A request that must be refused, and where the answer must point."""

    name: str
    status: int
    pointer: str | None
    body: Any
    path: str = "/samples"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=lambda: JSON)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)


def sample(**more: Any) -> dict[str, Any]:
    return {"samples": [GOOD, {**GOOD, **more}]}


def named(age: Any, **more: Any) -> dict[str, Any]:
    """Features by name, with MARK in them."""
    return {"age": age, "job": MARK, **more}


def predict(*instances: Any) -> dict[str, Any]:
    return {"instances": [[1, "a", True], *instances]}


def raw(features: str, label: str = '"yes"') -> bytes:
    return b'{"samples": [{"id": "XYZZY", "features": %s, "label": %s}]}' % (features.encode(), label.encode())


GOOD_ROWS = [[1, "a", True]] * 2998
ONE_DEEP = b'{"instances": [{"age": 1, "job": "a", "member": true, "XYZZY": ' + b"[" * 60 + b"1" + b"]" * 60 + b"}]}"
WRONG: dict[str, list[Any]] = {  # by its place, in the second of two samples
    "features": [[98765.4375, MARK], [1, "a", True, MARK], named(1, member=True, **{MARK: 1}), MARK],
    "features/member": [named(1)], "features/0": [[MARK, "a", True]], "features/age": [named(MARK, member=True)],
    "features/2": [[1, MARK, 98765.4375]], "id": [MARK * 60, ""], "label": [98765.4375, None], "readd": [MARK],
    "expires_at": ["2020-01-01T00:00:00Z", MARK], "retention": [86_400],  # of nobody
    "restricted_at": ["2020-01-01T00:00:00Z"],  # it does not come with a sample
    "weight": [MARK, True, 0, -1, 0.00195, 2**15, 32767.999, 10**18, [1]],
}  # fmt: skip
CASES = [
    *(Bad(number, 400, None, raw(f"[{number}, 1, true]")) for number in ("Infinity", "NaN")),
    *(
        Bad(f"{place}: {number}", 422, f"/samples/1/{place}", sample(**{"id": MARK, place.split("/")[0]: value}))
        for place, values in WRONG.items()
        for number, value in enumerate(values)
    ),
    *(
        Bad(f"beyond any float: {pointer}", 422, pointer, body.encode(), path)
        for path, body, pointer in (
            *(("/samples", ONE % f'"{name}": 1e400', f"/samples/0/{name}") for name in ("label", "weight", "id")),
            ("/influence", '{"instances": [[1, "a", true]], "top": 1e400}', "/top"),
            ("/predict", '{"instances": [[1, "a", true]], "coverage": 1e400}', "/coverage"),
            (LAX, '{"instances": [{"x": 1e400, "job": "\\ud800"}]}', "/instances/0/job"),
        )
    ),
    Bad("a period in words", 422, "/samples/1/retention", sample(subject=MARK, retention="1d")),
    Bad("two periods", 422, "/samples/1/retention", {"samples": [{**OF_ONE, "retention": n} for n in (1, 2)]}),
    Bad("a list for a body", 422, "", [MARK]),
    Bad("too many samples", 413, None, {"samples": [GOOD] * 3001}),
    Bad("a body over the limit", 413, None, sample(label=MARK * 40_000)),
    Bad("broken JSON", 400, None, b'{"samples": [{"id": "XYZZY"'),
    Bad("an empty body", 400, None, b""),
    Bad("JSON that is not UTF-8", 400, None, b'{"samples": "XYZZY\xff"}'),
    Bad("a lone surrogate", 400, None, raw("[1, 2, true]", '"\\ud800XYZZY"')),
    Bad("another origin", 403, None, sample(id=MARK), headers={**JSON, "Origin": "http://xyzzy.example"}),
    Bad("held with other content", 409, "/samples/1/id", sample(id="c1")),
    Bad("predict: deep where it is ignored", 422, "", ONE_DEEP, LAX),
    Bad("predict: too many rows", 413, None, {"instances": [GOOD["features"]] * 3001}, "/predict"),
    Bad("put: a wrong value", 422, "/features/0", {**GOOD, "features": [MARK, "a", True]}, "/samples/c1", "PUT"),
    Bad("put: a weight", 422, "/weight", {**GOOD, "weight": MARK}, "/samples/c1", "PUT"),
    Bad("put: restricted", 422, "/restricted_at", {**GOOD, "restricted_at": "2020-01-01"}, "/samples/c1", "PUT"),
    Bad("put: no label", 422, "/label", {"features": [1, MARK, True]}, "/samples/c1", "PUT"),
    Bad("put: another id", 422, "/id", {**GOOD, "id": MARK}, "/samples/c1", "PUT"),
    Bad("put: not held", 404, None, GOOD, f"/samples/{MARK}", "PUT"),
    Bad("get: not held", 404, None, b"", f"/samples/{MARK}", "GET"),
    Bad("get: an id too long", 422, "/id", b"", f"/samples/{MARK * 60}", "GET"),
    Bad("get: an id not held", 404, None, b"", f"/samples?id={MARK}", "GET"),
    Bad("batch-delete: too many", 413, None, {"ids": ["c1"] * 3001}, "/samples/batch-delete"),
    Bad("restore: a foreign file", 422, None, b"XYZZY" * 100, "/snapshot/file", "PUT", {}),
    Bad("no such route", 404, None, b"", f"/{MARK}", "GET"),
]


CASE = "123e4567-e89b-12d3-a456-426614174000"
WHO = {"subjects": ["s1"]}
ROW = {"instances": [[1, "a", True]]}
ODD = {"instances": [[1, "a", True], [MARK, "a", True]]}
NO_ROWS: list[tuple[Any, str]] = [
    ({}, "/instances"), ({"instances": []}, "/instances"), ({"instances": [[1, "a"]]}, "/instances/0"),
    ({**ROW, MARK: 3}, ""),
]  # fmt: skip
BODIES: dict[str, list[tuple[Any, str]]] = {
    "/samples": [
        ({"samples": [{**GOOD, "id": n} for n in (98765, "98765")]}, "/samples/1/id"),
        (sample(**{MARK: 1}), "/samples/1"), ({"samples": []}, "/samples"), ({}, "/samples"),
        ({"samples": [GOOD], MARK: 1}, ""),
    ],
    "/samples?extra_column=ignore": [({"samples": [GOOD]}, "")],
    "/subjects/restrict": [
        ({}, "/subjects"), ({"subjects": []}, "/subjects"), ({"subjects": ["s1", ""]}, "/subjects/1"),
        ({**WHO, "keep_expired": 1}, "/keep_expired"),
    ],
    "/subjects/release": [
        ({"subjects": "s1"}, "/subjects"), ({"subject": "s1"}, ""), ({**WHO, "ref": MARK}, "/ref"),
        ({**WHO, "keep_expired": True}, ""),
    ],
    "/subjects/retain": [
        (WHO, "/seconds"), *(({**WHO, "seconds": value}, "/seconds") for value in (0, 1.5, True, 10**10)),
        ({"subjects": [1.5], "seconds": 1}, "/subjects/0"), ({**WHO, "seconds": 1, "ref": MARK}, "/ref"),
    ],
    "/samples/search": [
        ({}, "/subject"), *(({"ids": ids}, "/ids") for ids in ([], "c1", ["c1"] * 51)), ({"ids": [{}]}, "/ids/0"),
        ({"ids": ["c1"], "limit": 3}, "/ids"),
        *(({"subject": "s1", "limit": limit}, "/limit") for limit in (0, 51, 1.0, True, [7])),
    ],
    "/subjects/export": [({"subject": "s1", "influence": MARK}, "/influence")],
    "/samples/batch-delete": [
        ({"ids": ["c5"], "list_found": 1}, "/list_found"), ({}, ""), ({"ids": ["c1"], "subjects": ["s1"]}, ""),
        ({"ids": ["c1", {MARK: 1}]}, "/ids/1"),
    ],
    "/samples/absence-proofs": [
        *((body, "") for body in ({}, {"id": "a", "subject": "b"}, {"ids": ["a"]})),
        *(({"id": name}, "/id") for name in (None, ["a"])),
    ],
    "/influence": [
        *NO_ROWS, ({**ODD, "labels": ["no", "no"]}, "/instances/1/0"), ({**ROW, "labels": ["yes", "yes"]}, "/labels"),
        ({**ROW, "labels": [7]}, "/labels/0"), ({**ROW, "method": MARK}, "/method"),
        ({**ROW, "method": "leave-one-out", "update_set": "single"}, "/method"),
        ({**ROW, "update_set": 0}, "/update_set"), ({**ROW, "top": 0}, "/top"),
    ],
    "/explain": [
        *NO_ROWS, (ODD, "/instances/1/0"),
        *(({**ROW, "change": change}, "/change") for change in (MARK, [], {MARK: 1})),
        *(({**ROW, "change": {"columns": number}}, "/change/columns") for number in (0, 3, True, 1.0, MARK, None)),
        ({**ROW, "change": {"features": "age"}}, "/change/features"),
        ({**ROW, "change": {"features": ["age", MARK]}}, "/change/features/1"),
        ({**ROW, "change": {"features": [7]}}, "/change/features/0"),
        *(({**ROW, "change": {"target": value}}, "/change/target") for value in (MARK, 7, [1], {})),
        ({"instances": ROW["instances"] * 1000, "change": {}}, "/instances"),
    ],
    "/predict/without": [
        ({"ids": ["c1"]}, "/instances"), (ROW, ""), ({**ROW, "ids": ["c1"], "subjects": ["s1"]}, ""),
        ({**ROW, "ids": []}, "/ids"), ({**ROW, "subjects": [[]]}, "/subjects/0"), ({**ROW, "ids": ["c1"], MARK: 1}, ""),
        ({**ODD, "ids": ["c1"]}, "/instances/1/0"),
        ({"instances": ROW["instances"] * 101, "ids": ["c1"]}, "/instances"),
    ],
    "/predict": [
        *NO_ROWS, ({**ROW, "receipt": MARK}, "/receipt"), ({**ROW, "by_class": True}, "/by_class"),
        ({**ROW, "receipt": True, "coverage": 0.9}, "/coverage"),
        *(({**ROW, "coverage": share}, "/coverage") for share in (0, 1, -1, "0.9", True, [0.9])),
        (predict(named(1, member=1, **{MARK: 1})), "/instances/1"),
        (predict(*GOOD_ROWS, [MARK, "a", True]), "/instances/2999/0"),
    ],
    "/predict?extra_column=ignore": [(predict(), "")],
}  # fmt: skip
QUERIES: dict[str, dict[str, str]] = {  # by where the answer points
    "GET /model/trees/0?": {
        "": "level=1", "/levels": "levels=9 levels=", "/node": f"node=x node=l&node=r node={'l' * 513}",
    },
    "GET /model/trees/": {"/n": "x -1 99999999999"},
    "GET /samples?": {
        "": f"{MARK}=1",
        "/id": "id=c1&id=c2 id=c1&subject=s1 id=c1&cursor=AAAAAAAAAAAAAAAAAAAAAA", "/id/0": "id=",
        "/limit": "id=c1&limit=0", "/cursor": f"cursor= cursor={MARK}",
        "/openings": "openings=1 openings=true&openings=true openings=true&id=c1 openings=",
    },
    "PUT /samples?": {"/id": "id=c1&id=c2 ref="},
    "DELETE /samples": {
        "": f"? ?ids=c1 ?id=%FF ?ref={CASE} ?id=c1&subject=s1", "/id/0": "?id=", "/id/1": f"?id=c1&id={MARK * 60}",
        "/ref": f"?id=c1&ref=x /c1?ref={MARK}",
    },
    "GET /erasures?": {
        "/ref": f"ref= ref={MARK} ref=a&ref=b", "": "more=1", "/status": f"status={MARK}",
        "/order": f"order={MARK} order=", "/cursor": f"cursor={MARK}", "/limit": "limit=0 limit=51",
    },
    "GET /ledger?": {"/limit": "limit=0 limit=51 limit=x", "/cursor": f"cursor={MARK} cursor=-1 cursor=1e3", "": "x=1"},
    "GET /readyz?": {"/for": f"for={MARK}"},
    "GET /events?": {"/topic": "topic=weather topic= topic=state&topic=metrics", "": "subject=metrics"},
    "GET /snapshot/file?": {"/fresh": "fresh=1 fresh=true&fresh=true fresh=", "": "new=true"},
}  # fmt: skip
CASES += [
    Bad(f"{path}: {number}", 422, pointer, body, path)
    for path, bodies in BODIES.items()
    for number, (body, pointer) in enumerate(bodies)
]
CASES += [
    Bad(f"{name} in CSV", 422, f"/{name}", {**ROW, name: value}, "/predict", headers={**JSON, "Accept": "text/csv"})
    for name, value in (("receipt", True), ("coverage", 0.9))
]
CASES += [
    Bad(start + query, 422, pointer, GOOD if start.startswith("PUT") else b"", path + query, method)
    for start, queries in QUERIES.items()
    for pointer, listed in queries.items()
    for query in listed.split()
    for method, path in [start.split()]
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with served(make_service(directory=tmp_path_factory.mktemp("bad") / "data"), max_body_bytes=100_000) as client:
        yield client


@pytest.fixture(scope="module")
def before(client: Any) -> Any:
    return state(client)


@pytest.mark.parametrize("bad", CASES, ids=lambda bad: bad.name)
def test_refused(client: Any, before: Any, bad: Bad, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        response = client.request(bad.method, bad.path, content=bad.content, headers=bad.headers)
    assert response.status_code == bad.status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == bad.status
    assert problem["type"].startswith("urn:oubli:problem:")
    assert all(problem[name] for name in ("title", "detail"))
    if bad.pointer is not None:
        assert bad.pointer in [error["pointer"] for error in problem["errors"]], problem
    elif "errors" in problem:
        assert bad.status in (409, 422)
    del response.headers["x-request-id"]  # random digits
    # The test's own HTTP client names the address that it calls.
    own = "\n".join(one.getMessage() for one in caplog.records if one.name.startswith(("httpx", "httpcore")))
    said = response.text + str(response.headers) + caplog.text.replace(own, "")
    for submitted in (MARK, MARK.lower(), "98765", "987654321", "c1", "s1"):
        assert submitted not in said, f"{submitted} was repeated: {said}"
    assert state(client) == before
    assert not client.app.state.context.service.model.holders._holds


def test_a_damaged_or_newer_snapshot_is_refused(client: Any, before: Any, newer_file: bytes) -> None:
    whole = client.get("/snapshot/file").content
    altered = whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
    for file, says in ((whole[: len(whole) // 2], ""), (altered, "checksum"), (newer_file, "upgrade oubli")):
        response = client.put("/snapshot/file", content=file)
        assert (response.status_code, response.json()["type"]) == (422, "urn:oubli:problem:unreadable-file")
        assert says in response.json()["detail"]
        assert state(client) == before


def test_a_refused_request_in_an_empty_model(tmp_path: Any) -> None:
    with served(make_service(forest(0), tmp_path / "data")) as client:
        before = state(client)
        assert client.post("/samples", json=sample(features=[MARK, "a", True])).status_code == 422
        assert state(client) == before
