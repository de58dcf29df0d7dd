"""Who is told by webhooks and callbacks in random histories: refuses now and then, and remembers what it was told."""

import random
from collections import Counter
from datetime import UTC, datetime

from standardwebhooks import Webhook

from tests.unit.app.outgoing.receiver import ACCEPT, HANG_UP, Receiver, Request, answer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOKS, CALLBACKS = "/hooks", "/opendsr/callbacks"
_RANK = {"unlearned": 0, "overdue": 1, "erased": 2, "in_progress": 0, "completed": 1, "cancelled": 1}


class Controller:
    """The other side.

    Parameters
    ----------
    seed
        Of what is refused.

    Attributes
    ----------
    receiver
        Where requests arrive.
    refuses
        Whether some are refused.
    faults
        What should not have been told.
    told
        States by path and subject, in the order in which they were accepted.
    refs
        Case numbers by receipt.
    """

    def __init__(self, seed: int) -> None:
        self.receiver = Receiver(self._answer)
        self.refuses = True
        self.faults: list[str] = []
        self.told: dict[tuple[str, str], list[str]] = {}
        self.refs: dict[str, str | None] = {}
        self.tally: Counter[str] = Counter()
        self._draw = random.Random(seed)

    def _answer(self, request: Request) -> str:
        path = request.line.split()[1]
        fault = self._fault_of_hook(request) if path == HOOKS else self._fault_of_callback(request)
        if fault:
            self.faults.append(fault)
        content = request.content
        subject = content["data"]["id"] if path == HOOKS else content["subject_request_id"]
        state = content["data"]["status"] if path == HOOKS else content["request_status"]
        if self.refuses and self._draw.random() < 0.1:
            said = self._draw.choice([answer(500), answer(429, "Retry-After: 600"), HANG_UP, answer(307), answer(410)])
            self.tally["refused: " + said[9:12]] += 1
            return said
        states = self.told.setdefault((path, subject), [])
        if states and _RANK[states[-1]] > _RANK[state]:
            self.faults.append(f"{path} {subject}: {state} after {states}")
        states.append(state)
        self.tally[f"told: {state}"] += 1
        return ACCEPT

    def _fault_of_hook(self, request: Request) -> str | None:
        content, headers = request.content, request.headers
        if content.keys() != {"type", "data"} or content["data"].keys() != {"id", "ref", "status"}:
            return f"a webhook holds more: {content}"
        name, state = content["data"]["id"], content["data"]["status"]
        if (content["type"], headers["webhook-id"]) != (f"erasure.{state}", f"{name}-{state}"):
            return f"a webhook is named otherwise: {content}"
        if self.refs.setdefault(name, content["data"]["ref"]) != content["data"]["ref"]:
            return f"another case: {content}"
        moment = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        signed = Webhook(SECRET).sign(headers["webhook-id"], moment, request.body.decode())
        return None if headers["webhook-signature"] == signed else "a signature is wrong"

    def _fault_of_callback(self, request: Request) -> str | None:
        known = {
            *("controller_id", "expected_completion_time", "subject_request_id", "request_status", "api_version"),
            *("status_callback_url", "results_url", "results_count"),
        }
        if not request.content.keys() <= known or "x-opendsr-signature" not in request.headers:
            return f"a callback holds more, or is not signed: {request.content}"
        return None
