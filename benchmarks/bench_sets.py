"""Measure what proofs cost: the tree over the samples held, the log, signed predictions, and nonces in the library.

    python -m benchmarks.bench_sets [--only sets log signed nonces] [--quick] [--write-results]

The samples have 14 features, as those of Adult have, and no subjects. A change of the set is one sample that leaves or
comes: its hash, its position, the tree and its root, as a thread does it behind a deletion or an addition. Times are
medians.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from benchmarks.results import Row, at_most, shown, table, write_report
from benchmarks.serving.servers import run_here
from oubli.app.http.responses import result_content
from oubli.app.http.routes.samples import absence_content
from oubli.app.ledger.entries import hash_leaf
from oubli.app.ledger.log import Tree
from oubli.app.ledger.set_tree import Positions
from oubli.app.service.build import compose, open_nothing
from oubli.app.service.changes.command import give_nonces
from oubli.app.service.evidence.sample_set import AbsenceProof, Batch, Building, Leaves, SetRoot
from oubli.core import DynamicForestClassifier
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.indexes import NONCE_BYTES
from oubli.core.samples.records import HeldSample
from oubli.verifier import Policy, check_absence, check_prediction, read_policy
from oubli.verifier.merkle import check_consistency, check_inclusion

TITLE = "The tree over the samples held"
TEXT = (
    "One sample leaves or comes, with the new root; the tree built again from all samples; the proof that a name is "
    "not among them, as `POST /samples/absence-proofs` answers it, and its check by `oubli.verifier`. Memory is that "
    "of the tree and of the nonces, a sample. Samples have 14 features and no subjects."
)
HEAD = ("samples", "what:", "unit:", "measured")
SIZES = (32_561, 500_000)
N_CHANGES, N_PROOFS, N_ENTRIES = 2000, 500, 1_000_000
LOG_TEXT = (
    "The tree over a log's entries, in tiles in SQLite as the ledger has them. Proofs are of entries, and from sizes, "
    "that are drawn; they are checked by `oubli.verifier`. The tiles that a proof reads are in the system's cache."
)
SIGNED_TEXT = (
    "The additional work of `POST /predict` with a receipt: rows and answer as JSON, two hashes and a signature. The "
    "check is that of `oubli.verifier`."
)
NONCES_TEXT = (
    "Two forests with the defaults on the same samples, one with a nonce for each, as servers keep them. Each sample "
    "is deleted from both and added to both again, in turns. A server then gives it a new nonce, which takes {given} "
    "us; a library without nonces has no space for them."
)
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
        position = Positions(_KEY).of(("id", name))
        others = leaves.tree.prove_absence(position)
        if others is None:
            raise RuntimeError("the name is not absent")
        found = AbsenceProof("ids", name, SetRoot(1, leaves.tree.root(), n), position, others)
        texts.append(orjson.dumps(absence_content(found)).decode())

    made = each(prove, range(N_PROOFS))
    policy, root = Policy((), {}, {}, "none"), leaves.tree.root()
    checked = each(lambda number: check_absence(texts[number], policy, root=root), range(N_PROOFS))
    limits = n >= SIZES[-1]
    found = (
        ("a sample leaves", "us", left, 50.0 if limits else None),
        ("a sample comes", "us", came, 50.0 if limits else None),
        ("a fresh tree", "s", seconds, None),
        ("memory", "bytes a sample", leaves.tree.nbytes / n + NONCE_BYTES, 150.0),
        ("a proof of absence", "bytes", median(map(len, texts)), 1024.0),
        ("it is made", "us", made, 1000.0),
        ("it is checked", "us", checked, 1000.0),
    )
    return [
        Row((f"{n:,}", what, unit), figure, None if limit is None else at_most(limit))
        for what, unit, figure, limit in found
    ]


def sets(sizes: Sequence[int]) -> Section:
    """The tree over the samples held."""
    return TITLE, TEXT, table(HEAD, [row for n in sizes for row in measure(n)])


# --- the log


def log(n: int) -> Section:
    """Proofs in a log of so many entries, whose tiles are in a file as the ledger's are."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "tiles.sqlite", isolation_level=None)
        connection.execute("CREATE TABLE tiles (level INT, number INT, hashes BLOB, PRIMARY KEY (level, number))")

        def store(level: int, number: int, hashes: bytes) -> None:
            connection.execute("INSERT INTO tiles VALUES (?, ?, ?)", (level, number, hashes))

        def load(level: int, number: int) -> bytes:
            query = "SELECT hashes FROM tiles WHERE level = ? AND number = ?"
            return bytes(connection.execute(query, (level, number)).fetchone()[0])

        tree, rows = Tree(store, load), log_rows(n)
        connection.execute("BEGIN")
        times = [timed(partial(tree.append, row)) for row in rows]
        connection.execute("COMMIT")
        draw = random.Random(2)
        indices, olds = draw.sample(range(n), min(n, N_CHANGES)), draw.sample(range(1, n), min(n - 1, N_CHANGES))
        paths: dict[int, list[bytes]] = {}
        proofs: dict[int, list[bytes]] = {}
        included = each(lambda index: paths.update({index: tree.inclusion(index, n)}), indices)
        goes_on = each(lambda old: proofs.update({old: tree.consistency(old, n)}), olds)
        root, old_roots = tree.root(), {old: tree.root(old) for old in olds}
        checked = each(lambda index: check_inclusion(rows[index], index, n, paths[index], root), indices)
        compared = each(lambda old: check_consistency(old, n, proofs[old], old_roots[old], root), olds)
        connection.close()
    found = (
        ("an entry is taken in", "us", 1e6 * median(times), None),
        ("that an entry is in the log", "us", included, 100.0),
        ("that the log continues an earlier one", "us", goes_on, 100.0),
        ("hashes of the first", "hashes", float(median(map(len, paths.values()))), None),
        ("the first is checked", "us", checked, None),
        ("the second is checked", "us", compared, None),
    )
    table_rows = [
        Row((f"{n:,}", what, unit), figure, None if mark is None else at_most(mark))
        for what, unit, figure, mark in found
    ]
    return "Proofs in the log", LOG_TEXT, table(("entries", *HEAD[1:]), table_rows)


def log_rows(n: int) -> list[bytes]:
    """Return hashes of so many entries."""
    return [hash_leaf(number.to_bytes(8, "big")) for number in range(n)]


# --- the library and predictions


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def forest(n: int) -> Any:
    """Return a forest with the defaults on so many samples."""
    held = [sample(number)[1] for number in range(n)]
    model = DynamicForestClassifier(random_state=0)
    labels = ["<=50K" if sha256(one.id.encode()).digest()[0] % 4 else ">50K" for one in held]
    return model.fit([one.features for one in held], labels, ids=[one.id for one in held], schema=_SCHEMA)


def signed(n: int) -> Section:
    """A signed prediction of one row, beside the same without a signature."""
    service = compose(open_nothing().begin(forest(n)), idle_resolve=False)
    rows = [list(sample(number)[1].features) for number in range(n, n + N_PROOFS)]
    signer, times, checks = service.evidence.signer, list[float](), list[float]()
    (key,) = service.disk.ledger.public_keys("bench/0123456789abcdef")
    policy = read_policy(f"log {key['log_key']}\nquorum none\n".encode())

    async def sign_all() -> None:
        for row in rows:
            found = service.model.state.model.query([row])
            answer = result_content(found)
            answer["probabilities"] = answer["probabilities"].tolist()
            started = time.perf_counter()
            receipt = await signer.sign(1, "00" * 32, [row], answer)
            times.append(time.perf_counter() - started)
            content = {"instances": [row], "answer": {**answer, "model_version": 1, "receipt": receipt._asdict()}}
            checks.append(timed(partial(check_prediction, content, policy)))

    asyncio.run(sign_all())
    service.lifecycle.close()
    table_rows = [
        Row(("a prediction of a row is signed", "us"), 1e6 * median(times)),
        Row(("it is checked", "us"), 1e6 * median(checks)),
    ]
    return "Signed predictions", SIGNED_TEXT, table(HEAD[1:], table_rows)


def nonces(n: int) -> Section:
    """The library with nonces in its store, as a server has them, against the library without."""
    models = forest(n), forest(n)
    give_nonces(models[1].samples_)
    times: dict[str, tuple[list[float], list[float]]] = {"delete": ([], []), "add": ([], [])}
    given: list[float] = []
    for turn, number in enumerate(random.Random(3).sample(range(n), min(n, N_CHANGES))):
        name, held, _ = sample(number)
        label = models[0].samples_.get(name).label
        order = (0, 1) if turn % 2 else (1, 0)
        for one in order:
            times["delete"][one].append(timed(partial(models[one].delete, [name])))
        for one in order:
            times["add"][one].append(timed(partial(models[one].add, [held.features], [label], ids=[name])))
        given.append(timed(partial(models[1].samples_.note_nonces, [name], os.urandom(NONCE_BYTES))))
    if models[0].digest() != models[1].digest():
        raise RuntimeError("nonces change the model")
    rows = []
    for what, (without, with_them) in times.items():
        cells = (f"{n:,}", what, *(shown(1e6 * median(one)) for one in (without, with_them)))
        rows.append(Row(cells, median(with_them) / median(without), at_most(1.01)))
    text = NONCES_TEXT.format(given=shown(1e6 * median(given)))
    return "The library with nonces", text, table(("samples", "what:", "without us", "with us", "ratio"), rows)


Section = tuple[str, str, str]
QUESTIONS: dict[str, tuple[str, Callable[[bool], Section]]] = {
    "sets": ("sets", lambda quick: sets((2000,) if quick else SIZES)),
    "log": ("sets-log", lambda quick: log(2000 if quick else N_ENTRIES)),
    "signed": ("sets-signed", lambda quick: signed(500 if quick else 5000)),
    "nonces": ("sets-nonces", lambda quick: nonces(500 if quick else SIZES[0])),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and write them when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    run_here()
    for name in options.only:
        section, ask = QUESTIONS[name]
        write_report({section: ask(options.quick)}, write=options.write_results)


if __name__ == "__main__":
    main()
