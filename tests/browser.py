"""A headless Chromium for tests, spoken to over a pipe in the DevTools protocol: no driver and no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--window-size=1280,1600",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
_SECONDS = 90


class Page:
    """One page.

    Attributes
    ----------
    requests
        Method, address and headers of each request that it has made.
    answers
        Status by address.
    complaints
        What went wrong in it: errors of scripts, and what its policy has refused.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.answers: dict[str, int] = {}
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, address: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + _SECONDS
        while not (value := self.evaluate(script)):
            assert time.monotonic() < deadline, f"never true: {script}\n{self.complaints}"
            time.sleep(0.05)
        return value

    def type_into(self, selector: str, text: str) -> None:
        """Write into a field as a person does, so that scripts notice."""
        self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on an element as soon as it is there."""
        self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path: Path) -> None:
        """Write what it looks like as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._reading, 2**16)
            assert data, "the browser has ended"
            self._unread += data
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, content: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSent":
                sent = content["request"]
                self.requests.append((sent["method"], sent["url"], sent["headers"]))
            case "Network.responseReceived":
                self.answers[content["response"]["url"]] = content["response"]["status"]
            case "Runtime.exceptionThrown":
                self.complaints.append(str(content["exceptionDetails"]))
            case "Log.entryAdded" if content["entry"]["level"] == "error":
                self.complaints.append(content["entry"]["text"])


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """Have a page until the end of the block; no name but 127.0.0.1 is found."""
    assert CHROMIUM is not None
    their_reading, our_writing = os.pipe()
    our_reading, their_writing = os.pipe()
    words = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder / 'profile'}"]
    # It takes commands from descriptor 3 and answers on 4.
    shell = f'exec "$@" 3<&{their_reading} 4>&{their_writing}'
    with (folder / "chromium.txt").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words], pass_fds=(their_reading, their_writing), stdout=log, stderr=log
        )
    os.close(their_reading)
    os.close(their_writing)
    try:
        yield Page(our_reading, our_writing)
    finally:
        os.close(our_writing)  # it ends when no one can speak to it any more
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(our_reading)
