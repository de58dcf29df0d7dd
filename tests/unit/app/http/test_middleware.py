from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.http.middleware import Middleware
from oubli.app.service.roles import Role
from oubli.app.settings import SettingsError, load_settings
from tests.unit.app.hosted import hosted
from tests.unit.app.http.connections import KEY, access_rules, make_key, request
from tests.unit.app.support import JSON, make_service, problem_of, samples, served

SETTINGS = {"max_body_bytes": 2000, "max_snapshot_bytes": 3000}
KNOWN = ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000"]
OTHERS = ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", "[::2]"]
MALFORMED = [
    "::1", "[::1]evil", "[::1", "::1]", "[::1]:x", "[127.0.0.1]", "u@127.0.0.1", "127.0.0.1:99999", "127.0.0.1:80:80",
    "127.0.0.1:-1", "127.0.0.1/", "127.0.0.1#", "evil.example, 127.0.0.1", "", "a b", "[]", ":80", "\xe9",
]  # fmt: skip


def test_loopback_names_are_known_and_other_or_malformed_hosts_refused(shared: TestClient) -> None:
    for hosts, status, of_health in ((KNOWN, 200, 200), (OTHERS, 421, 200), (MALFORMED, 400, 400)):
        for host in hosts:
            header = {"Host": host.encode("latin-1")}
            answer = shared.get("/model", headers=header)
            assert (answer.status_code, shared.get("/healthz", headers=header).status_code) == (status, of_health), host
            assert status == 200 or answer.headers["content-type"] == "application/problem+json"
            assert status != 400 or answer.json()["type"] == "urn:oubli:problem:bad-host"
            assert "evil" not in answer.text
    for twice in (("127.0.0.1", "evil.example"), ("127.0.0.1", "127.0.0.1"), ("a", "a")):
        assert shared.get("/model", headers=[("Host", host) for host in twice]).status_code == 400


ANY, NAMED = "http://anything.example", "https://oubli.example"


def test_hosts_and_origins_can_be_added() -> None:
    settings: dict[str, Any]
    for settings, asked in (
        ({"allowed_hosts": ("oubli.example",)}, [("oubli.example:80", None, 200), ("evil.example", None, 421)]),
        ({"allowed_hosts": ("*",)}, [
            ("anything.example", None, 200), ("anything.example", ANY, 200), ("[::1]evil", None, 400),
            ("anything.example", "http://evil.example", 403), ("anything.example:8000", ANY, 403),
        ]),
        ({"allowed_origins": (NAMED,)}, [
            *(("127.0.0.1", origin, 200) for origin in (NAMED, f"{NAMED}:443")),
            *(("127.0.0.1", origin, 403) for origin in ("http://oubli.example", f"{NAMED}:8443")),
        ]),
    ):  # fmt: skip
        with served(**settings) as client:
            for host, origin, status in asked:
                headers = {"Host": host} if origin is None else {"Host": host, "Origin": origin}
                assert client.delete("/samples/nobody", headers=headers).status_code == status, headers


OWN = [
    ("127.0.0.1", "http://127.0.0.1"), ("127.0.0.1:80", "http://127.0.0.1"), ("127.0.0.1", "http://127.0.0.1:80"),
    ("localhost:8000", "http://LOCALHOST:8000"), ("[::1]:8000", "http://[0:0::1]:8000"),
]  # fmt: skip
FOREIGN = [
    "http://127.0.0.1:8001", "http://127.0.0.1", "https://127.0.0.1:8000", "http://localhost:8000",
    "http://u@127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000, http://evil.example", "null", "",
    "http://[::1",
]  # fmt: skip
CHANGING = [
    ("POST", "/model/verify"), ("POST", "/snapshot"), ("POST", "/model/scrub"), ("POST", "/model/fit"),
    ("POST", "/expiry/confirm"), ("POST", "/samples"), ("POST", "/predict"), ("POST", "/v2/models/model/infer"),
    ("PUT", "/snapshot/file"), ("PUT", "/samples/c1"), ("GET", "/snapshot/file"), ("DELETE", "/samples/nobody"),
    ("DELETE", "/cluster/nodes/three"), ("DELETE", "/samples?id=nobody"),
]  # fmt: skip


# Without an origin the site decides.
SITES = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", " Cross-Site ")]
REFUSED = [{"Host": "127.0.0.1:8000", "Origin": origin} for origin in FOREIGN]
REFUSED += [{"Host": "127.0.0.1", "Origin": "ftp://127.0.0.1"}, *SITES]


def test_pages_of_this_server_are_not_foreign_and_other_origins_change_nothing(shared: TestClient) -> None:
    for host, origin in OWN:
        for more in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "cross-site"}):
            response = shared.delete("/samples/nobody", headers={"Host": host, "Origin": origin, **more})
            assert response.status_code == 200
    for site in ("none", ""):
        assert shared.delete("/samples/nobody", headers={"Sec-Fetch-Site": site}).status_code == 200
    for headers in REFUSED:  # whatever the method, with and without a body
        for method, path in CHANGING:
            response = shared.request(method, path, headers=headers)
            assert response.status_code == 403, (method, path)
            assert path.startswith("/v2") or problem_of(response) == (403, "foreign-origin")
        assert shared.get("/model", headers=headers).status_code == 200


ASKING = [
    "/samples", "/samples/c1", "/samples?subject=s1", "/erasures", "/ledger", "/snapshot/file", "/events",
    "/jobs/1/result",
]  # fmt: skip
OPEN = [
    "/", "/docs", "/docs/page.js", "/healthz", "/readyz", "/ledger/keys", "/keys", "/model", "/metrics",
    "/openapi.json", "/log/checkpoint",
]  # fmt: skip


def test_pages_of_other_origins_do_not_learn_what_is_held(shared: TestClient) -> None:
    """A page that may not read an answer sees whether there is one: what is held and what is not look alike."""
    for path in ASKING:
        for headers in REFUSED:
            assert shared.head(path, headers=headers).status_code == 403, headers
            assert problem_of(shared.get(path, headers=headers)) == (403, "foreign-origin"), headers
        held, absent = (shared.get(f"/samples/{name}", headers=SITES[0]) for name in ("c1", "nobody"))
        assert held.text == absent.text


def test_pages_proofs_and_probes_are_open_to_links_from_elsewhere(shared: TestClient) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in (*OPEN, "/erasures/0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55/proof"):
        assert shared.get(path, headers=link).status_code == (404 if "erasures" in path else 200), path
    for site in ("none", "same-origin"):
        assert shared.get("/samples/c1", headers={**link, "Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
def test_bodies_must_be_json(shared: TestClient, kind: str) -> None:
    for path in ("/samples", "/samples/search"):  # one takes tables as well
        response = shared.post(path, content=b'{"samples": []}', headers={"Content-Type": kind})
        assert response.status_code == 415
        assert "application/json" in response.json()["detail"]


def test_a_large_body_in_chunks_is_refused_and_an_upload_has_a_limit_of_its_own(shared: TestClient) -> None:
    assert shared.post("/samples", content=iter([b" " * 100] * 100), headers=JSON).status_code == 413
    assert shared.put("/snapshot/file", content=b" " * 2500).status_code == 422
    assert shared.put("/snapshot/file", content=b" " * 3500).status_code == 413


def test_half_an_answer_is_cut_off(caplog):
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("SECRET")

    unused = dict.fromkeys(("version", "reach", "completion"))
    guards = Middleware(broken, idle=make_service().model.idle, rules=access_rules(), role=Role(), **unused)
    with pytest.raises(ConnectionAbortedError):
        TestClient(guards, base_url="http://127.0.0.1").get("/")
    assert "SECRET" not in caplog.text


APP = "https://app.example"


def preflight(client: Any, origin: str, method: str = "POST", headers: str = "authorization, content-type") -> Any:
    asked = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return client.options("/samples", headers=asked)


def allowed(answer: Any) -> tuple[int, str]:
    """The status of an answer, and the origin that may read it."""
    return answer.status_code, answer.headers["access-control-allow-origin"]


def test_a_page_that_is_named_may_change_and_read_and_another_may_not(key_file: Path) -> None:
    with served(cors_origins=(APP,), api_key_file=key_file) as client:
        asked = preflight(client, APP)
        assert allowed(asked) == (200, APP)
        assert "authorization" in asked.headers["access-control-allow-headers"].lower()
        page = {**JSON, "Origin": APP}
        refused = client.post("/samples", json=samples(1, "b"), headers=page)
        assert allowed(refused) == (401, APP), "the page reads why"
        added = client.post("/samples", json=samples(1, "b"), headers={**page, "X-API-Key": KEY})
        assert allowed(added) == (201, APP)
        assert "x-request-id" in added.headers["access-control-expose-headers"].lower()
        for origin, method, headers in (
            *((origin, "POST", "content-type") for origin in ("https://evil.example", "http://app.example")),
            *((APP, "PATCH", "content-type"), (APP, "POST", "x-forwarded-for")),
        ):
            refused = preflight(client, origin, method, headers)
            assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
            assert "evil" not in refused.text
        asking = {"Sec-Fetch-Site": "cross-site", "X-API-Key": KEY}
        for sent, status in (({"Origin": APP}, 200), ({"Origin": "https://evil.example"}, 403), ({}, 403)):
            answer = client.get("/samples/c1", headers={**asking, **sent})
            assert answer.status_code == status
            assert status == 403 or allowed(answer) == (200, APP)


def test_any_origin_needs_a_key(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="every web page"):
        load_settings(cors_origins="*").require_servable()
    load_settings(cors_origins="*", api_key_file=key_file).require_servable()
    page = {**JSON, "Origin": "https://any.example", "X-API-Key": KEY}
    with served(cors_origins=("*",), api_key_file=key_file) as client:
        assert preflight(client, "https://any.example").status_code == 200
        assert allowed(client.post("/samples", json=samples(1, "a"), headers=page)) == (201, "*")
    with served(cors_origins=("*",)) as client:  # as if the last key had gone
        assert client.post("/samples", json=samples(1, "a"), headers=page).status_code == 403
    (tmp_path / "oubli-data").mkdir()
    make_key(tmp_path / "oubli-data", "write")
    load_settings(cors_origins="*").require_servable()


def test_no_answer_can_be_embedded_or_framed() -> None:
    """On both ways, and what is refused before it is a request."""
    with hosted(make_service()) as host:
        for method, path, body in (
            ("POST", "/predict", b'{"instances": [[1, "a", true]]}'),
            *(("GET", path, b"") for path in ("/samples/c2", "/samples/nobody", "/", "/docs")),
            *(("DELETE", "/samples/c1", b""), ("BAD\x00", "/", b"")),
        ):
            client = host.connect()
            client.sendall(request(method, path, body))
            answer = HTTPResponse(client)
            answer.begin()
            assert answer.headers.get_all("Cross-Origin-Resource-Policy") == ["same-origin"], path
            assert answer.headers.get_all("X-Frame-Options") == ["DENY"], path
            client.close()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_trusted_proxy_says_that_the_client_used_tls(trusted: bool) -> None:
    """The page's origin is https, as its own server's; the proxy speaks HTTP with this one."""
    settings: dict[str, Any] = {"trusted_proxies": ("10.0.0.0/8",) if trusted else ()}
    with served(client_address=("10.1.2.3", 50_000), allowed_hosts=("oubli.example",), **settings) as client:
        headers = {**JSON, "Host": "oubli.example", "Origin": "https://oubli.example", "X-Forwarded-Proto": "https"}
        added = client.post("/samples", json=samples(1, "p"), headers=headers)
        assert added.status_code == (201 if trusted else 403)


ROW = {"instances": [[1, "a", True]]}


def test_a_version_that_is_served_is_answered_and_a_later_one_and_what_is_none_are_refused(shared: TestClient) -> None:
    seen = shared.post("/samples", json=samples(1)).json()["model_version"]
    for method, path, body in (("POST", "/predict", ROW), ("GET", "/model", None), ("GET", "/samples/n0", None)):
        answer = shared.request(method, path, json=body, headers={"Min-Version": str(seen)})
        assert (answer.status_code, answer.json()["model_version"]) == (200, seen)
        refused = shared.request(method, path, json=body, headers={"Min-Version": str(seen + 1)})
        assert problem_of(refused) == (503, "behind")
        assert int(refused.headers["Retry-After"]) > 0
    before = shared.get("/model").json()
    assert shared.post("/samples", json=samples(1, "later"), headers={"Min-Version": "99"}).status_code == 503
    assert shared.get("/model").json() == before
    assert all(shared.get(path, headers={"Min-Version": "99"}).is_success for path in ("/healthz", "/readyz"))
    for text in ("", "-1", "1.5", "x", "9" * 16, "+1"):
        answer = shared.post("/predict", json=ROW, headers={"Min-Version": text})
        assert answer.status_code == 400
        assert "'Min-Version' must be a model version" in answer.json()["detail"]
        assert len(text) < 2 or text not in answer.text
