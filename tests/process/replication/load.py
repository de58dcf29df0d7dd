"""Mixed changes against a cluster, and what must be true of them afterwards."""

from __future__ import annotations

import http.client
import random
import threading
import time
from dataclasses import dataclass, field

from tests.process.replication.nodes import CELLS, REDIRECT, Answer, Node, Nodes, sample
from tests.serving import wait_for

_N_THREADS = 4
_PAUSE = 0.02


@dataclass
class Known:
    """What was answered; what was asked and not answered may be either way."""

    held: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


class Load:
    """Adds and deletes samples in threads for the length of a block; each finds the node that leads by itself."""

    def __init__(self, nodes: Nodes, prefix: str) -> None:
        self._nodes = nodes
        self._prefix = prefix
        self._stop = threading.Event()
        self.known = [Known() for _ in range(_N_THREADS)]
        self.acknowledged_at: list[float] = []  # in seconds of `time.monotonic`
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(_N_THREADS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for(self, n: int) -> None:
        """Return when so many more changes were acknowledged."""
        target = len(self.acknowledged_at) + n
        wait_for(lambda: len(self.acknowledged_at) >= target, f"{target} changes are acknowledged")

    def check(self, node: Node) -> tuple[int, int]:
        """Return how many acknowledged samples a node has lost, and how many deleted ones it has again."""

        def statuses(names: set[str]) -> list[int]:
            return [node.ask("GET", f"/samples/{name}").status for name in names]

        lost = [status for known in self.known for status in statuses(known.held - known.unknown) if status != 200]
        back = [status for known in self.known for status in statuses(known.gone - known.unknown) if status == 200]
        return len(lost), len(back)

    def _run(self, thread: int) -> None:
        chance, known, place, asked = random.Random(thread), self.known[thread], thread % len(self._nodes.all), 0
        while not self._stop.is_set():
            free = sorted(known.held - known.unknown)
            is_deletion = bool(free) and chance.random() < 0.4
            name = chance.choice(free) if is_deletion else f"{self._prefix}{thread}-{asked}"
            asked += 1
            node = self._nodes.all[place]
            try:
                if is_deletion:
                    answer = node.ask("DELETE", f"/samples/{name}", seconds=5)
                else:
                    answer = node.ask("POST", "/samples", sample(name, asked % len(CELLS)), seconds=5)
            except (OSError, http.client.HTTPException):
                answer = Answer(0, None, {})  # it may have been made, or not
            if answer.status in (200, 201):
                self.acknowledged_at.append(time.monotonic())
                if is_deletion:
                    known.held.remove(name)
                    known.gone.add(name)
                else:
                    known.held.add(name)
            elif answer.status == REDIRECT:
                url = answer.headers["location"]
                place = next((i for i, one in enumerate(self._nodes.all) if url.startswith(one.url)), place)
            else:
                if answer.status != 503:
                    known.unknown.add(name)
                place = (place + 1) % len(self._nodes.all)
                time.sleep(_PAUSE)
