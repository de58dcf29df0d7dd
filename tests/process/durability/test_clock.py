"""Clocks that are wrong: time never runs back, and a leap expires no one until somebody has confirmed it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.asking import fetch, send, wait_for
from tests.process.durability.clocks import Clock, add_expiring, expiring
from tests.process.durability.evidence import check_chain, check_receipt, public_keys, read_ledger
from tests.process.durability.steps import FLAGS, Plan
from tests.serving import Running, serving

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def clock(begun: Path) -> Clock:
    return Clock(begun)


@contextmanager
def served(begun: Path, clock: Clock, *more: str) -> Iterator[Running]:
    with serving(*FLAGS, *more, cwd=begun, command=Plan(begun, clock=clock.path).command) as server:
        yield server


def is_held(server: Running, name: str) -> bool:
    return server.get(f"/samples/{name}")[0] == 200


def expired(server: Running, name: str) -> None:
    wait_for(lambda: not is_held(server, name), "an expiry")


def paused(server: Running) -> str:
    return wait_for(lambda: server.get("/model")[1]["expiry_paused"], "a pause")


def test_samples_expire_by_themselves_with_a_receipt(begun, clock):
    with served(begun, clock) as server:
        add_expiring(server, "soon", clock.after(1.5))
        add_expiring(server, "late", clock.after(HOUR), 1)
        version = server.get("/model")[1]["model_version"]
        expired(server, "soon")
        assert is_held(server, "late")
        assert server.get("/model")[1]["model_version"] == version + 1
        entries = read_ledger(server)
        check_chain(entries)
        (entry,) = [one for one in entries if one.get("kind") == "expiry"]
        receipt = server.get(f"/erasures/{entry['receipt']}")[1]
        assert (receipt["kind"], receipt["unlearned"]) == ("expiry", 1)
        check_receipt(receipt, public_keys(server))


def test_a_leap_forward_expires_nobody_until_it_is_confirmed(begun, clock):
    with served(begun, clock) as server:
        add_expiring(server, "tomorrow", clock.after(DAY))
        clock.set(3 * DAY)
        assert "clock" in paused(server)
        time.sleep(1.2)  # time enough for two looks at what is due
        assert is_held(server, "tomorrow")
        # Whatever is written down meanwhile must not make the leap true: an erasure, an export.
        erase(server, "p0")
        assert send(server, "POST", "/snapshot", {})[0] == 201
        assert fetch(server, "GET", "/snapshot/file")[0] == 200
        server.process.kill()
    # A restart does not make the leap any truer.
    with served(begun, clock) as server:
        assert "clock" in paused(server)
        assert is_held(server, "tomorrow")
        assert send(server, "POST", "/expiry/confirm", {})[0] == 200
        expired(server, "tomorrow")
        assert server.get("/model")[1]["expiry_paused"] is None


@pytest.mark.long
def test_time_never_runs_back(begun, clock):
    with served(begun, clock) as server:
        first = erase(server, "p0")
        clock.set(-2 * DAY)
        second = erase(server, "p1")
        server.process.kill()
    with served(begun, clock) as server:
        third = erase(server, "p2")
        times = [one["unlearned_at"] for one in (first, second, third)]
        assert times == sorted(times)
        entries = read_ledger(server)
        written = [entry["at"] for entry in entries]
        assert written == sorted(written)
        # What is over by the time that was written down is over, whatever the clock says now.
        status, _ = send(server, "POST", "/samples", {"samples": [expiring("past", clock.after(DAY))]})
        assert status == 422


def erase(server: Running, name: str) -> dict[str, Any]:
    status, receipt = send(server, "DELETE", f"/samples/{name}")
    assert status == 200
    return receipt
