"""Count what a cluster loses when its nodes and its database fail, and how long changes have to wait.

    python -m benchmarks.bench_failover [--failures 300] [--seed 0] [--write-results]

Three nodes and PostgreSQL with a synchronous standby run on hosts of their own, in network namespaces. Clients add and
delete samples at all nodes, repeat each request until it is answered, and ask for predictions of the newest version.
Meanwhile the leader, a follower, the primary database or its standby is killed, stopped for some seconds, or cut off
from all others. After each failure the nodes have to come back in step. At the end every node must hold what was
acknowledged, nothing of what was deleted, and have the digest of the others. Needs root, `ip` and PostgreSQL. SIGUSR1
ends it early, with a report.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.failover.clients import Client, Notes, wrong_answers, wrong_versions
from benchmarks.failover.database import Database
from benchmarks.failover.network import hosts
from benchmarks.failover.nodes import Node, wait_in_step
from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.timing import median

N_CLIENTS = 4
N_ROWS = 1500  # more than a page of samples has
DOWN = (4.0, 9.0)  # seconds for which somebody is stopped or cut off: longer than a lease
PAUSE = 1.0  # seconds between two failures
PATIENCE = 60.0  # seconds for an answer once all is mended
WHATS = ("kill", "stop", "cut")
WHOSE = ("leader", "follower", "primary", "standby")
TITLE = "Failures of a cluster"
TEXT = (
    "Three nodes and PostgreSQL with a synchronous standby, each on its own host on one machine of 2 cores. "
    "{clients} clients add and delete samples one by one, {changes:,} in all, and repeat what has no answer. "
    "{failures} failures: killed, stopped for {least:g} to {most:g} seconds, or cut off for as long. Waiting: from the "
    "failure until a change is answered that was sent or repeated after it, in seconds; of a leader, by another node."
)
HEAD = ("failure:", "times", "p50 s", "longest s")
LED = ("figure:", "seconds")
LOST = ("figure:", "count")


@dataclass
class Outcome:
    """What came of all failures."""

    waits: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    n_changes: int = 0
    lost: int = 0
    back: int = 0
    twice: int = 0
    impossible: int = 0
    alone: int = 0  # acknowledged while the primary or the standby was away
    stale: int = 0
    unequal: int = 0
    unfinished: int = 0  # erasures that did not end
    mute: int = 0  # failures after which no change was answered for a minute


class Trial:
    """One cluster under load.

    Parameters
    ----------
    nodes, databases
        Who may fail; the databases by what they are, primary and standby.
    notes
        Of the clients.
    source
        Draws the failures.
    """

    def __init__(self, nodes: list[Node], databases: dict[str, Database], notes: Notes, source: random.Random) -> None:
        self._nodes = nodes
        self._databases = databases
        self._notes = notes
        self._source = source
        self.outcome = Outcome()

    def fail(self, what: str, whose: str) -> None:
        """Let something fail, mend it, and wait until all is in step again."""
        leader = wait_in_step(self._nodes)
        database = self._databases.get(whose)
        node = leader if whose == "leader" else self._source.choice([one for one in self._nodes if one is not leader])
        fallen: Node | Database = database or node
        if what == "kill":
            moment = time.monotonic()
            fallen.kill()
            if database is None:
                time.sleep(2.0)
            fallen.start()
        else:
            if what == "cut":
                fallen.host.cut()
            else:
                fallen.signal(signal.SIGSTOP)
            moment = time.monotonic()  # to cut somebody off takes longer than a change
            time.sleep(self._source.uniform(*DOWN))
            if database is not None:
                self.outcome.alone += self._notes.n_made_between(moment, time.monotonic())
            if what == "cut":
                fallen.host.mend()
            else:
                fallen.signal(signal.SIGCONT)
        leads = wait_in_step(self._nodes)
        # A node that was back before another one took its place continues to lead.
        other = leader.name if whose == "leader" and leads is not leader else None
        self.outcome.waits[whose, what].append(self._first_answer(moment, other) - moment)

    def _first_answer(self, moment: float, other_than: str | None) -> float:
        """Return when a change was answered that was sent or repeated after a moment."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            first = self._notes.first_after(moment, other_than)
            if first is not None and first.answered_at is not None:
                return first.answered_at
            time.sleep(0.1)
        self.outcome.mute += 1
        for node in self._nodes:
            sys.stderr.write(f"{node.name}: {node.cluster()}\n")
        return deadline

    def compare(self) -> None:
        """Compare all nodes with what was acknowledged."""
        leader = wait_in_step(self._nodes)
        held = [ids_of(node) for node in self._nodes]
        last: dict[str, Any] = {}
        for change in self._notes.changes:
            last[change.id] = change
        outcome = self.outcome
        for name, change in last.items():
            if change.answered_at is None:
                continue  # either is right
            must = change.kind == "add" and change.status < 300
            for ids in held:
                outcome.lost += must and name not in ids
                outcome.back += not must and name in ids
        outcome.n_changes = sum(change.answered_at is not None for change in self._notes.changes)
        outcome.twice = wrong_versions(self._notes)
        outcome.impossible = wrong_answers(self._notes)
        outcome.stale = len(self._notes.stale)
        outcome.unequal = n_unequal(leader)
        receipts = [change.receipt for change in self._notes.changes if change.receipt is not None]
        outcome.unfinished = wait_erased(leader, receipts[-200:])


def ids_of(node: Node) -> set[str]:
    """Return the ids of all samples that a node holds."""
    found: set[str] = set()
    cursor = ""
    while True:
        status, page, _ = node.ask("GET", f"/samples?limit=1000{cursor}", timeout=60)
        if status != 200:
            raise RuntimeError(f"samples cannot be listed: {status}")
        found.update(one["id"] for one in page["samples"])
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def n_unequal(leader: Node, seconds: float = 60.0) -> int:
    """Have a segment of the journal end, and return how many nodes then do not have the leader's digest."""
    leader.ask("POST", "/snapshot", timeout=60)
    deadline = time.monotonic() + seconds
    while True:
        said = leader.cluster()
        followers = [] if said is None else [one for one in said["nodes"] if one["role"] == "follower"]
        n_equal = sum(one["digests_equal"] is True and one["erased_seq"] > 0 for one in followers)
        if n_equal == len(followers) > 0 or time.monotonic() > deadline:
            return len(followers) - n_equal
        time.sleep(0.5)


def wait_erased(node: Node, receipts: Sequence[str], seconds: float = 120.0) -> int:
    """Return how many erasures do not end in time."""
    deadline, left = time.monotonic() + seconds, list(receipts)
    while left and time.monotonic() < deadline:
        left = [name for name in left if node.ask("GET", f"/erasures/{name}", timeout=10)[1].get("status") != "erased"]
        time.sleep(0.5)
    return len(left)


def write_data(path: Path, source: random.Random) -> None:
    """Write a small data file."""
    lines = ["a,b,c,d,level"]
    for _ in range(N_ROWS):
        cells = [round(source.uniform(-1, 1), 3) for _ in range(4)]
        lines.append(",".join(map(str, cells)) + (",high" if sum(cells) > 0 else ",low"))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(n_failures: int, seed: int, kinds: Sequence[tuple[str, str]], enough: threading.Event) -> Outcome:
    """Make the cluster, let it fail until that was often enough, and return what came of it."""
    source, notes = random.Random(seed), Notes()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oubli-failover-", dir="/tmp")))
        folder.chmod(0o755)
        network = stack.enter_context(hosts(("a", "b", "c", "pg", "sb")))
        primary, standby = Database(network["pg"], folder / "pg"), Database(network["sb"], folder / "sb")
        stack.callback(standby.close)
        stack.callback(primary.close)
        primary.initialise()
        primary.feed(standby)
        write_data(folder / "data.csv", source)
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text("a-secret-of-a-measurement-of-failures")
        flags = ["--data", str(folder / "data.csv"), "--target", "level", "--n-estimators", "10", "--random-state", "0",
                 "--journal", primary.url(), "--follow", "--cluster-secret-file", str(secret), "--allow-anonymous",
                 "--allowed-hosts", "*", "--erasure-deadline", "10", "--member-timeout", "20"]  # fmt: skip
        nodes = [Node(name, network[name], folder / name, flags) for name in ("a", "b", "c")]
        for node in nodes:
            stack.callback(node.close)
            node.start()
        wait_in_step(nodes)
        clients = [Client(f"client{number}", nodes, notes, seed + number) for number in range(N_CLIENTS)]
        for client in clients:
            client.start()
        trial = Trial(nodes, {"primary": primary, "standby": standby}, notes, source)
        for number, (what, whose) in enumerate(itertools.islice(itertools.cycle(kinds), n_failures), 1):
            time.sleep(PAUSE)
            trial.fail(what, whose)
            wait = trial.outcome.waits[whose, what][-1]
            sys.stderr.write(f"{number}: {what} {whose}, waited {wait:.2f} s\n")
            if enough.is_set() or trial.outcome.mute:
                break
        for client in clients:
            client.is_over.set()
        for client in clients:
            client.join()
        trial.compare()
        return trial.outcome


def report(outcome: Outcome) -> dict[str, tuple[str, str, str]]:
    """Return title, text and table of each section."""
    rows = [
        Row((f"{what} {whose}", str(len(waits)), shown(median(waits))), max(waits))
        for (whose, what), waits in sorted(outcome.waits.items())
    ]
    leaders = [wait for (whose, _), waits in outcome.waits.items() if whose == "leader" for wait in waits]
    led = [Row(("p50",), median(leaders), at_most(5)), Row(("longest",), max(leaders), at_most(15))] if leaders else []
    n_failures = sum(map(len, outcome.waits.values()))
    text = TEXT.format(clients=N_CLIENTS, changes=outcome.n_changes, failures=n_failures, least=DOWN[0], most=DOWN[1])
    counts = {
        "acknowledged and lost": outcome.lost,
        "deleted and back": outcome.back,
        "versions that two changes have": outcome.twice,
        "acknowledged without both databases": outcome.alone,
        "changes refused as impossible": outcome.impossible,
        "predictions older than asked for": outcome.stale,
        "digests that differ at the end": outcome.unequal,
        "erasures that do not end": outcome.unfinished,
        "failures after which no change is answered": outcome.mute,
    }
    lost = [Row((name,), count, at_most(0)) for name, count in counts.items()]
    return {
        "failover-waits": (TITLE, text, table(HEAD, rows)),
        "failover-leaders": ("Until another node leads", "Of all failures of leaders.", table(LED, led)),
        "failover-losses": ("What was lost", "After all failures, on every node.", table(LOST, lost)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--failures", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    kinds = [f"{what} {whose}" for what, whose in itertools.product(WHATS, WHOSE)]
    parser.add_argument("--only", action="append", choices=kinds, metavar="KIND", help="such as 'cut standby'; repeat")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing of the cluster stays
    enough = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: enough.set())
    chosen = options.only or kinds
    random.Random(options.seed).shuffle(chosen)
    pairs = [(what, whose) for what, whose in (kind.split() for kind in chosen)]
    outcome = run(options.failures, options.seed, pairs, enough)
    write_report(report(outcome), write=options.write_results)


if __name__ == "__main__":
    main()
