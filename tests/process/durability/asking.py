"""Requests that `Running.ask` cannot send: with headers, with bytes, and with answers that are not JSON."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.serving import Running

T = TypeVar("T")


def fetch(
    server: Running, method: str, target: str, data: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Send a request and return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, target, data, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def send(
    server: Running, method: str, target: str, content: Any = None, *, key: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Send JSON, perhaps with an idempotency key, and return status and JSON."""
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
    data = None if content is None else json.dumps(content).encode()
    status, body = fetch(server, method, target, data, headers)
    return status, json.loads(body)


def wait_for(question: Callable[[], T | None], what: str, seconds: float = 60) -> T:
    """Ask until the answer is not None, nor false."""
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def wait_until_erased(server: Running, receipt_id: str, seconds: float = 60) -> dict[str, Any]:
    """Return a receipt as soon as it says `erased`."""

    def ask() -> dict[str, Any] | None:
        status, receipt = server.get(f"/erasures/{receipt_id}")
        assert status == 200, receipt
        return receipt if receipt["status"] == "erased" else None

    return wait_for(ask, "an erasure", seconds)
