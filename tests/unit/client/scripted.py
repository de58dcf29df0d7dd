"""A transport that answers by a script and only notes how long it was asked to wait: flows without I/O."""

import json
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from oubli.client import NoAnswerError
from oubli.client.messages import Answer, Close, Emit, NextEvent, Request, Send, Sleep, Work
from oubli.client.session import Retries, Servers, Session

READ = Request("GET", "/model", is_safe=True)
KEYED = Request("POST", "/samples", body=b"{}", takes_key=True)
CHANGE = Request("POST", "/snapshot", body=b"{}")
LOST = NoAnswerError("lost", may_have_been_applied=True)
REFUSED = NoAnswerError("refused", may_have_been_applied=False)
PROXY = Answer(502, {"content-type": "text/html"}, b"<html>")


def answer(status: int, content: Any = None, **headers: str) -> Answer:
    """An answer in JSON."""
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, lines, json.dumps(content).encode())


OK = answer(200, {"model_version": 3})


def problem(status: int, kind: str, *, members: dict[str, Any] | None = None, **headers: str) -> Answer:
    """A refusal of a server of Oubli."""
    content = {"type": f"urn:oubli:problem:{kind}", "title": "T", "status": status, "detail": "D.", **(members or {})}
    return answer(status, content, **headers)


def not_leader(leader: str | None) -> Answer:
    """What a follower answers to a change."""
    members = {"leader": leader}
    if leader is None:
        return problem(503, "not-leader", members=members, retry_after="1")
    return problem(307, "not-leader", members=members, location=f"{leader}/samples")


def stream(*events: Any) -> Answer:
    """A stream of events; an exception is raised in its place."""
    return Answer(200, {"content-type": "text/event-stream; charset=utf-8"}, stream=iter(events))


def receipt(**changed: Any) -> dict[str, Any]:
    """A receipt of an earlier version, as it is sent."""
    return {
        **dict.fromkeys(("id", "kind", "guarantee", "key_id", "signature", "ledger_head"), "x"),
        **dict.fromkeys(("requested", "unlearned", "exported_snapshots", "model_version", "ledger_index"), 1),
        **dict.fromkeys(("received_at", "unlearned_at"), "2030-01-31T12:00:00Z"),
        **dict.fromkeys(("ref", "erased_at")), "status": "unlearned", "absent": 0, "overdue": False, "durable": True,
        **changed,
    }  # fmt: skip


class HalfOfIt:
    """Draws the middle of every range."""

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


def session(retries: Retries | None = None, servers: Servers | None = None) -> Session:
    """A session that draws the middle of every range, and whose time stands still."""
    made = Session(Retries() if retries is None else retries, servers=Servers() if servers is None else servers)
    made.draw = HalfOfIt()  # type: ignore[assignment]
    made.now = lambda: 0.0
    return made


class Scripted:
    """Carries out flows.

    Attributes
    ----------
    sent, asked, slept, emitted
        Requests, the servers that they went to, seconds and items, in order.
    result
        What a flow has returned, of `ran`.
    """

    def __init__(self, *script: Answer | Exception) -> None:
        self._script = list(script)
        self.sent: list[Request] = []
        self.asked: list[str | None] = []
        self.slept: list[float] = []
        self.emitted: list[Any] = []
        self.closed = 0
        self.result: Any = None

    def run(self, flow: Any) -> Any:
        given: Any = None
        error: Exception | None = None
        while True:
            try:
                step = flow.send(given) if error is None else flow.throw(error)
            except StopIteration as end:
                assert not self._script, "not all of the script was asked for"
                return end.value
            given = error = None
            try:
                given = self.take(step)
            except Exception as failure:
                error = failure

    def take(self, step: Any) -> Any:
        """Carry out a step."""
        match step:
            case Send(request, server):
                self.sent.append(request)
                self.asked.append(server)
                return raised(self._script.pop(0))
            case Sleep(seconds):
                return self.slept.append(seconds)
            case NextEvent(events):
                return raised(next(events, None))
            case Close():
                self.closed += 1
                return None
            case Work(function):
                return function()
            case Emit(item):
                return self.emitted.append(item)
        raise AssertionError(step)


def ran(flow: Any, *script: Answer | Exception, error: type[Exception] | None = None) -> Scripted:
    """Carry out a flow by a script; return what has come of it. It ends with an error if one is given."""
    made = Scripted(*script)
    with pytest.raises(error) if error else nullcontext():
        made.result = made.run(flow)
    return made


def raised(found: Any) -> Any:
    """Raise an exception, return anything else."""
    if isinstance(found, Exception):
        raise found
    return found


def keys_of(requests: Iterable[Request]) -> list[str | None]:
    """The idempotency keys of requests."""
    return [request.headers.get("Idempotency-Key") for request in requests]
