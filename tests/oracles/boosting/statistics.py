"""Statistics of the labels by category, slowly: what `incremental-boosting` on grids reads beside the cells."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.oracles.boosting.loss import log
from tests.oracles.boosting.quantised_parts import Loss, Parameters, draw, scaled
from tests.oracles.boosting.trees import Sample
from tests.oracles.common import Column, combine, hash_bytes, quantised, scale_exponent, unit

STATISTICS, FOLDS = 12, 13
RARE = hash_bytes(b"\xff rare")


class Statistics:
    """Of the columns with more categories than a parameter says; `held`: (sample, whether it trains, its rank)."""

    def __init__(
        self, parameters: Parameters, held: Sequence[tuple[Sample, bool, int]], columns: Sequence[Column], loss: Loss
    ) -> None:
        self.seed, self.least, self.loss = parameters.random_state, parameters.category_statistics or 0, loss
        samples = [sample for sample, _, _ in held]
        self.sources = [
            j
            for j, column in enumerate(columns)
            if column.type == "categorical" and self.least and len({s.cells[j] for s in samples}) > self.least
        ]
        self.n_targets = min(loss.n_groups, 8) if loss.is_classification else 1
        self.columns = [*columns, *([Column()] * (len(self.sources) * self.n_targets))]
        self.trained = {sample.id_hash for sample, trains, _ in held if trains}
        if not loss.is_classification:
            self.exponent = scale_exponent([sample.label for sample, trains, _ in held if trains])
        self.held: dict[tuple[int, int], float] = defaultdict(float)  # weights
        self.members: dict[tuple[int, int], list[tuple[int, float, list[float]]]] = defaultdict(list)
        for sample, trains, rank in held:
            for j in self.sources:
                self.held[j, sample.cells[j]] += sample.weight
                if trains:
                    own = self.fold(sample), sample.weight, self.targets(sample, rank)
                    self.members[j, sample.cells[j]].append(own)

    def fold(self, sample: Sample) -> int:
        """One of five."""
        return combine(draw(self.seed, FOLDS), sample.id_hash) % 5

    def targets(self, sample: Sample, rank: int) -> list[float]:
        """What the statistics of a sample's categories are about, times its weight."""
        if not self.loss.is_classification:
            return [sample.weighed(quantised(sample.label, self.exponent), 128)]
        if self.n_targets == 1:
            return [sample.weight * (rank == 1)]
        return [sample.weight * (rank % self.n_targets == t) for t in range(self.n_targets)]

    def value(self, column: int, category: int, target: int, without: int | None) -> float:
        """A statistic of a category, of the samples of all folds but one."""
        own = [(weight, targets[target]) for fold, weight, targets in self.members[column, category] if fold != without]
        n, total = sum(weight for weight, _ in own), sum(of_target for _, of_target in own)
        if self.loss.is_classification:
            whole = 2**32
            share = sum(self.loss.shares(self.loss.start.scores)[target :: self.n_targets])
            share = min(max(share, 1), whole - 1)
            ours, others = int(total * whole) + 10 * share, int((n - total) * whole) + 10 * (whole - share)
            x = log(float(ours) / float(others))
            x *= 2.0 if self.n_targets == 1 else 0.5
        else:
            inverse = 1.0 / self.loss.start.spread
            x = (total * scaled(inverse, self.exponent - 38) - n * (self.loss.start.base * inverse)) / (n + 10) * 8.0
        if not -1000.0 < x < 1000.0:
            x = 1000.0 if x > 0 else -1000.0
        key = combine(combine(draw(self.seed, STATISTICS), column), target)
        return float(math.floor(x + unit(combine(key, category))))

    def read(self, cells: Sequence[Any], fold: int | None = None) -> tuple[Any, ...]:
        """The cells that trees read, of a query or of a sample that trains."""
        added = [self.value(j, cells[j], t, fold) for j in self.sources for t in range(self.n_targets)]
        stored = [
            RARE if j in self.sources and self.held[j, value] < self.least else value for j, value in enumerate(cells)
        ]
        return (*stored, *added)

    def of(self, sample: Sample) -> Sample:
        """A sample held as trees read it."""
        fold = self.fold(sample) if sample.id_hash in self.trained else None
        return sample._replace(cells=self.read(sample.cells, fold))
