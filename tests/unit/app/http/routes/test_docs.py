"""The pages of the API and the console: who gets their files, with which headers, and what may not be in them."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Request, expect

import oubli.app.http
from oubli.app.errors import StopReason
from oubli.app.http.auth import DOCS_PATHS
from oubli.app.http.console_files import CONSOLE_PATHS, read_file
from oubli.app.http.routes.pages import ASSETS
from tests.serving import serving, small_table
from tests.unit.app.http.connections import KEY
from tests.unit.app.support import pick, served


def test_the_page_and_its_files_need_no_key_and_name_no_other_host(key_file: Path) -> None:
    assert frozenset(ASSETS) == DOCS_PATHS
    with served(api_key_file=key_file) as client:
        for path, (_, _, kind) in ASSETS.items():
            response = client.get(path)
            assert response.headers["content-type"].startswith(kind), path
            policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
            assert pick(policy, "default-src script-src connect-src") == ("'none'", "'self'", "'self'")
            assert not [word for part in policy.values() for word in part.split() if "/" in word or "*" in word]
            assert response.headers["x-content-type-options"] == "nosniff"
        page = client.get("/docs").text
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", page), "nothing inline"
        referred = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert {f"/{name}" for name in referred if not name.startswith("data:")} == DOCS_PATHS - {"/docs"}
        for path in ("/docs", "/docs/page.js", "/docs/page.css"):
            assert "//" not in re.sub(r"^\s*//.*$", "", client.get(path).text, flags=re.MULTILINE), path
        style = client.get("/docs/swagger-ui.css").text
        assert "@import" not in style
        assert all(url.startswith("data:") for url in re.findall(r"url\(\s*['\"]?([^)'\"]*)", style))
        assert client.get("/openapi/cluster.json").status_code == 401
        assert client.get("/redoc", headers={"X-API-Key": KEY}).status_code == 404


@pytest.mark.long
@pytest.mark.parametrize("with_key", [False, True])
def test_a_browser_sends_a_request_from_the_page_and_asks_no_other_host(browser, tmp_path, key_file, with_key):
    flags = ("--api-key-file", str(key_file)) if with_key else ()
    requests, complaints, page = list[Request](), list[str](), browser.new_page()
    page.on("request", lambda request: requests.append(request))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    with serving(*small_table(tmp_path), *flags, cwd=tmp_path) as running:
        page.goto(f"{running.url}/docs")
        if with_key:
            expect(page.locator("body")).to_contain_text("Failed to load API definition")
            page.locator("#key").fill(KEY)
            page.locator("#access button").click()
        expect(page.locator("body")).to_contain_text("/samples/batch-delete")
        operation = page.locator("#operations-predictions-predict")
        for button in ("button.opblock-summary-control", ".try-out__btn", "button.execute"):
            operation.locator(button).click()
        answer = operation.locator(".live-responses-table tbody")
        expect(answer.locator(".response-col_status").first).to_contain_text("200")
        expect(answer.locator(".highlight-code code").first).to_contain_text("model_version")
        [sent] = [request for request in requests if request.method == "POST"]
        assert sent.headers.get("authorization") == (f"Bearer {KEY}" if with_key else None)
        addresses = [request.url for request in requests if request.url.startswith("http")]
        assert {urlsplit(address).netloc for address in addresses} == {f"127.0.0.1:{running.port}"}
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
        # "Authorize" instead of the page's own field.
        page.locator(".auth-wrapper .authorize").first.click()
        assert set(page.locator(".auth-container h4 code").all_inner_texts()) == {"bearer", "apiKey"}
        assert [text for text in complaints if not (with_key and "401" in text)] == []


FOLDER = Path(oubli.app.http.__file__).parent / "console"
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
MOST_BYTES = 150_000  # of all files together, as they are sent
MOST_LINES = 300


def test_the_page_and_its_files_need_no_key_and_may_be_kept_until_they_change(key_file: Path) -> None:
    files = {file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*") if file.is_file()}
    assert {path.removeprefix("/console/") for path in CONSOLE_PATHS} == files - {"index.html"} | {"/"}
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", "": "text/html"}
    with served(api_key_file=key_file) as client:
        for path in CONSOLE_PATHS:
            response = client.get(path)
            assert response.status_code == 200, path
            assert response.headers["content-type"].startswith(types[Path(path).suffix]), path
            names = "content-security-policy x-content-type-options referrer-policy cache-control"
            assert pick(response.headers, names) == (POLICY, "nosniff", "no-referrer", "no-cache")
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
            assert client.get(path, headers={"X-API-Key": KEY}).status_code == 404, path


def test_the_banner_knows_every_reason_for_which_changes_are_stopped() -> None:
    banner = read_file("/console/elements/banner.js").content.decode()
    assert set(re.findall(r'^  "([a-z-]+)":', banner, re.MULTILINE)) == {str(reason) for reason in StopReason}


def test_all_that_a_browser_loads_is_small() -> None:
    sent = 0
    with served() as client:
        for path in CONSOLE_PATHS:
            with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as response:
                sent += sum(len(part) for part in response.iter_raw())
    assert sent < MOST_BYTES


MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
CODE = r"\beval\b|new Function|javascript:|setTimeout\(['\"`]"
STORAGE = r"localStorage|sessionStorage|indexedDB|document\.cookie|\bcaches\.|history\.(?:push|replace)State"


def test_files_are_short_name_no_other_host_make_no_markup_of_text_and_have_nothing_inline() -> None:
    for path in CONSOLE_PATHS:
        text = read_file(path).content.decode("utf-8")
        assert text.count("\n") <= MOST_LINES, path
        names = re.findall(r"\b(?:https?|wss?):[^\s\"'`)]*", text)
        assert all("www.w3.org" in name for name in names), path
        assert not re.search(f"{MARKUP}|{CODE}|{STORAGE}" if path.endswith(".js") else r"@import|url\(", text), path
    page = read_file("/").content.decode("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", page)
    referred = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert {f"/{name}" for name in referred} <= CONSOLE_PATHS
