"""Influence: the marks, and the experiments of its paper.

    python -m benchmarks.bench_influence --data ../shared/data [--quick] [--only marks noise]

The questions are the files of `benchmarks/influence`; each has a section in `results/influence.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks import sections
from benchmarks.influence import marks, mismatch, noise, proxies, removal, update_times
from benchmarks.influence.problems import SETS, Problem, load_problem
from benchmarks.sections import Section, ask, folders, parse


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int | None = None  # of each part of a data set; None: all
    n_sets: int | None = None  # None: all
    rounds: int = 5
    n_forward: int = 30  # samples that the forward form is timed on
    n_left_out: int = 3_000  # samples that the forest unlearns one by one
    n_ranked: int = 200  # samples ranked by the proxies, in trees of depth 6
    n_ranked_shallow: int = 600  # and in trees of depth 3
    n_asked: int = 10  # test rows that they are ranked for
    n_timed: int = 20  # samples timed by update set
    n_drawn: int = 200  # samples ranked for noise by the forms that go sample by sample
    n_unlearned: int = 120  # of these, unlearned one by one
    n_average: int = 500  # test rows that these are averaged over
    n_removal_rows: int = 50  # test rows that samples are removed for
    n_trained: int = len(removal.TRAINED)  # numbers of batches after which a model is trained
    n_part: int = 60  # samples of each part of a group


FULL = Sizes()
QUICK = Sizes(400, 1, 1, 3, 20, 12, 12, 2, 3, 12, 4, 20, 1, 1, 5)


@dataclass(frozen=True)
class Bench(sections.Bench):
    """The questions; each measures, and draws if there is a plot."""

    group = "influence"

    sizes: Sizes

    @cached_property
    def problems(self) -> list[Problem]:
        """The data sets."""
        return [load_problem(name, self.data, self.sizes.n_rows) for name in SETS[: self.sizes.n_sets]]

    def marks(self) -> Section:
        """What a question costs."""
        found = marks.measure(self.problems[0], self.sizes.rounds, self.sizes.n_forward, self.sizes.n_left_out)
        return Section(marks.TITLE, marks.TEXT, marks.HEAD, found)

    def proxies(self) -> Section:
        """Table 2."""
        module = proxies
        found = module.measure(
            self.problems, {3: self.sizes.n_ranked_shallow, 6: self.sizes.n_ranked}, self.sizes.n_asked
        )
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def times(self) -> Section:
        """Figure 1."""
        module = update_times
        found = module.measure(self.problems, self.sizes.n_timed)
        module.draw(found, self.plot(module.NAME))
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found), self.plot(module.NAME))

    def noise(self) -> Section:
        """Figure 2."""
        sizes = self.sizes
        found = noise.measure(self.problems, sizes.n_drawn, sizes.n_unlearned, sizes.n_average)
        noise.draw(found, self.plot(noise.NAME))
        return Section(noise.TITLE, noise.TEXT, noise.HEAD, noise.rows(found), self.plot(noise.NAME))

    def removal(self) -> Section:
        """Figure 3."""
        sizes = self.sizes
        found = removal.measure(self.problems, sizes.n_removal_rows, removal.TRAINED[: sizes.n_trained])
        removal.draw(found, self.plot(removal.NAME))
        return Section(removal.TITLE, removal.TEXT, removal.HEAD, removal.rows(found), self.plot(removal.NAME))

    def mismatch(self) -> Section:
        """Table 3."""
        module = mismatch
        found = module.measure(self.problems, self.sizes.n_part, self.sizes.n_average)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))


QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    marks.NAME: Bench.marks,
    proxies.NAME: Bench.proxies,
    update_times.NAME: Bench.times,
    noise.NAME: Bench.noise,
    removal.NAME: Bench.removal,
    mismatch.NAME: Bench.mismatch,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    options = parse(__doc__, list(QUESTIONS), arguments)
    bench = Bench(*folders(options), QUICK if options.quick else FULL)
    ask(QUESTIONS, bench, options)


if __name__ == "__main__":
    main()
