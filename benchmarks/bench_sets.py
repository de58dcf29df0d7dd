"""Measure the tree over the samples held: how long a change, the tree anew and a proof take, and how large they are.

    python -m benchmarks.bench_sets [--quick] [--write-results]

The samples have 14 features, as those of Adult have, and no subjects. A change is one sample that leaves or comes: its
hash, its position, the tree and its root, as a thread does it behind a deletion or an addition. Times are medians.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from statistics import median

import orjson

from benchmarks.results import Row, at_most, table, write_report
from benchmarks.serving.servers import run_here
from oubli.app.http.absence import absence_content
from oubli.app.ledger.set_leaves import commitment_of, position_of
from oubli.app.service.sample_leaves import Batch, Building, Leaves
from oubli.app.service.sample_set import NameProof, SetRoot
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.nonces import NONCE_BYTES
from oubli.core.samples.store import HeldSample
from oubli.verifier import Policy, check_absence

TITLE = "The tree over the samples held"
TEXT = (
    "One sample leaves or comes, with the new root; the tree anew from all samples; the proof that a name is not among "
    "them, as `POST /samples/absence-proofs` answers it, and its check by `oubli.verifier`. Memory is that of the tree "
    "and of the nonces, a sample. Samples have 14 features and no subjects."
)
HEAD = ("samples", "what:", "unit:", "measured")
SIZES = (32_561, 500_000)
N_CHANGES, N_PROOFS = 2000, 500
_AT_ONCE = 1024
_KEY = bytes(range(32))
_COLUMNS = [Column(f"n{j}", ColumnType.NUMERIC) for j in range(6)]
_COLUMNS += [Column(f"c{j}", ColumnType.CATEGORICAL) for j in range(8)]
_SCHEMA = Schema(tuple(_COLUMNS), Task.CLASSIFICATION, LabelType.STRING, label_name="income", named=True)


def sample(number: int) -> tuple[str, HeldSample, bytes]:
    """Return the id, the content and the nonce of a sample."""
    draw = random.Random(number)
    numbers = [float(draw.randrange(100_000)) for _ in range(6)]
    words = [f"word {draw.randrange(40)}" for _ in range(8)]
    name = f"person-{number:08d}"
    return name, HeldSample(name, [*numbers, *words], "<=50K", None), draw.randbytes(NONCE_BYTES)


def each(work: Callable[[int], object], numbers: Sequence[int]) -> float:
    """Return the median time of something for each number, in microseconds."""
    times = []
    for number in numbers:
        started = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - started)
    return 1e6 * median(times)


def built(n: int) -> tuple[Leaves, float]:
    """Return a tree of samples, and the seconds it took."""
    building, seconds = Building(_KEY, n), 0.0
    for start in range(0, n, _AT_ONCE):
        batch = Batch(_SCHEMA, [sample(number) for number in range(start, min(start + _AT_ONCE, n))], [])
        started = time.perf_counter()
        building.take_in(batch)
        seconds += time.perf_counter() - started
    started = time.perf_counter()
    leaves = building.finished()
    return leaves, seconds + time.perf_counter() - started


def measure(n: int) -> list[Row]:
    """Return the rows of a set of so many samples."""
    leaves, seconds = built(n)
    before = leaves.tree.root()
    chosen = random.Random(1).sample(range(n), min(N_CHANGES, n))
    going = {number: Batch(_SCHEMA, [(sample(number)[0], None, b"")], []) for number in chosen}
    coming = {number: Batch(_SCHEMA, [sample(number)], []) for number in chosen}
    left = each(lambda number: leaves.take_in(going[number]), chosen)
    came = each(lambda number: leaves.take_in(coming[number]), chosen)
    if leaves.tree.root() != before:
        raise RuntimeError("the root depends on the history")
    texts: list[str] = []

    def prove(number: int) -> None:
        name = f"absent-{number}"
        position = position_of(_KEY, ("id", name))
        found = NameProof("ids", name, SetRoot(1, leaves.tree.root(), n), position, leaves.tree.prove(position))
        texts.append(orjson.dumps(absence_content(found, commitment_of(_KEY))).decode())

    made = each(prove, range(N_PROOFS))
    policy, root = Policy((), {}, {}, "none"), leaves.tree.root()
    checked = each(lambda number: check_absence(texts[number], policy, root=root), range(N_PROOFS))
    limits = n >= SIZES[-1]
    found = (
        ("a sample leaves", "us", left, 50.0 if limits else None),
        ("a sample comes", "us", came, 50.0 if limits else None),
        ("the tree anew", "s", seconds, None),
        ("memory", "bytes a sample", leaves.tree.nbytes / n + NONCE_BYTES, 150.0),
        ("a proof of absence", "bytes", median(map(len, texts)), 1024.0),
        ("it is made", "us", made, 1000.0),
        ("it is checked", "us", checked, 1000.0),
    )
    return [
        Row((f"{n:,}", what, unit), figure, None if limit is None else at_most(limit))
        for what, unit, figure, limit in found
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="2,000 samples: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    run_here()
    rows = [row for n in ((2000,) if options.quick else SIZES) for row in measure(n)]
    write_report({"sets": (TITLE, TEXT, table(HEAD, rows))}, write=options.write_results)


if __name__ == "__main__":
    main()
