"""Pages of other origins: what they may send and read, with and without keys."""

from __future__ import annotations

from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from oubli.app.access.keys import FILE_NAME, create_key
from oubli.app.settings import SettingsError, load_settings
from tests.unit.app.hosted import hosted
from tests.unit.app.support import JSON, make_service, samples, served

APP = "https://app.example"
KEY = "0123456789abcdef-key"


def preflight(client: Any, origin: str, method: str = "POST", headers: str = "authorization, content-type") -> Any:
    asked = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return client.options("/samples", headers=asked)


def test_a_page_that_is_named_may_change_and_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    with served(cors_origins=(APP,), api_key_file=tmp_path / "key") as client:
        asked = preflight(client, APP)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == APP
        assert "authorization" in asked.headers["access-control-allow-headers"].lower()
        page = {**JSON, "Origin": APP}
        refused = client.post("/samples", json=samples(1, "b"), headers=page)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == APP, "the page reads why"
        added = client.post("/samples", json=samples(1, "b"), headers={**page, "X-API-Key": KEY})
        assert added.status_code == 201
        assert added.headers["access-control-allow-origin"] == APP
        assert "x-request-id" in added.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize(
    ("origin", "method", "headers"),
    [
        ("https://evil.example", "POST", "content-type"),
        ("http://app.example", "POST", "content-type"),
        (APP, "PATCH", "content-type"),
        (APP, "POST", "x-forwarded-for"),
    ],
)
def test_other_pages_methods_and_headers_are_refused(origin: str, method: str, headers: str) -> None:
    with served(cors_origins=(APP,)) as client:
        refused = preflight(client, origin, method, headers)
        assert refused.status_code == 403
        assert refused.headers["content-type"] == "application/problem+json"
        assert "evil" not in refused.text


def test_any_origin_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="every web page"):
        load_settings(cors_origins="*").require_servable()
    (tmp_path / "key").write_text(KEY)
    load_settings(cors_origins="*", api_key_file=tmp_path / "key").require_servable()
    (tmp_path / "oubli-data").mkdir()
    create_key(tmp_path / "oubli-data" / FILE_NAME, name="n", scopes=("write",), expires_ms=None)
    load_settings(cors_origins="*").require_servable()


def test_any_origin_with_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    page = {**JSON, "Origin": "https://any.example", "X-API-Key": KEY}
    with served(cors_origins=("*",), api_key_file=tmp_path / "key") as client:
        assert preflight(client, "https://any.example").status_code == 200
        added = client.post("/samples", json=samples(1, "a"), headers=page)
        assert (added.status_code, added.headers["access-control-allow-origin"]) == (201, "*")
    with served(cors_origins=("*",)) as client:  # as if the last key had gone
        assert client.post("/samples", json=samples(1, "a"), headers=page).status_code == 403


def test_a_page_that_is_named_may_ask_for_samples_and_another_may_not() -> None:
    with served(cors_origins=(APP,)) as client:
        asked = client.get("/samples/c1", headers={"Origin": APP, "Sec-Fetch-Site": "cross-site"})
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == APP
        refused = client.get("/samples/c1", headers={"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"})
        assert refused.status_code == 403
        assert client.get("/samples/c1", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_no_answer_can_be_embedded_or_framed() -> None:
    """On both ways, and what is refused before it is a request."""
    with hosted(make_service()) as host:
        for method, path, body in (
            ("POST", "/predict", b'{"instances": [[1, "a", true]]}'),
            ("DELETE", "/samples/c1", None),
            ("GET", "/samples/c2", None),
            ("GET", "/samples/nobody", None),
            ("GET", "/", None),
            ("GET", "/docs", None),
            ("BAD\x00", "/", None),
        ):
            client = host.connect()
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b""))
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
