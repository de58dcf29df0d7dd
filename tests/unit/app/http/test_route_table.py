"""One table of routes: what a path takes, and which names in the folder of samples are no ids."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from oubli.app.http.app import REMOVED
from tests.unit.app.support import JSON, described, make_service, served

LITERALS = ("search", "batch-delete", "absence-proofs")
EVERY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with served() as client:
        added = [{"id": name, "features": [1, "a", True], "label": "yes"} for name in LITERALS]
        assert client.post("/samples", json={"samples": added}).status_code == 201
        yield client


def test_no_path_without_a_parameter_fits_another_route_and_names_of_routes_are_no_ids(client: TestClient) -> None:
    assert client.app.state.routes.names_in("/samples/") == set(LITERALS)  # type: ignore[attr-defined]
    for path, operations in described(client.app)["paths"].items():
        if "{" not in path:
            methods = {method.upper() for method in operations} | ({"HEAD"} if "get" in operations else set())
            assert set(client.app.state.routes.methods(path)) == methods  # type: ignore[attr-defined]


def test_a_refused_method_names_those_that_the_path_takes(client: TestClient) -> None:
    for path, methods in (
        *((path, "POST") for path in ("/predict", "/model/fit")),
        ("/samples", "DELETE, GET, HEAD, POST, PUT"),
        *((path, "DELETE, GET, HEAD, PUT") for path in ("/samples/c1", "/samples/search/x")),
        *((f"/samples/{name}", "POST") for name in LITERALS),
        *((f"/samples/%{ord(name[0]):x}{name[1:]}", "POST") for name in LITERALS),
        ("/samples/search%0A", "DELETE, GET, HEAD, POST, PUT"),
        *((path, "GET, HEAD") for path in ("/model", "/docs", "/openapi.json", "/events")),
        ("/snapshot", "GET, HEAD, POST"),
        ("/snapshot/file", "GET, HEAD, PUT"),
    ):
        held = client.get("/model").json()["n_samples"]
        for method in set(EVERY_METHOD) - set(methods.split(", ")):
            answer = client.request(method, path, headers=JSON)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods), method
        assert client.get("/model").json()["n_samples"] == held


def test_a_removed_route_names_what_replaces_it_and_a_slash_too_many_is_not_redirected(client: TestClient) -> None:
    routes = client.app.state.routes  # type: ignore[attr-defined]
    for path, replacement in REMOVED.items():
        assert routes.methods(path) == []
        assert routes.methods(next(word for word in replacement.split() if word[0] == "/").partition("?")[0]), path
        answer = client.get(path.replace("{id}", "c1"))
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:oubli:problem:no-such-route")
        assert replacement in answer.json()["detail"]
    assert client.get("/keys", follow_redirects=False).headers["location"] == "ledger/keys"
    assert client.get("/keys", follow_redirects=False).status_code == 308
    assert client.get("/keys").json() == client.get("/ledger/keys").json()
    before = client.get("/model").json()
    assert client.delete("/samples/", follow_redirects=False).status_code == 404
    assert client.get("/model").json() == before


def test_every_get_answers_head_with_the_same_head(client: TestClient) -> None:
    for path, operations in described(client.app)["paths"].items():
        if "get" not in operations or path == "/events":  # it has no end
            continue
        for name in ("c1", quote("a/b", safe="")) if path == "/samples/{id}" else ("c1",):
            address = path.replace("{id}", name)
            got, head = (client.request(method, address, headers={"X-Request-ID": "h"}) for method in ("GET", "HEAD"))
            assert head.status_code == got.status_code, path
            assert not head.content
            if path == "/metrics":  # it counts these requests, too
                head.headers["content-length"] = got.headers["content-length"]
            assert head.headers == got.headers, path
    assert client.head("/predict").status_code == 405
    assert client.head("/openapi.json").status_code == client.head("/docs").status_code == 200


def test_a_head_hands_nothing_out_and_waits_for_nothing(tmp_path: Path) -> None:
    with served(make_service(directory=tmp_path)) as client:
        assert client.head("/snapshot/file").status_code == client.get("/snapshot").status_code
        client.post("/snapshot")
        n_entries = len(client.get("/ledger").json()["entries"])
        head = client.head("/snapshot/file")
        assert len(client.get("/ledger").json()["entries"]) == n_entries, "no export is noted"
        got = client.get("/snapshot/file")
        assert len(client.get("/ledger").json()["entries"]) == n_entries + 1
        for name in ("content-length", "content-type", "cache-control"):
            assert head.headers[name] == got.headers[name]
        job = client.post("/model/verify").json()["id"]
        events, got = client.head(f"/jobs/{job}/events"), client.get(f"/jobs/{job}/events")
        assert (events.status_code, events.content) == (200, b"")
        assert events.headers["content-type"] == got.headers["content-type"]
        assert client.head("/jobs/nobody/events").status_code == 404
        for path in ("/events", "/events?topic=metrics"):
            assert (client.head(path).status_code, client.head(path).content) == (200, b"")
