"""Bins of `online-boosting` and the candidates among them: Appendix A of the paper, and section 3.3."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.oracles.boosting.trees import bits
from tests.oracles.common import MISSING_CATEGORY, Column, combine, mix
from tests.oracles.splits import Split

LARGEST = math.ldexp(1 - 2.0**-53, 1024)


def algorithm_4(values: Sequence[float], max_bins: int) -> list[float]:
    """Edges halfway between neighbouring bins of sorted distinct values.

    A bin begins at a value and holds all up to the bin width above it; the width is doubled until there are at most
    `max_bins`.
    """
    width = 2e-10 * (values[-1] / 2 - values[0] / 2)
    while True:
        start, edges = values[0], []
        for before, value in pairwise(values):
            if value - start > width:
                start = value
                middle = before + (value - before) / 2
                edges.append(middle if middle < value else before)
        if len(edges) < max_bins:
            return edges
        width *= 2


@dataclass
class NumericBins:
    """Edges of a numeric column: those inside are drawn from, those beyond the ends are always candidates."""

    inside: list[float]
    below: list[float]
    above: list[float]


@dataclass
class CategoryBins:
    """Categories of a column: those of the start by hash, and those that came later, as long as there is room."""

    known: list[int]
    room: int
    late: list[int] = field(default_factory=list)

    def meet(self, category: int) -> None:
        """Take note of a category."""
        if category not in (MISSING_CATEGORY, *self.known, *self.late) and len(self.late) < self.room:
            self.late.append(category)


def numeric_bins(values: Sequence[float], max_bins: int) -> NumericBins:
    """Bins of a numeric column: those of Algorithm 4, and some beyond each end, each twice as wide."""
    distinct = sorted(set(values))
    if not distinct:
        return NumericBins([], [], [])
    low, high = distinct[0], distinct[-1]
    inside = algorithm_4(distinct, max_bins)
    step = high / 8 - low / 8 if high > low else max(abs(high), 1.0)
    factors = [0.0, 1.0, 3.0] if len(inside) >= 24 else [] if len(inside) == 1 else [0.0]
    steps = [step * factor for factor in factors]
    above = [min(high + s, LARGEST) for s in steps]
    below = [max(math.nextafter(low, -math.inf) - s, -LARGEST) for s in reversed(steps)]
    return NumericBins(inside, below, above)


def make_bins(
    rows: Sequence[Sequence[Any]], columns: Sequence[Column], max_bins: int
) -> list[NumericBins | CategoryBins]:
    """Bins of all columns; a function of the set of values."""
    result: list[NumericBins | CategoryBins] = []
    for j, column in enumerate(columns):
        values = [row[j] for row in rows]
        if column.type == "categorical":
            known = sorted({value for value in values if value != MISSING_CATEGORY})
            result.append(CategoryBins(known, 2 + len(known) // 8))
        else:
            result.append(numeric_bins([value for value in values if value is not None], max_bins))
    return result


def drawn(words: Sequence[int], share: float, few: int, feature: int, iteration: int, seed: int) -> list[int]:
    """Places of the words drawn: so large a share, or `few` if that is more; the smallest hash of equal stretches."""
    n = max(math.ceil(share * len(words) - 1e-9), min(len(words), few))
    key = combine(combine(combine(mix(seed), 3), feature), iteration)
    stretches = [range(i * len(words) // n, (i + 1) * len(words) // n) for i in range(n)]
    return [min(stretch, key=lambda place: combine(key, words[place])) for stretch in stretches]


def candidates(bins: Sequence[NumericBins | CategoryBins], share: float, iteration: int, seed: int) -> list[Split]:
    """Splits that the trees of an iteration look at, feature by feature, in the order in which they are preferred.

    A threshold comes twice, the one that sends missing values right first; where none is missing only that one counts.
    """
    result: list[Split] = []
    for feature, part in enumerate(bins):
        if isinstance(part, CategoryBins):
            chosen = drawn(part.known, share, 64, feature, iteration, seed)
            categories = [MISSING_CATEGORY, *(part.known[i] for i in chosen), *part.late]
            result += [Split(feature, category=category) for category in categories]
        else:
            chosen = drawn([bits(edge) for edge in part.inside], share, 3, feature, iteration, seed)
            edges = [*part.below, *(part.inside[i] for i in chosen), *part.above]
            result += [Split(feature, edge, missing_left) for edge in edges for missing_left in (False, True)]
            result.append(Split(feature, math.inf))
    return result
