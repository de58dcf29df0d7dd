"""The page that shows the API: it works without another host, and with a key."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.app.http.auth import DOCS_PATHS
from oubli.app.http.routes.docs import ASSETS
from tests.serving import Running, serving
from tests.unit.app.support import served

KEY = "0123456789abcdef-key"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


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
        assert client.get("/redoc", headers={"X-API-Key": KEY}).status_code == 404


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    rows = [f"{i % 7},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(60)]
    (folder / "data.csv").write_text("\n".join(["age,job,income", *rows]) + "\n")
    with serving("--data", "data.csv", "--target", "income", "--n-estimators", "3", cwd=folder) as running:
        yield running


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_shows_the_page_and_asks_no_other_host(server: Running, tmp_path: Path) -> None:
    """No other name is found, and whatever goes wrong in the page is in the log."""
    shown = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
            "--dump-dom",
            f"{server.url}/docs",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "/samples/batch-delete" in shown.stdout, "the operations are listed"
    assert "Failed to load" not in shown.stdout
    assert "CONSOLE" not in shown.stderr, "a request to another host fails, or is refused by the policy"
