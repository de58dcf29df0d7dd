"""A clock that is wrong: a leap expires no one until somebody has confirmed it."""

from __future__ import annotations

from tests.process.durability.asking import fetch, send, wait_for
from tests.process.durability.clocks import Clock, add_expiring
from tests.process.durability.steps import FLAGS, Plan
from tests.serving import Running, serving

DAY = 24 * 3600.0


def wait_for_pause(server: Running) -> None:
    assert "clock" in wait_for(lambda: server.get("/model")[1]["expiry_paused"], "a pause")


def test_a_leap_forward_expires_nobody_until_it_is_confirmed(begun):
    clock = Clock(begun)
    command = Plan(begun, clock=clock.path).command
    with serving(*FLAGS, cwd=begun, command=command) as server:
        add_expiring(server, "tomorrow", clock.after(DAY))
        add_expiring(server, "soon", clock.after(1.5), 1)
        wait_for(lambda: server.get("/samples/soon")[0] == 404, "an expiry")
        clock.set(3 * DAY)
        wait_for_pause(server)
        # Whatever is written down meanwhile must not make the leap true: an erasure, an export.
        assert send(server, "DELETE", "/samples/p0")[0] == 200
        assert send(server, "POST", "/snapshot", {})[0] == 201
        assert fetch(server, "GET", "/snapshot/file")[0] == 200
        assert server.get("/samples/tomorrow")[0] == 200
        server.process.kill()
    # A restart does not make the leap any truer.
    with serving(*FLAGS, cwd=begun, command=command) as server:
        wait_for_pause(server)
        assert server.get("/samples/tomorrow")[0] == 200
        assert send(server, "POST", "/expiry/confirm", {})[0] == 200
        wait_for(lambda: server.get("/samples/tomorrow")[0] == 404, "an expiry")
        assert server.get("/model")[1]["expiry_paused"] is None
