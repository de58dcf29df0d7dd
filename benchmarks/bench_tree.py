"""The fully dynamic tree: its marks, the experiments of its paper, and its cost beside the theorems' bounds.

    python -m benchmarks.bench_tree --data ../shared/data [--quick] [--only electricity cost]

Ours beside river's EFDT, HAT and ARF, and beside scikit-learn's DecisionTreeClassifier, in the same run, CPU time of
one thread. The questions are the files of `benchmarks/streams`; each has a section in `results/tree.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from benchmarks import higgs_like, sections
from benchmarks.sections import Section, ask, folders, parse
from benchmarks.streams import building, comparison, cost, curves, electricity
from benchmarks.streams.prequential import Peers
from benchmarks.streams.sets import STREAMS, Stream, load_stream


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    n_rows: int | None  # of a stream; None: all
    n_streams: int | None  # streams of a comparison; None: all
    rounds: int
    peer_budget: float  # CPU seconds after which a learner is stopped on a stream
    point_budget: float  # CPU seconds of a point of a curve
    n_build: int
    build_budget: float  # CPU seconds after which no further round of building begins
    cost: cost.Sizes


FULL = Sizes(None, None, 3, 150.0, 15.0, higgs_like.N_TRAIN, 30.0, cost.Sizes())
QUICK = Sizes(
    1_500, 1, 1, 5.0, 1.0, 5_000, 5.0, cost.Sizes((500, 1_000, 2_000), (2, 4), (0.1, 0.2), least=0.05, most=5.0)
)


@dataclass(frozen=True)
class Bench(sections.Bench):
    """The questions; each measures, and draws if there is a plot."""

    group = "tree"

    sizes: Sizes

    @cached_property
    def peers(self) -> Peers:
        """The peers' runs, which several questions show."""
        return Peers(self.sizes.peer_budget)

    def stream(self, name: str) -> Stream:
        """A stream, or as much of it as is wanted."""
        return load_stream(name, self.data, self.sizes.n_rows)

    def electricity(self) -> Section:
        """The marks on Electricity."""
        module = electricity
        found = module.measure(self.stream(module.STREAM), self.peers, self.sizes.rounds)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))

    def comparison(self) -> Section:
        """All streams."""
        streams = [self.stream(name) for name in list(STREAMS)[: self.sizes.n_streams]]
        found = comparison.measure(streams, self.peers)
        comparison.draw(found, self.plot(comparison.NAME))
        return Section(
            comparison.TITLE, comparison.TEXT, comparison.HEAD, comparison.rows(found), self.plot(comparison.NAME)
        )

    def curves(self, question: curves.Question) -> Section:
        """F1 and time by epsilon and depth."""
        streams = [self.stream(name) for name in question.streams[: self.sizes.n_streams]]
        found = curves.measure(question, streams, self.peers, self.sizes.point_budget)
        curves.draw(found, self.plot(question.name))
        return Section(question.title, question.text, curves.HEAD, curves.rows(found), self.plot(question.name))

    def cost(self) -> Section:
        """The amortized cost."""
        found = cost.measure(self.sizes.cost)
        cost.draw(found, self.plot(cost.NAME))
        return Section(cost.TITLE, cost.TEXT, cost.HEAD, cost.rows(found), self.plot(cost.NAME))

    def building(self) -> Section:
        """BUILD beside scikit-learn."""
        module = building
        held = higgs_like.load(self.cache, self.sizes.n_build, min(self.sizes.n_build, higgs_like.N_TEST))
        found = module.measure(held, self.sizes.rounds, self.sizes.build_budget)
        return Section(module.TITLE, module.TEXT, module.HEAD, module.rows(found))


QUESTIONS: dict[str, Callable[[Bench], Section]] = {
    electricity.NAME: Bench.electricity,
    comparison.NAME: Bench.comparison,
    curves.INCREMENTAL.name: partial(Bench.curves, question=curves.INCREMENTAL),
    curves.WINDOWS.name: partial(Bench.curves, question=curves.WINDOWS),
    curves.RANDOM_UPDATES.name: partial(Bench.curves, question=curves.RANDOM_UPDATES),
    cost.NAME: Bench.cost,
    building.NAME: Bench.building,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    options = parse(__doc__, list(QUESTIONS), arguments)
    bench = Bench(*folders(options), QUICK if options.quick else FULL)
    ask(QUESTIONS, bench, options)


if __name__ == "__main__":
    main()
