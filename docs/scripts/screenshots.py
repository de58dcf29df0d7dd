"""Take pictures of the console in Chromium, from a real server with the example data.

    python docs/scripts/screenshots.py            all views, light and dark, wide and narrow, into build/screenshots
    python docs/scripts/screenshots.py --readme   also those that the README shows, into docs/images

Needs Playwright and Debian's Chromium. The server listens on this computer only, with its own directory.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import http.client
import itertools
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "adult.csv.gz"
EVERYTHING = ROOT / "build" / "screenshots"
IMAGES = ROOT / "docs" / "images"
THEMES = ("light", "dark")
WIDTHS = {"wide": (1440, 900), "narrow": (360, 780)}
README = {"now": "light", "erasures": "light", "model": "dark"}
"""What the README shows, and in which theme."""
LARGEST = 200_000
SAMPLES = 12_000
SEED = 3
Shoot = Callable[[Page], None]


def write_data(path: Path) -> list[list[str]]:
    """Write the first rows of the example, with ids and with the people that they are about; return some of them."""
    with gzip.open(EXAMPLE, "rt", newline="") as source, path.open("w", newline="") as file:
        reader, writer = csv.reader(source), csv.writer(file)
        writer.writerow(["id", "person", *next(reader)])
        rows = [[f"s-{i:05}", f"person-{i // 3:05}", *row] for i, row in enumerate(itertools.islice(reader, SAMPLES))]
        writer.writerows(rows)
    return rows


@contextmanager
def serving(folder: Path, data: Path) -> Iterator[int]:
    """Serve the data until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    words = ["serve", "--data", str(data), "--target", "income", "--id", "id", "--subject", "person"]
    command = [sys.executable, "-m", "oubli", *words, "--data-dir", str(folder / "data"), "--port", str(port)]
    with (folder / "server.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)  # noqa: S603
    try:
        while True:
            if process.poll() is not None:
                raise SystemExit((folder / "server.txt").read_text())
            try:
                if ask(port, "GET", "/readyz")[0] == 200:
                    break
            except OSError:
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request and return status and JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def live(port: int, rows: list[list[str]], end: threading.Event) -> None:
    """Predict, add and erase now and then, as callers do, until an event is set."""
    draw = random.Random(SEED)  # noqa: S311
    features = [row["features"] for row in ask(port, "GET", "/samples?limit=100")[1]["samples"]]
    for turn in itertools.count():
        if end.wait(0.015):
            return
        ask(port, "POST", "/predict", {"instances": [draw.choice(features)]})
        if turn % 30 == 0:
            new = {"features": draw.choice(features), "label": draw.choice(["<=50K", ">50K"])}
            ask(port, "POST", "/samples", {"samples": [new]})
        if turn % 100 == 50:
            ask(port, "POST", "/samples/batch-delete", {"ids": [draw.choice(rows)[0]]})


def prepare(port: int, rows: list[list[str]]) -> None:
    """Make receipts, entries of the ledger and a checked model."""
    draw = random.Random(SEED + 1)  # noqa: S311
    for _ in range(9):
        people = [row[1] for row in draw.sample(rows, draw.randint(1, 3))]
        case = uuid.UUID(int=draw.getrandbits(128), version=4)
        ask(port, "POST", "/samples/batch-delete", {"subjects": people, "ref": str(case)})
    finish(port, ask(port, "POST", "/model/scrub", {})[1])
    finish(port, ask(port, "POST", "/model/verify", {})[1])


def finish(port: int, job: dict[str, Any]) -> None:
    """Wait until a job has ended."""
    while job["status"] in ("queued", "running"):
        time.sleep(0.2)
        job = ask(port, "GET", f"/jobs/{job['id']}")[1]


def show_now(page: Page) -> None:
    """Let the lines of the last seconds grow."""
    page.wait_for_timeout(12_000)


def show_predict(page: Page) -> None:
    """Leave the view as it begins: with a real row and its prediction."""
    page.wait_for_timeout(2_500)


def show_samples(page: Page) -> None:
    """Leave the view as it begins."""
    page.wait_for_timeout(1_500)


def show_erasures(page: Page) -> None:
    """Check all receipts, and open one."""
    page.get_by_role("button", name="Check all listed receipts").click()
    page.wait_for_selector("text=/right$/")
    page.wait_for_selector("[aria-busy=true]", state="detached")
    page.locator("tbody tr", has_text="Erased").last.get_by_role("button").click()
    page.wait_for_selector(".erasures-verdict.erasures-ok")
    page.wait_for_timeout(300)


def show_model(page: Page) -> None:
    """Open one more node of the tree."""
    page.wait_for_selector("[role=treeitem]")
    closed = page.locator("[role=treeitem][aria-expanded=false]")
    closed.first.click()
    page.wait_for_timeout(800)


def show_ledger(page: Page) -> None:
    """Check the whole chain."""
    page.get_by_role("button", name="Check all entries").click()
    page.wait_for_selector("text=are unchanged and follow each other")


VIEWS: dict[str, Shoot] = {
    "now": show_now,
    "predict": show_predict,
    "samples": show_samples,
    "erasures": show_erasures,
    "model": show_model,
    "ledger": show_ledger,
}


def take(browser: Browser, address: str, names: list[str], *, for_readme: bool) -> None:
    """Take pictures of some views."""
    for (size, (width, height)), theme in itertools.product(WIDTHS.items(), THEMES):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
        page = context.new_page()
        for name in names:
            page.goto(f"{address}/#{name}")
            page.reload()
            page.wait_for_selector(f"view-{name} h1")
            VIEWS[name](page)
            page.evaluate("document.activeElement?.blur()")
            page.screenshot(path=EVERYTHING / f"{name}-{theme}-{size}.png", full_page=True)
            if for_readme and size == "wide" and README.get(name) == theme:
                take_for_readme(page, name)
        context.close()


def take_for_readme(page: Page, name: str) -> None:
    """Take the picture that the README shows: what stands in the window."""
    path = IMAGES / f"console-{name}.png"
    page.evaluate("scrollTo(0, 0)")
    if name == "model":
        page.locator("section", has=page.locator("model-tree")).scroll_into_view_if_needed()
    page.screenshot(path=path)
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"{path} is larger than {LARGEST} bytes: make the picture simpler")


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("views", nargs="*", default=[*VIEWS], help="only these")
    parser.add_argument("--readme", action="store_true", help="also write docs/images")
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not installed: run `apt-get install chromium`")
    EVERYTHING.mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_data(folder / "people.csv")
        with serving(folder, folder / "people.csv") as port, sync_playwright() as playwright:
            prepare(port, rows)
            end = threading.Event()
            callers = threading.Thread(target=live, args=(port, rows, end), daemon=True)
            callers.start()
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, f"http://127.0.0.1:{port}", asked.views, for_readme=asked.readme)
            browser.close()
            end.set()
            callers.join()
    print(f"The pictures are in {EVERYTHING}.")


if __name__ == "__main__":
    main()
