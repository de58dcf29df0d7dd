"""The page that shows the API: it works without another host, and with a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oubli.app.http.auth import DOCS_PATHS
from oubli.app.http.routes.pages import ASSETS
from tests.browser import CHROMIUM, Page, browsing
from tests.serving import Running, serving
from tests.unit.app.support import served

KEY = "0123456789abcdef-key"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_text(KEY)
    return path


def test_the_page_and_its_files_need_no_key_and_name_no_other_host(key_file: Path) -> None:
    assert frozenset(ASSETS) == DOCS_PATHS
    with served(api_key_file=key_file) as client:
        for path, (_, _, kind) in ASSETS.items():
            response = client.get(path)
            assert response.status_code == 200, path
            assert response.headers["content-type"].startswith(kind)
            policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["connect-src"] == "'self'"
            assert not [word for part in policy.values() for word in part.split() if "/" in word or "*" in word]
            assert response.headers["x-content-type-options"] == "nosniff"
            assert client.post(path).status_code == 405
        page = client.get("/docs").text
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", page), "nothing inline"
        referred = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert {f"/{name}" for name in referred if not name.startswith("data:")} == DOCS_PATHS - {"/docs"}
        for path in ("/docs", "/docs/page.js", "/docs/page.css"):
            assert "//" not in re.sub(r"^\s*//.*$", "", client.get(path).text, flags=re.MULTILINE), path
        style = client.get("/docs/swagger-ui.css").text
        assert "@import" not in style
        assert all(url.startswith("data:") for url in re.findall(r"url\(\s*['\"]?([^)'\"]*)", style))
        assert client.get("/openapi.json").status_code == 401
        assert client.get("/openapi.json", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
        assert client.get("/openapi/cluster.json").status_code == 401
        assert client.get("/redoc", headers={"X-API-Key": KEY}).status_code == 404


@contextmanager
def server(folder: Path, *flags: str) -> Iterator[Running]:
    folder.mkdir()
    rows = [f"{i % 7},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(60)]
    (folder / "data.csv").write_text("\n".join(["age,job,income", *rows]) + "\n")
    with serving("--data", "data.csv", "--target", "income", "--n-estimators", "3", *flags, cwd=folder) as running:
        yield running


def execute(page: Page, operation: str) -> dict[str, Any]:
    """Have the page send a request as it proposes it, and return what it shows of the answer."""
    page.click(f"#operations-{operation} button.opblock-summary-control")
    page.click(f"#operations-{operation} .try-out__btn")
    page.click(f"#operations-{operation} button.execute")
    shown = f"document.querySelector('#operations-{operation} .live-responses-table tbody"
    status = page.wait_for(f"{shown} .response-col_status')?.innerText")
    body = page.wait_for(f"{shown} .highlight-code code')?.innerText")
    return {"status": status.split()[0], "body": body}


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("with_key", [False, True])
def test_a_browser_sends_a_request_from_the_page_and_asks_no_other_host(
    tmp_path: Path, key_file: Path, with_key: bool
) -> None:
    flags = ("--api-key-file", str(key_file)) if with_key else ()
    with server(tmp_path / "server", *flags) as running, browsing(tmp_path) as page:
        page.open(f"{running.url}/docs")
        if with_key:
            page.wait_for("document.body?.innerText.includes('Failed to load API definition')")
            assert page.answers[f"{running.url}/openapi.json"] == 401
            page.type_into("#key", KEY)
            page.click("#access button")
        page.wait_for("document.body?.innerText.includes('/samples/batch-delete')")
        if not with_key:
            assert not page.complaints
        page.picture(tmp_path / "page.png")
        answer = execute(page, "predictions-predict")
        page.picture(tmp_path / "answer.png")
        assert answer["status"] == "200", answer
        assert "model_version" in answer["body"]
        [headers] = [headers for method, address, headers in page.requests if method == "POST"]
        assert headers.get("Authorization") == (f"Bearer {KEY}" if with_key else None)
        assert {urlsplit(address).netloc for _, address, _ in page.requests if address.startswith("http")} == {
            f"127.0.0.1:{running.port}"
        }
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
        # "Authorize" instead of the page's own field.
        page.click(".auth-wrapper .authorize")
        page.picture(tmp_path / "authorize.png")
        schemes = page.evaluate("[...document.querySelectorAll('.auth-container h4 code')].map((e) => e.innerText)")
        assert schemes == ["bearer", "apiKey"]
        expected = [] if not with_key else ["401"]
        assert [text for text in page.complaints if not any(part in text for part in expected)] == []
