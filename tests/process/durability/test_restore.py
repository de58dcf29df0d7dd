"""Snapshots that leave the server and come back: nothing that was erased meanwhile comes back with them."""

from __future__ import annotations

import json
from typing import Any

from tests.process.durability.asking import fetch, send, wait_for
from tests.process.durability.clients import as_json
from tests.process.durability.clocks import Clock, add_expiring
from tests.process.durability.evidence import read_ledger
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import flags, people
from tests.process.durability.reading import check_held
from tests.process.durability.steps import Plan
from tests.serving import Running, serving

PEOPLE = people()
FLAGS = flags("--erasure-deadline", "600")


def restore(server: Running, content: bytes) -> dict[str, Any]:
    headers = {"Content-Type": "application/octet-stream"}
    status, answer = fetch(server, "PUT", "/snapshot/file", content, headers)
    assert status == 200, answer
    restored: dict[str, Any] = json.loads(answer)
    assert restored["dropped"] == {"erased": 5, "rectified": 1, "expired": 1}
    return restored


def test_a_restore_drops_what_is_gone_since_and_says_how_many(begun):
    clock = Clock(begun)
    command = Plan(begun, clock=clock.path).command
    with serving(*FLAGS, cwd=begun, command=command) as server:
        add_expiring(server, "short", clock.after(1800), 5)
        assert send(server, "POST", "/snapshot", {})[0] == 201
        status, exported = fetch(server, "GET", "/snapshot/file")
        assert status == 200
        send(server, "DELETE", "/samples?subject=h0")
        send(server, "DELETE", "/samples/p9")
        content = {"features": list(PEOPLE["p11"].features), "label": "<=50K"}
        assert send(server, "PUT", "/samples/p10", content)[0] == 200
        assert send(server, "POST", "/samples", {"samples": [as_json(Sent("late", PEOPLE["p12"]))]})[0] == 201
        clock.set(3600)
        wait_for(lambda: server.get("/samples/short")[0] == 404, "an expiry")
        version = server.get("/model")[1]["model_version"]
        answer = restore(server, exported)
        assert answer["no_longer_held"] == 2  # the rectified one, whose old values must not return, and the late one
        expected = {name: one for name, one in PEOPLE.items() if name not in ("p0", "p1", "p2", "p3", "p9", "p10")}
        assert answer["model_version"] == check_held(server, expected) == version + 1
        assert any(entry["type"] == "restore" for entry in read_ledger(server))
        server.process.kill()
    with serving(*FLAGS, cwd=begun, command=command) as server:
        assert check_held(server, expected) == version + 1
        restore(server, exported)  # erased stays erased, also for a second restore of the same file
        assert check_held(server, expected) == version + 2
