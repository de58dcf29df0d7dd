"""Snapshots that leave the server and come back: nothing that was erased meanwhile comes back with them."""

from __future__ import annotations

import json
from typing import Any

from tests.process.durability.asking import fetch, send, wait_for
from tests.process.durability.clients import as_json
from tests.process.durability.clocks import Clock, add_expiring
from tests.process.durability.evidence import check_receipt, public_keys, read_ledger
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import flags, people
from tests.process.durability.reading import fresh_digest, live_digest, read_held, read_schema
from tests.process.durability.steps import Plan
from tests.serving import Running, serving

PEOPLE = people()


def download(server: Running) -> bytes:
    assert send(server, "POST", "/snapshot", {})[0] == 201
    status, content = fetch(server, "GET", "/snapshot/file")
    assert status == 200
    return content


def restore(server: Running, content: bytes) -> dict[str, Any]:
    headers = {"Content-Type": "application/octet-stream"}
    status, answer = fetch(server, "PUT", "/snapshot/file", content, headers)
    assert status == 200, answer
    return dict(json.loads(answer))


def test_a_restore_drops_what_is_gone_since_and_says_how_many(begun):
    clock = Clock(begun)
    command = Plan(begun, clock=clock.path).command
    with serving(*flags("--erasure-deadline", "600"), cwd=begun, command=command) as server:
        add_expiring(server, "short", clock.after(1800), 5)
        exported = download(server)
        send(server, "DELETE", "/samples?subject=h0")
        send(server, "DELETE", "/samples/p9")
        content = {"features": list(PEOPLE["p11"].features), "label": "<=50K"}
        assert send(server, "PUT", "/samples/p10", content)[0] == 200
        assert send(server, "POST", "/samples", {"samples": [as_json(Sent("late", PEOPLE["p12"]))]})[0] == 201
        clock.set(3600)
        wait_for(lambda: server.get("/samples/short")[0] == 404, "an expiry")
        version = server.get("/model")[1]["model_version"]
        answer = restore(server, exported)
        assert answer["dropped"] == {"erased": 5, "rectified": 1, "expired": 1}
        assert answer["no_longer_held"] == 2  # the rectified one, whose old values must not return, and the late one
        assert answer["model_version"] == version + 1
        expected = {name: one for name, one in PEOPLE.items() if name not in ("p0", "p1", "p2", "p3", "p9", "p10")}
        check_held(server, expected, version + 1)
        assert any(entry["type"] == "restore" for entry in read_ledger(server))
        server.process.kill()
    with serving(*flags("--erasure-deadline", "600"), cwd=begun, command=command) as server:
        check_held(server, expected, version + 1)
        # Erased stays erased, also for a second restore of the same file.
        again = restore(server, exported)
        assert again["dropped"] == {"erased": 5, "rectified": 1, "expired": 1}
        check_held(server, expected, version + 2)


def check_held(server: Running, expected: dict[str, Any], version: int) -> None:
    held, now = read_held(server)
    assert held == expected
    assert now == version
    assert live_digest(server, by_snapshot=True) == fresh_digest(read_schema(server), held)


def test_receipts_count_the_snapshots_that_were_handed_out(begun):
    with serving(*flags(), cwd=begun) as server:
        before = send(server, "DELETE", "/samples/p0")[1]
        assert before["exported_snapshots"] == 0
        download(server)
        download(server)
        assert send(server, "POST", "/samples", {"samples": [as_json(Sent("late", PEOPLE["p12"]))]})[0] == 201
        early, late = (send(server, "DELETE", f"/samples/{name}")[1] for name in ("p1", "late"))
        assert (early["exported_snapshots"], late["exported_snapshots"]) == (2, 0)
        server.process.kill()
    with serving(*flags(), cwd=begun) as server:
        keys = public_keys(server)
        after = send(server, "DELETE", "/samples/p2")[1]
        assert after["exported_snapshots"] == 2
        check_receipt(after, keys)
