from __future__ import annotations

import asyncio
import logging

import pytest
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient

from oubli.app.access.keys import AccessKeys
from oubli.app.http.auth import AccessRules, known_hosts
from oubli.app.http.middleware import Middleware
from oubli.app.logs import place_of
from oubli.app.service.roles import Role
from tests.unit.app.support import JSON, make_service, served

KEY = "0123456789abcdef-key"


@pytest.fixture(scope="module")
def client():
    with served(max_body_bytes=2000, max_snapshot_bytes=3000) as client:
        yield client


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    return path


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000"])
def test_loopback_names_are_known(client, host):
    assert client.get("/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", "[::2]"])
def test_other_hosts_are_refused(client, host):
    response = client.get("/model", headers={"Host": host})
    assert response.status_code == 421
    assert response.headers["content-type"] == "application/problem+json"
    assert "evil" not in response.text


@pytest.mark.parametrize(
    "host",
    [
        "",
        "::1",
        "[::1]evil",
        "[::1",
        "::1]",
        "[::1]:x",
        "[127.0.0.1]",
        "a b",
        "u@127.0.0.1",
        "127.0.0.1:99999",
        "127.0.0.1:80:80",
        "127.0.0.1:-1",
        "127.0.0.1/",
        "127.0.0.1#",
        "evil.example, 127.0.0.1",
        "[]",
        ":80",
        "\xe9",
    ],
)
@pytest.mark.parametrize("path", ["/model", "/healthz"])
def test_malformed_hosts_are_refused(client, path, host):
    response = client.get(path, headers={"Host": host.encode("latin-1")})
    assert response.status_code == 400
    assert response.json()["type"] == "urn:oubli:problem:bad-host"


def test_two_hosts_are_refused(client):
    for hosts in (("127.0.0.1", "evil.example"), ("127.0.0.1", "127.0.0.1"), ("a", "a")):
        response = client.get("/model", headers=[("Host", host) for host in hosts])
        assert response.status_code == 400


def test_health_answers_under_any_host(client):
    assert client.get("/healthz", headers={"Host": "10.1.2.3"}).status_code == 200
    assert client.get("/readyz", headers={"Host": "10.1.2.3"}).status_code == 200


def test_hosts_can_be_added():
    with served(allowed_hosts=("oubli.example",)) as client:
        assert client.get("/model", headers={"Host": "oubli.example:80"}).status_code == 200
        assert client.get("/model", headers={"Host": "evil.example"}).status_code == 421
    with served(allowed_hosts=("*",)) as client:
        assert client.get("/model", headers={"Host": "anything.example"}).status_code == 200


def test_known_hosts():
    assert "0.0.0.0" not in known_hosts("0.0.0.0", ["a"])
    assert known_hosts("192.168.0.7", ["a"])[-2:] == ["a", "192.168.0.7"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "file://"])
def test_foreign_pages_are_refused(client, origin):
    for method, path in (("POST", "/snapshot"), ("POST", "/samples"), ("DELETE", "/samples/c1")):
        response = client.request(method, path, headers={"Origin": origin})
        assert response.status_code == 403, path


OWN = [
    ("127.0.0.1", "http://127.0.0.1"),
    ("127.0.0.1:80", "http://127.0.0.1"),
    ("127.0.0.1", "http://127.0.0.1:80"),
    ("localhost:8000", "http://LOCALHOST:8000"),
    ("[::1]:8000", "http://[0:0::1]:8000"),
]
FOREIGN = [
    ("127.0.0.1:8000", "http://127.0.0.1:8001"),
    ("127.0.0.1:8000", "http://127.0.0.1"),
    ("127.0.0.1:8000", "https://127.0.0.1:8000"),
    ("127.0.0.1:8000", "http://localhost:8000"),
    ("127.0.0.1:8000", "http://u@127.0.0.1:8000"),
    ("127.0.0.1:8000", "http://127.0.0.1:8000/"),
    ("127.0.0.1:8000", "http://127.0.0.1:8000, http://evil.example"),
    ("127.0.0.1:8000", "null"),
    ("127.0.0.1:8000", ""),
    ("127.0.0.1:8000", "http://[::1"),
    ("127.0.0.1", "ftp://127.0.0.1"),
]
CHANGING = [
    ("DELETE", "/samples/nobody"),
    ("POST", "/model/verify"),
    ("POST", "/snapshot"),
    ("POST", "/model/scrub"),
    ("POST", "/model/fit"),
    ("POST", "/expiry/confirm"),
    ("DELETE", "/cluster/nodes/three"),
    ("PUT", "/snapshot/file"),
    ("PUT", "/samples/c1"),
    ("POST", "/predict"),
    ("GET", "/snapshot/file"),
    ("DELETE", "/samples?id=nobody"),
]


@pytest.mark.parametrize(("host", "origin"), OWN)
def test_pages_of_this_server_are_not_foreign(client, host, origin):
    for more in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "cross-site"}):
        response = client.delete("/samples/nobody", headers={"Host": host, "Origin": origin, **more})
        assert response.status_code == 200


@pytest.mark.parametrize(("host", "origin"), FOREIGN)
def test_other_origins_change_nothing(client, host, origin):
    """Whatever the method, with and without a body."""
    for method, path in CHANGING:
        response = client.request(method, path, headers={"Host": host, "Origin": origin})
        assert response.status_code == 403, (method, path)
        assert response.json()["type"] == "urn:oubli:problem:foreign-origin"
    assert client.get("/model", headers={"Host": host, "Origin": origin}).status_code == 200


ASKING = (
    "/samples",
    "/samples/c1",
    "/samples?subject=s1",
    "/erasures",
    "/ledger",
    "/snapshot/file",
    "/events",
    "/jobs/1/result",
)


@pytest.mark.parametrize("path", ASKING)
def test_pages_of_other_origins_do_not_learn_what_is_held(client, path):
    """A page that may not read an answer sees whether there is one: what is held and what is not look alike."""
    for headers in (*({"Host": host, "Origin": origin} for host, origin in FOREIGN), *SITES):
        for method in ("GET", "HEAD"):
            response = client.request(method, path, headers=headers)
            assert response.status_code == 403, (method, headers)
            if method == "GET":
                assert response.json()["type"] == "urn:oubli:problem:foreign-origin"
    held, absent = (client.get(f"/samples/{name}", headers=SITES[0]) for name in ("c1", "nobody"))
    assert held.text == absent.text


SITES = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", " Cross-Site ")]


def test_pages_proofs_and_probes_are_open_to_links_from_elsewhere(client):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in (
        "/",
        "/docs",
        "/docs/page.js",
        "/healthz",
        "/readyz",
        "/ledger/keys",
        "/keys",
        "/model",
        "/metrics",
        "/openapi.json",
    ):
        assert client.get(path, headers=link).status_code == 200, path
    for path in ("/log/checkpoint", "/erasures/0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55/proof"):
        assert client.get(path, headers=link).status_code in (200, 404), path
    for site in ("none", "same-origin"):
        assert client.get("/samples/c1", headers={**link, "Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json"])
def test_pages_of_other_origins_get_no_predictions(client, kind):
    for path in ("/predict", "/v2/models/model/infer"):
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, SITES[0]):
            response = client.post(path, content=b'{"instances": []}', headers={"Content-Type": kind, **headers})
            assert response.status_code == 403, (path, headers)


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 200), ("", 200)])
def test_without_an_origin_the_site_decides(client, site, status):
    assert client.delete("/samples/nobody", headers={"Sec-Fetch-Site": site}).status_code == status
    if status == 403:
        for method, path in CHANGING:
            assert client.request(method, path, headers={"Sec-Fetch-Site": site}).status_code == 403, (method, path)


def test_any_host_is_not_any_origin():
    with served(allowed_hosts=("*",)) as client:
        for host, origin, status in (
            ("anything.example", "http://anything.example", 200),
            ("anything.example", "http://evil.example", 403),
            ("anything.example:8000", "http://anything.example", 403),
            ("anything.example", "null", 403),
        ):
            response = client.delete("/samples/nobody", headers={"Host": host, "Origin": origin})
            assert response.status_code == status, origin
        assert client.get("/model", headers={"Host": "[::1]evil"}).status_code == 400


def test_origins_can_be_added():
    with served(allowed_origins=("https://oubli.example",)) as client:
        for origin, status in (
            ("https://oubli.example", 200),
            ("https://oubli.example:443", 200),
            ("http://oubli.example", 403),
            ("https://oubli.example:8443", 403),
        ):
            assert client.delete("/samples/nobody", headers={"Origin": origin}).status_code == status, origin


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
@pytest.mark.parametrize("path", ["/samples", "/predict", "/samples/search", "/samples/batch-delete"])
def test_bodies_must_be_json(client, path, kind):
    response = client.post(path, content=b'{"samples": []}', headers={"Content-Type": kind})
    assert response.status_code == 415
    assert "application/json" in response.json()["detail"]


def test_a_body_without_a_type_is_refused(client):
    assert client.post("/samples", content=b"{}").status_code == 415


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_may_name_its_charset(client, kind):
    response = client.post("/predict", content=b'{"instances": [[1, "a", true]]}', headers={"Content-Type": kind})
    assert response.status_code == 200


def test_a_large_body_in_chunks_is_refused(client):
    def chunks():
        for _ in range(100):
            yield b" " * 100

    response = client.post("/samples", content=chunks(), headers=JSON)
    assert response.status_code == 413


def test_an_upload_has_a_limit_of_its_own(client):
    assert client.put("/snapshot/file", content=b" " * 2500).status_code == 422
    assert client.put("/snapshot/file", content=b" " * 3500).status_code == 413


def test_a_key_is_needed_when_there_is_one(key_file):
    with served(api_key_file=key_file) as client:
        wrong = [{"X-API-Key": "wrong"}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}]
        for headers in ({}, *wrong):
            response = client.get("/model", headers=headers)
            assert response.status_code == 401, headers
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert KEY not in response.text
        for headers in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}, {"Authorization": f"bearer  {KEY}"}):
            assert client.get("/model", headers=headers).status_code == 200, headers
        for path in ("/healthz", "/readyz", "/docs"):
            assert client.get(path).status_code == 200, path
        assert client.delete("/samples/c1").status_code == 401
        assert client.get("/nowhere").status_code == 401


async def _at_once() -> None:
    pass


async def _never(version: int) -> None:
    raise AssertionError(version)


def _guarded(inner) -> TestClient:
    guards = Middleware(
        inner,
        idle=make_service().model.idle,
        role=Role(),
        version=lambda: 1,
        reach=_never,
        completion=_at_once,
        rules=AccessRules(
            allowed_hosts=["127.0.0.1"],
            api_key=None,
            max_body_bytes=10,
            max_bulk_bytes=10,
            max_snapshot_bytes=10,
            access_keys=AccessKeys(None),
        ),
    )
    return TestClient(guards, base_url="http://127.0.0.1")


def test_a_mistake_of_ours_leaks_nothing(caplog):
    async def broken(scope, receive, send):
        raise RuntimeError("SECRET")

    with caplog.at_level(logging.INFO):
        response = _guarded(broken).get("/")
    assert response.status_code == 500
    assert response.json()["title"] == "The server failed"
    assert "SECRET" not in response.text + caplog.text
    assert "an internal error at test_middleware.py" in caplog.text


def test_a_client_that_goes_away_is_no_error(caplog):
    async def reading(scope, receive, send):
        raise ClientDisconnect

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"127.0.0.1")]}
    with caplog.at_level(logging.INFO):
        asyncio.run(_guarded(reading).app(scope, None, None))
    assert caplog.text == ""


def test_half_an_answer_is_cut_off(caplog):
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("SECRET")

    with pytest.raises(ConnectionAbortedError):
        _guarded(broken).get("/")
    assert "SECRET" not in caplog.text


def test_the_place_of_an_error_is_told_without_its_text():
    with pytest.raises(ValueError, match="SECRET") as caught:
        int("SECRET")
    assert place_of(caught.value).startswith("an internal error at test_middleware.py:")
    assert "SECRET" not in place_of(caught.value)
