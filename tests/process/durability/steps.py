"""A short history that takes every step there is on the disk, and what must be true if it ends at one of them."""

import http.client
import itertools
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.process.durability.clients import Chooser, everybody
from tests.process.durability.evidence import check_evidence, check_states, receipts_of
from tests.process.durability.model_of_truth import Differences, Operation, Truth
from tests.process.durability.people import Strangers, flags
from tests.process.durability.reading import check_exact, read_held
from tests.serving import Running, serving

KILLING = Path(__file__).with_name("killing.py")
FLAGS = flags("--erasure-deadline", "60")


@dataclass(frozen=True)
class Kill:
    """The end: before or after a call of a function, counted from the start of the process."""

    step: str
    number: int
    when: Literal["before", "after"]


@dataclass
class Plan:
    """What `killing.py` is told."""

    folder: Path
    kill: Kill | None = None

    @property
    def log(self) -> Path:
        return self.folder / "steps.txt"

    @property
    def command(self) -> tuple[str, ...]:
        """Write it down, and return the command that does it."""
        path = self.folder / "plan.json"
        self.log.unlink(missing_ok=True)
        kill = None if self.kill is None else vars(self.kill)
        content = {"directory": str(self.folder / "oubli-data"), "log": str(self.log), "kill": kill}
        path.write_text(json.dumps(content), encoding="utf-8")
        return sys.executable, str(KILLING), str(path)

    def steps_taken(self) -> Counter[str]:
        """How often each step was begun."""
        return Counter(self.log.read_text(encoding="ascii").split()) if self.log.exists() else Counter()


class History:
    """Requests of one client, always the same, and what is known of the server that they went to."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.operations: list[Operation] = []
        source = random.Random(11)
        self._known = everybody()
        self._chooser = Chooser("step", self._known, source, Strangers(source))

    def happen(self, server: Running) -> bool:
        """Go through it; whether the server lived to see the end."""
        try:
            # What makes the service rewrite its files, with requests between.
            for path in ("/snapshot", "/model/scrub", "/model/states", "/snapshot", "/model/scrub"):
                self._ask(server, 6)
                self._keep_up(server, path)
            # The model is fitted aside with the parameters it has, and changed meanwhile.
            fit = self._note(Operation("rebuild"))
            fit.answer = server.finish("/model/fit", meanwhile=lambda: self._ask(server, 3))
            fit.status = 200
            # It is taken out and put back.
            self._keep_up(server, "/snapshot")
            _, snapshot = server.get("/snapshot/file")
            restore = self._note(Operation("rebuild"))
            restore.status, restore.answer = server.ask("PUT", "/snapshot/file", snapshot)
            assert (restore.status, restore.answer["no_longer_held"]) == (200, 0), restore.answer
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _ask(self, server: Running, n: int) -> None:
        for _ in range(n):
            request = self._chooser.next()
            operation = self._note(request.operation)
            operation.status, operation.answer = request.sent_to(server)
            assert operation.status in (200, 201, 404, 409), operation.answer
            if operation.kind == "add" and operation.is_acknowledged:
                self._known.note(operation.answer["ids"], [sent.content for sent in operation.samples])

    def _keep_up(self, server: Running, path: str) -> None:
        """Have files rewritten, and wait for the end of it."""
        if path == "/model/scrub":
            server.finish(path)
            return
        status, content = server.ask("POST", path, {})
        assert status in (200, 201), content

    def _note(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation

    def check(self, server: Running) -> Differences:
        """Compare the server that came after with what was acknowledged before."""
        held, version = read_held(server)
        differences = self.truth.settle(self.operations, held, version)
        check_evidence(server, receipts_of(self.operations))
        check_states(server, check_exact(server, held))
        self.operations = []
        return differences


@contextmanager
def started(plan: Plan, flags: tuple[str, ...] = FLAGS) -> Iterator[Running | None]:
    """Run a server by a plan; None when it died before it was ready, as planned."""
    with ExitStack() as stack:
        server: Running | None
        try:
            server = stack.enter_context(serving(*flags, cwd=plan.folder, command=plan.command))
        except AssertionError as ended:
            if plan.kill is None or "the server ended with -9" not in str(ended):
                raise
            server = None
        yield server


def kills_for(taken: Counter[str]) -> list[Kill]:
    """Return every place to die: before and after each step that was taken."""
    steps = [(step, number) for step, n in sorted(taken.items()) for number in range(1, n + 1)]
    return [Kill(*one, when) for one in steps for when in ("before", "after")]


def thinned(kills: list[Kill], n: int) -> list[Kill]:
    """Return so many of them, of as many different steps as can be."""
    turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    ranked = [(next(turns[kill.step]), kill) for kill in random.Random(0).sample(kills, len(kills))]
    return [kill for _, kill in sorted(ranked, key=lambda pair: pair[0])[:n]]
