"""Mixed changes against a cluster, and what must be true of them afterwards."""

from __future__ import annotations

import http.client
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.process.durability.people import rows
from tests.process.replication.nodes import REDIRECT, Answer, Node, Nodes

_CHANGED = (200, 201)
_PAUSE = 0.02


@dataclass
class Known:
    """What was answered; what was asked and not answered may be either way."""

    held: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    n_acknowledged: int = 0


class Load:
    """Adds and deletes samples in threads for the length of a block; each finds the node that leads by itself."""

    def __init__(self, nodes: Nodes, n_threads: int = 4, prefix: str = "x") -> None:
        self._nodes = nodes
        self._prefix = prefix
        self._stop = threading.Event()
        _, self._cells, self._labels = rows()
        self.known = [Known() for _ in range(n_threads)]
        self.acknowledged_at: list[float] = []  # in seconds of `time.monotonic`
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(n_threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for(self, n: int, seconds: float = 60.0) -> None:
        """Return when so many more changes were acknowledged."""
        end, target = time.monotonic() + seconds, len(self.acknowledged_at) + n
        while len(self.acknowledged_at) < target:
            assert time.monotonic() < end, f"{len(self.acknowledged_at)} of {target} changes in {seconds} s"
            time.sleep(0.02)

    def check(self, node: Node) -> tuple[int, int]:
        """Return how many acknowledged samples a node has lost, and how many deleted ones it has again."""
        n_lost = n_back = 0
        for known in self.known:
            for name in sorted(known.held - known.unknown):
                n_lost += node.ask("GET", f"/samples/{name}").status != 200
            for name in sorted(known.gone - known.unknown):
                n_back += node.ask("GET", f"/samples/{name}").status == 200
        return n_lost, n_back

    @property
    def n_acknowledged(self) -> int:
        return sum(known.n_acknowledged for known in self.known)

    def _run(self, thread: int) -> None:
        chance, known, place, asked = random.Random(thread), self.known[thread], thread % len(self._nodes.all), 0
        while not self._stop.is_set():
            free = sorted(known.held - known.unknown)
            is_deletion = bool(free) and chance.random() < 0.4
            name = chance.choice(free) if is_deletion else f"{self._prefix}{thread}-{asked}"
            asked += 1
            try:
                answer = self._ask(self._nodes.all[place], name, asked, is_deletion=is_deletion)
            except (OSError, http.client.HTTPException):
                answer = Answer(0, None, {})  # it may have been made, or not
            if answer.status in _CHANGED:
                self._note(known, name, is_deletion=is_deletion)
            elif answer.status == REDIRECT:
                url = answer.headers["location"]
                place = next((i for i, one in enumerate(self._nodes.all) if url.startswith(one.url)), place)
            else:
                if answer.status != 503:
                    known.unknown.add(name)
                place = (place + 1) % len(self._nodes.all)
                time.sleep(_PAUSE)

    def _note(self, known: Known, name: str, *, is_deletion: bool) -> None:
        known.n_acknowledged += 1
        self.acknowledged_at.append(time.monotonic())
        if is_deletion:
            known.held.discard(name)
            known.gone.add(name)
        else:
            known.held.add(name)

    def _ask(self, node: Node, name: str, asked: int, *, is_deletion: bool) -> Answer:
        if is_deletion:
            return node.ask("DELETE", f"/samples/{name}", seconds=5)
        place = asked % len(self._cells)
        sample: dict[str, Any] = {"id": name, "features": self._cells[place], "label": self._labels[place]}
        return node.ask("POST", "/samples", {"samples": [sample]}, seconds=5)
