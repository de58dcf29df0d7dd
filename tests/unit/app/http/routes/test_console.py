"""The files of the console: who gets them, with which headers, and what may not be in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import oubli.app.http
from oubli.app.errors import StopReason
from oubli.app.http.console_files import CONSOLE_PATHS, read_file
from tests.unit.app.support import served

FOLDER = Path(oubli.app.http.__file__).parent / "console"
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
MOST_BYTES = 150_000  # of all files together, as they are sent
MOST_LINES = 300
SCRIPTS = sorted(path for path in CONSOLE_PATHS if path.endswith(".js"))


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_text("0123456789abcdef-key")
    return path


def test_the_page_and_its_files_need_no_key_and_may_be_kept_until_they_change(key_file: Path) -> None:
    files = {file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*") if file.is_file()}
    assert {path.removeprefix("/console/") for path in CONSOLE_PATHS} == files - {"index.html"} | {"/"}
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", "": "text/html"}
    with served(api_key_file=key_file) as client:
        for path in CONSOLE_PATHS:
            response = client.get(path)
            assert response.status_code == 200, path
            assert response.headers["content-type"].startswith(types[Path(path).suffix]), path
            assert response.headers["content-security-policy"] == POLICY
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"
            assert response.headers["cache-control"] == "no-cache"
            assert "access-control-allow-origin" not in response.headers
            tag = response.headers["etag"]
            again = client.get(path, headers={"If-None-Match": f'"another", {tag}'})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            assert again.headers["content-security-policy"] == POLICY
            assert client.get(path, headers={"If-None-Match": '"another"'}).content == response.content
            head = client.head(path)
            assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
        assert client.post("/").status_code == 405
        for path in ("/console", "/console/", "/console/index.html", "/console/../app.py", "/console/%2e%2e/app.py"):
            assert client.get(path).status_code == 401, path
            assert client.get(path, headers={"X-API-Key": "0123456789abcdef-key"}).status_code == 404, path


def test_the_banner_knows_every_reason_for_which_changes_are_stopped() -> None:
    banner = read_file("/console/elements/banner.js").content.decode()
    assert set(re.findall(r'^  "([a-z-]+)":', banner, re.MULTILINE)) == {str(reason) for reason in StopReason}


def test_all_that_a_browser_loads_is_small() -> None:
    with served() as client:
        sent = 0
        for path in CONSOLE_PATHS:
            with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as response:
                sent += sum(len(part) for part in response.iter_raw())
    assert sent < MOST_BYTES


@pytest.mark.parametrize("path", sorted(CONSOLE_PATHS))
def test_a_file_is_short_and_names_no_other_host(path: str) -> None:
    text = read_file(path).content.decode("utf-8")
    assert text.count("\n") <= MOST_LINES
    names = [name for name in re.findall(r"\b(?:https?|wss?):[^\s\"'`)]*", text) if "www.w3.org" not in name]
    assert not names
    assert not re.search(r"@import|url\(", text) or path.endswith(".js")


@pytest.mark.parametrize("path", SCRIPTS)
def test_a_script_makes_no_markup_of_text_and_keeps_nothing(path: str) -> None:
    text = read_file(path).content.decode("utf-8")
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
    code = r"\beval\b|new Function|javascript:|setTimeout\(['\"`]"
    storage = r"localStorage|sessionStorage|indexedDB|document\.cookie|\bcaches\.|history\.(?:push|replace)State"
    assert not re.search(f"{markup}|{code}|{storage}", text)


def test_the_page_has_nothing_inline() -> None:
    page = read_file("/").content.decode("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", page)
    referred = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert {f"/{name}" for name in referred} <= CONSOLE_PATHS
