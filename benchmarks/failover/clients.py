"""Clients that change a cluster all the time, repeat what was not answered, and note what was."""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.failover.nodes import Node

_REST = 0.01  # seconds between two requests: the servers share two cores with all else
_PAUSE = 0.05  # seconds before a request is sent again
_IMPOSSIBLE = frozenset({404, 409})
_DONE = frozenset({200, 201}) | _IMPOSSIBLE


@dataclass
class Change:
    """A change that was asked for, and its answer."""

    kind: str  # add or delete
    id: str
    sent_at: float
    features: list[float] | None = None
    asked_at: float = 0.0  # when it was sent, or repeated, last
    answered_at: float | None = None
    by: str = ""  # name of the node that has answered
    status: int = 0
    version: int = 0  # that the change has made; 0 where it has changed nothing
    receipt: str | None = None


@dataclass
class Notes:
    """What all clients have noted."""

    changes: list[Change] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)  # answers from an older model than was asked for
    n_reads: int = 0
    newest: int = 0  # the highest version that a change was answered with
    lock: threading.Lock = field(default_factory=threading.Lock)

    def first_after(self, moment: float, other_than: str | None = None) -> Change | None:
        """Return the first answered change that was sent or repeated after a moment, and not by a certain node."""
        with self.lock:
            found = [
                one
                for one in self.changes
                if one.answered_at is not None and one.asked_at > moment and one.by != other_than
            ]
        return min(found, key=lambda one: one.answered_at or 0.0, default=None)

    def n_made_between(self, begin: float, end: float) -> int:
        """Return how many changes were first sent, and acknowledged, between two moments."""
        with self.lock:
            return sum(
                begin < one.sent_at and one.answered_at is not None and one.answered_at < end and one.status < 300
                for one in self.changes
            )


class Client(threading.Thread):
    """Adds and deletes samples of its own, one after the other, and predicts.

    Parameters
    ----------
    name
        Begins the ids of its samples.
    nodes
        Any of which may be asked.
    notes
        Where answers are noted.
    seed
        For its choices.
    """

    def __init__(self, name: str, nodes: list[Node], notes: Notes, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self._nodes = nodes
        self._notes = notes
        self._random = random.Random(seed)
        self._held: list[str] = []
        self._n = 0
        self._likely = nodes[0]  # the leader, as far as is known
        self.is_over = threading.Event()

    def run(self) -> None:
        """Change and read until it is over."""
        while not self.is_over.wait(_REST):
            draw = self._random.random()
            if draw < 0.2:
                self._read()
            elif draw < 0.6 or not self._held:
                self._n += 1
                features = [round(self._random.uniform(-1, 1), 3) for _ in range(4)]
                self._change(Change("add", f"{self.name}-{self._n}", time.monotonic(), features))
            else:
                name = self._held.pop(self._random.randrange(len(self._held)))
                self._change(Change("delete", name, time.monotonic()))

    def _change(self, change: Change) -> None:
        """Send a change until it is answered; the key makes it one change, whichever node answers."""
        with self._notes.lock:
            self._notes.changes.append(change)
        key = {"Idempotency-Key": str(uuid.UUID(int=self._random.getrandbits(128)))}
        while not self.is_over.is_set():
            node, change.asked_at = self._likely, time.monotonic()
            try:
                if change.kind == "add":
                    sample = {"features": change.features, "label": self._label(change), "id": change.id}
                    status, answer, headers = node.ask("POST", "/samples", {"samples": [sample]}, headers=key)
                else:
                    status, answer, headers = node.ask("DELETE", f"/samples/{change.id}", headers=key)
            except OSError:
                self._try_another()
                continue
            if status in _DONE:
                with self._notes.lock:
                    change.status, change.by, change.answered_at = status, node.name, time.monotonic()
                    if status < 300:
                        version = int(answer["model_version"])
                        change.receipt = answer.get("id") if change.kind == "delete" else None
                        change.version = version if change.kind == "add" or answer["unlearned"] else 0
                        self._notes.newest = max(self._notes.newest, version)
                if change.kind == "add" and status < 300:
                    self._held.append(change.id)
                return
            if status in (400, 422):
                raise RuntimeError(f"{self.name} has sent what is no {change.kind}")
            if status == 307:
                self._go_to(headers.get("location") or headers.get("Location") or "")
            else:
                self._try_another()

    def _label(self, change: Change) -> str:
        return "high" if sum(change.features or ()) > 0 else "low"

    def _read(self) -> None:
        """Ask a node that follows for a prediction of the newest version or a later one."""
        node, least = self._random.choice(self._nodes), self._notes.newest
        try:
            status, answer, _ = node.ask(
                "POST", "/predict", {"instances": [[0.1, 0.2, -0.3, 0.4]]}, headers={"Min-Version": str(least)}
            )
        except OSError:
            return
        if status == 200:
            self._notes.n_reads += 1
            if int(answer["model_version"]) < least:
                self._notes.stale.append(node.name)

    def _try_another(self) -> None:
        self._likely = self._random.choice(self._nodes)
        time.sleep(_PAUSE)

    def _go_to(self, location: str) -> None:
        for node in self._nodes:
            if location.startswith(node.url):
                if node is self._likely:
                    time.sleep(_PAUSE)
                self._likely = node
                return
        self._try_another()


def wrong_answers(notes: Notes) -> int:
    """Return how many changes were refused as impossible: each new id is free, and only a sample held is deleted."""
    return sum(change.status in _IMPOSSIBLE for change in notes.changes)


def wrong_versions(notes: Notes) -> int:
    """Return how many changes were answered with a version that another one has: two nodes led at once."""
    told: dict[int, Any] = {}
    n_twice = 0
    for change in notes.changes:
        if change.version and 200 <= change.status < 300:
            n_twice += change.version in told
            told[change.version] = change
    return n_twice
