"""Boosted trees beside LightGBM, XGBoost and CatBoost: the marks, and the experiments of the Online GBDT paper.

    python -m benchmarks.bench_boosting --data ../shared/data [--quick] [--only training exact] [--sets adult letter]

All systems in the same run, CPU time of one thread, everything compiled before. The questions are the files of
`benchmarks/boosting`; each has sections in `results/`.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module

from benchmarks import sections
from benchmarks.boosting import (
    backdoor,
    categories,
    deleting,
    exactness,
    leaf_scores,
    membership,
    new_sets,
    predicting,
    presorting,
    quantising,
    streaming,
    training,
    updating,
)
from benchmarks.boosting.datasets import ALL_SETS, SETS, Split, load_split
from benchmarks.boosting.kinds import KINDS, Kind
from benchmarks.boosting.peers import PEERS, Peer
from benchmarks.sections import Section, ask, folders, parse


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int | None  # training rows of a set; None: all
    rounds: int
    n_singles: int  # exact updates of one sample, each way
    n_back_and_forth: int  # updates in place of one sample, both ways together
    n_parts: int  # of a stream
    n_partitions: int  # of membership inference
    n_queries: int
    n_presorted_trees: int
    budget: float  # CPU seconds after which no further round of a measurement on a set begins


FULL = Sizes(None, 5, 200, 1_000, streaming.N_PARTS, 20, 500, 1_000, 25.0)
QUICK = Sizes(1_500, 1, 10, 20, 4, 1, 20, 30, 5.0)


@dataclass(frozen=True)
class Bench(sections.Bench):
    """The questions; those that share a run keep what it found."""

    group = "boosting"

    sizes: Sizes
    sets: Sequence[str] | None = None  # None: those of each question
    kinds: Sequence[Kind] = tuple(KINDS.values())
    digest_every: int | None = None

    def load(self, name: str, seed: int = 0) -> Split:
        """Read a set, or as many of its rows as are wanted."""
        return load_split(name, self.data, self.cache, seed, self.sizes.n_rows)

    def among(self, sets: Sequence[str]) -> list[str]:
        """Those of a question's sets that are wanted."""
        return [name for name in sets if self.sets is None or name in self.sets]

    @property
    def peers(self) -> list[Peer]:
        """Those that are installed."""
        return [peer for peer in PEERS if peer.is_installed]

    @cached_property
    def trained(self) -> list[training.Found]:
        """Runs of training from scratch."""
        sizes = self.sizes
        return training.measure(self.load, self.among(SETS), self.kinds, self.peers, sizes.rounds, sizes.budget)

    @cached_property
    def updated(self) -> list[updating.Found]:
        """Runs of updates in place."""
        sizes = self.sizes
        return updating.measure(self.load, self.among(SETS), sizes.rounds, sizes.n_back_and_forth, sizes.budget)

    @cached_property
    def exact(self) -> list[exactness.Found]:
        """Runs of exact updates."""
        sizes, sets = self.sizes, self.among(SETS)
        return exactness.measure(self.load, sets, sizes.rounds, sizes.n_singles, sizes.budget, self.digest_every)

    @cached_property
    def predicted(self) -> list[predicting.Found]:
        """Runs of predictions."""
        sizes, sets = self.sizes, self.among(predicting.SETS)
        return predicting.measure(self.load, sets, self.kinds, self.peers, sizes.rounds, sizes.n_queries)

    def error(self) -> Section:
        """Test error from scratch."""
        head, rows = training.error_head(self.peers), training.error_rows(self.trained, self.peers)
        return Section(training.ERROR_TITLE, training.ERROR_TEXT, head, rows)

    def training(self) -> Section:
        """Training time."""
        head, rows = training.time_head(self.peers), training.time_rows(self.trained, self.peers)
        return Section(training.TIME_TITLE, training.TIME_TEXT, head, rows)

    def quantisation(self) -> Section:
        """Accuracy with and without quantisation."""
        module = quantising
        found = module.measure(self.load, self.among(SETS), self.sizes.rounds, self.sizes.budget)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def update(self) -> Section:
        """Table 3."""
        updating.draw(self.updated, self.plot(updating.TIME_NAME))
        rows = updating.time_rows(self.updated)
        return Section(updating.TIME_TITLE, updating.TIME_TEXT, updating.TIME_HEAD, rows, self.plot(updating.TIME_NAME))

    def update_error(self) -> Section:
        """Table 6, below its first part."""
        rows = updating.error_rows(self.updated)
        return Section(updating.ERROR_TITLE, updating.ERROR_TEXT, updating.ERROR_HEAD, rows)

    def similarity(self) -> Section:
        """Table 8."""
        rows = updating.similarity_rows(self.updated)
        title, text, head = updating.SIMILARITY_TITLE, updating.SIMILARITY_TEXT, updating.SIMILARITY_HEAD
        return Section(title, text, head, rows)

    def leaf_scores(self) -> Section:
        """Table 13."""
        module = leaf_scores
        found = module.measure(self.load, self.among(module.SETS), self.sizes.rounds, self.sizes.budget)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def exact_time(self) -> Section:
        """Time of exact updates."""
        rows = exactness.time_rows(self.exact)
        return Section(exactness.TIME_TITLE, exactness.TIME_TEXT, exactness.TIME_HEAD, rows)

    def exact_touched(self) -> Section:
        """What exact updates touch."""
        rows = exactness.touched_rows(self.exact)
        return Section(exactness.TOUCHED_TITLE, exactness.TOUCHED_TEXT, exactness.TOUCHED_HEAD, rows)

    def deletion(self) -> Section:
        """One deletion on every set."""
        module, sizes = deleting, self.sizes
        found = module.measure(self.load, self.among(ALL_SETS), sizes.rounds, sizes.n_singles, sizes.budget)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def categories(self) -> Section:
        """Columns with many categories."""
        module, sizes = categories, self.sizes
        splits = module.splits(self.load, self.among(module.SETS), sizes.n_rows)
        found = module.measure(splits, sizes.rounds, sizes.n_singles)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def new_sets(self) -> Section:
        """Sets that no setting was chosen on."""
        module, sizes = new_sets, self.sizes
        found = categories.measure(module.splits(self.among(module.SETS), sizes.n_rows), sizes.rounds, sizes.n_singles)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def presorted(self) -> Section:
        """Tables 7 to 10 of iGBDT."""
        module, sizes = presorting, self.sizes
        sets = self.among(module.SETS)
        found = module.measure(self.load, sets, sizes.rounds, sizes.budget, sizes.n_presorted_trees)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def stream(self) -> Section:
        """Figure 3."""
        found = streaming.measure(self.load, self.among(streaming.SETS), self.sizes.n_parts)
        streaming.draw(found, self.plot(streaming.NAME))
        return Section(
            streaming.TITLE, streaming.TEXT, streaming.HEAD, streaming.rows(found), self.plot(streaming.NAME)
        )

    def backdoor(self) -> Section:
        """Table 4."""
        module = backdoor
        found = module.measure(self.load, self.among(module.SETS), self.kinds, self.sizes.rounds, self.sizes.budget)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def membership(self) -> Section:
        """Table 9."""
        module, sizes = membership, self.sizes
        found = module.measure(self.load, self.among(module.SETS), self.kinds, sizes.n_partitions, sizes.budget)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def prediction(self) -> Section:
        """One row."""
        rows = predicting.one_row_rows(self.predicted)
        return Section(predicting.ROW_TITLE, predicting.ROW_TEXT, predicting.ROW_HEAD, rows)

    def batch_prediction(self) -> Section:
        """Many rows."""
        rows = predicting.batch_rows(self.predicted)
        return Section(predicting.BATCH_TITLE, predicting.BATCH_TEXT, predicting.BATCH_HEAD, rows)


QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    training.ERROR_NAME: Bench.error,
    training.TIME_NAME: Bench.training,
    quantising.NAME: Bench.quantisation,
    updating.TIME_NAME: Bench.update,
    updating.ERROR_NAME: Bench.update_error,
    updating.SIMILARITY_NAME: Bench.similarity,
    leaf_scores.NAME: Bench.leaf_scores,
    deleting.NAME: Bench.deletion,
    categories.NAME: Bench.categories,
    new_sets.NAME: Bench.new_sets,
    exactness.TIME_NAME: Bench.exact_time,
    exactness.TOUCHED_NAME: Bench.exact_touched,
    presorting.NAME: Bench.presorted,
    streaming.NAME: Bench.stream,
    backdoor.NAME: Bench.backdoor,
    membership.NAME: Bench.membership,
    predicting.ROW_NAME: Bench.prediction,
    predicting.BATCH_NAME: Bench.batch_prediction,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what this script has beyond the others."""
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=(*ALL_SETS, *new_sets.SETS),
        help="data sets; each question has its own when omitted",
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="kinds of ours, where both"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds of each measurement")
    parser.add_argument("--budget", type=float, metavar="S", help="CPU seconds after which no further round begins")
    parser.add_argument("--digest-every", type=int, metavar="N", help="compare after every N-th single deletion")


@contextmanager
def little_garbage(peers: Sequence[Peer]) -> Iterator[None]:
    """Keep imported objects out of the garbage collections before measurements, which would take most of the time."""
    for peer in peers:
        import_module(peer.module)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    options = parse(__doc__, list(QUESTIONS), arguments, add_options)
    missing = [peer.name for peer in PEERS if not peer.is_installed]
    if missing:
        print(f"not installed, and not compared with: {', '.join(missing)} (pip install 'oubli-server[benchmarks]')")
    sizes = QUICK if options.quick else FULL
    sizes = replace(sizes, rounds=options.repeats or sizes.rounds, budget=options.budget or sizes.budget)
    kinds = [KINDS[name] for name in options.kinds]
    bench = Bench(*folders(options), sizes, options.sets, kinds, options.digest_every)
    with little_garbage(bench.peers):
        ask(QUESTIONS, bench, options)


if __name__ == "__main__":
    main()
