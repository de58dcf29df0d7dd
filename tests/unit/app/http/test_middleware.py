from __future__ import annotations

import asyncio
import logging

import pytest
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient

from oubli.app.access.keys import AccessKeys
from oubli.app.http.auth import AccessRules
from oubli.app.http.middleware import Middleware
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
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


MALFORMED = (
    "::1 [::1]evil [::1 ::1] [::1]:x [127.0.0.1] u@127.0.0.1 127.0.0.1:99999 127.0.0.1:80:80 127.0.0.1:-1 127.0.0.1/"
)


@pytest.mark.parametrize(
    "host", ["", "a b", "evil.example, 127.0.0.1", "127.0.0.1#", "[]", ":80", "\xe9", *MALFORMED.split()]
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


ANY, NAMED = "http://anything.example", "https://oubli.example"


@pytest.mark.parametrize(
    ("settings", "host", "origin", "status"),
    [
        ({"allowed_hosts": ("oubli.example",)}, "oubli.example:80", None, 200),
        ({"allowed_hosts": ("oubli.example",)}, "evil.example", None, 421),
        ({"allowed_hosts": ("*",)}, "anything.example", None, 200),
        ({"allowed_hosts": ("*",)}, "anything.example", ANY, 200),
        ({"allowed_hosts": ("*",)}, "anything.example", "http://evil.example", 403),
        ({"allowed_hosts": ("*",)}, "anything.example:8000", ANY, 403),
        ({"allowed_hosts": ("*",)}, "[::1]evil", None, 400),
        ({"allowed_origins": (NAMED,)}, "127.0.0.1", NAMED, 200),
        ({"allowed_origins": (NAMED,)}, "127.0.0.1", f"{NAMED}:443", 200),
        ({"allowed_origins": (NAMED,)}, "127.0.0.1", "http://oubli.example", 403),
        ({"allowed_origins": (NAMED,)}, "127.0.0.1", f"{NAMED}:8443", 403),
    ],
)
def test_hosts_and_origins_can_be_added(settings, host, origin, status):
    with served(**settings) as client:
        headers = {"Host": host} if origin is None else {"Host": host, "Origin": origin}
        assert client.delete("/samples/nobody", headers=headers).status_code == status


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
    ("POST", "/model/verify"), ("POST", "/snapshot"), ("POST", "/model/scrub"), ("POST", "/model/fit"),
    ("POST", "/expiry/confirm"), ("POST", "/samples"), ("POST", "/predict"), ("POST", "/v2/models/model/infer"),
    ("PUT", "/snapshot/file"), ("PUT", "/samples/c1"), ("GET", "/snapshot/file"), ("DELETE", "/samples/nobody"),
    ("DELETE", "/cluster/nodes/three"), ("DELETE", "/samples?id=nobody"),
]  # fmt: skip


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
        assert path.startswith("/v2") or response.json()["type"] == "urn:oubli:problem:foreign-origin"
    assert client.get("/model", headers={"Host": host, "Origin": origin}).status_code == 200


ASKING = [
    "/samples",
    "/samples/c1",
    "/samples?subject=s1",
    "/erasures",
    "/ledger",
    "/snapshot/file",
    "/events",
    "/jobs/1/result",
]
OPEN = [
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
]


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
    for path in OPEN:
        assert client.get(path, headers=link).status_code == 200, path
    for path in ("/log/checkpoint", "/erasures/0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55/proof"):
        assert client.get(path, headers=link).status_code in (200, 404), path
    for site in ("none", "same-origin"):
        assert client.get("/samples/c1", headers={**link, "Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 200), ("", 200)])
def test_without_an_origin_the_site_decides(client, site, status):
    assert client.delete("/samples/nobody", headers={"Sec-Fetch-Site": site}).status_code == status
    if status == 403:
        for method, path in CHANGING:
            assert client.request(method, path, headers={"Sec-Fetch-Site": site}).status_code == 403, (method, path)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
@pytest.mark.parametrize("path", ["/samples", "/predict", "/samples/search", "/samples/batch-delete"])
def test_bodies_must_be_json(client, path, kind):
    response = client.post(path, content=b'{"samples": []}', headers={"Content-Type": kind})
    assert response.status_code == 415
    assert "application/json" in response.json()["detail"]


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


async def _never(version: int) -> None:
    raise AssertionError(version)


def _guarded(inner) -> TestClient:
    guards = Middleware(
        inner,
        idle=make_service().model.idle,
        role=Role(),
        version=lambda: 1,
        reach=_never,
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
