"""The experiments of the DynFrs paper and the cost by number of samples, with plots.

    python -m benchmarks.bench_paper --data ../shared/data [--quick] [--only boost scaling]

Ours beside scikit-learn's forests retrained, one thread. The questions are the files of `benchmarks/paper`; each has a
section in `results/` and a plot in `figures/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import sections
from benchmarks.paper import (
    accuracy_after_unlearning,
    accuracy_by_q,
    batch_size,
    boost,
    online,
    scaling,
)
from benchmarks.paper.sets import HIGGS_LIKE, Split, load_split
from benchmarks.sections import Section, ask, folders, parse


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int | None  # training rows of a set; None: all
    n_higgs_boost: int
    n_sets: int | None  # sets of an experiment; None: all
    seeds: int
    rounds: int
    batches: tuple[int, ...]
    n_requests: int
    sizes: tuple[int, ...]
    budget: float  # CPU seconds after which no further round of a measurement begins


FULL = Sizes(None, boost.HIGGS_ROWS, None, 3, 3, batch_size.SIZES, 5_000, scaling.SIZES, 30.0)
QUICK = Sizes(2_000, 2_000, 1, 1, 1, (1, 10, 100, 1_000), 200, (1_000, 3_000), 5.0)


@dataclass(frozen=True)
class Bench(sections.Bench):
    """The experiments; each measures and draws."""

    group = "paper"

    sizes: Sizes

    def load(self, name: str, seed: int = 0, n_rows: int | None = None) -> Split:
        """Read a set, or as many of its rows as are wanted."""
        return load_split(name, self.data, self.cache, seed, n_rows or self.sizes.n_rows)

    def accuracy_by_q(self) -> Section:
        """Figure 3, left."""
        sets = accuracy_by_q.SETS[: self.sizes.n_sets]
        found = accuracy_by_q.measure(self.load, sets, self.sizes.seeds)
        accuracy_by_q.draw(found, self.plot(accuracy_by_q.NAME))
        rows = accuracy_by_q.rows(found)
        return Section(accuracy_by_q.TITLE, accuracy_by_q.TEXT, accuracy_by_q.HEAD, rows, self.plot(accuracy_by_q.NAME))

    def accuracy_after_unlearning(self) -> Section:
        """Figure 3, right."""
        module = accuracy_after_unlearning
        found = module.measure(self.load, module.SETS[: self.sizes.n_sets], self.sizes.seeds)
        module.draw(found, self.plot(module.NAME))
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found), self.plot(module.NAME))

    def boost(self) -> Section:
        """Figure 4."""

        def load(name: str, seed: int) -> Split:
            return self.load(name, seed, self.sizes.n_higgs_boost if name == HIGGS_LIKE else None)

        sets = boost.SETS[: self.sizes.n_sets]
        found = boost.measure(load, sets, self.sizes.rounds, 2 * self.sizes.budget)
        boost.draw(found, self.plot(boost.NAME))
        return Section(boost.TITLE, boost.TEXT, boost.HEAD, boost.rows(found), self.plot(boost.NAME))

    def batch_size(self) -> Section:
        """Figure 6."""
        found = batch_size.measure(self.load(HIGGS_LIKE), self.sizes.batches, self.sizes.rounds)
        batch_size.draw(found, self.plot(batch_size.NAME))
        return Section(
            batch_size.TITLE, batch_size.TEXT, batch_size.HEAD, batch_size.rows(found), self.plot(batch_size.NAME)
        )

    def online(self) -> Section:
        """Table 8."""
        found = online.measure(self.load(HIGGS_LIKE), self.sizes.n_requests)
        online.draw(found, self.plot(online.NAME))
        return Section(online.TITLE, online.TEXT, online.HEAD, online.rows(found), self.plot(online.NAME))

    def scaling(self) -> Section:
        """The cost by number of samples, which the paper does not show."""
        split = self.load(HIGGS_LIKE, n_rows=max(self.sizes.sizes))
        found = scaling.measure(split, self.sizes.sizes, self.sizes.rounds, self.sizes.budget)
        scaling.draw(found, self.plot(scaling.NAME))
        return Section(scaling.TITLE, scaling.TEXT, scaling.head(found), scaling.rows(found), self.plot(scaling.NAME))


QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    accuracy_by_q.NAME: Bench.accuracy_by_q,
    accuracy_after_unlearning.NAME: Bench.accuracy_after_unlearning,
    boost.NAME: Bench.boost,
    batch_size.NAME: Bench.batch_size,
    online.NAME: Bench.online,
    scaling.NAME: Bench.scaling,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    options = parse(__doc__, list(QUESTIONS), arguments)
    bench = Bench(*folders(options), QUICK if options.quick else FULL)
    ask(QUESTIONS, bench, options)


if __name__ == "__main__":
    main()
