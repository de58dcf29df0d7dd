"""Scores, the best candidate and the rank of a split, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.online.grow import make_space
from oubli.core.boosting.online.split import NO_BIN, best_split, keeps_its_place
from oubli.core.boosting.online.state import Rules, value_of
from oubli.core.jit.policy import kernel

SHIFT = 24


def _rules(robustness: float = 0.0, least: int = 1, l2: float = 0.0) -> Rules:
    return Rules(SHIFT, l2, least, 1.0, robustness)


@kernel
def _best(histogram, first, categorical, total, rules, space):
    return best_split(histogram, first, categorical, total, rules, space)


@kernel
def _keeps(histogram, first, categorical, total, rules, space, current, missing_left):
    return keeps_its_place(histogram, first, categorical, total, rules, space, current, missing_left)


@kernel
def _value(sums, rules):
    return value_of(sums, rules)


class Node:
    """A node of one or more features, given the gradient and the number of samples of every bin."""

    def __init__(self, *features: list[tuple[int, int]], categorical: tuple[bool, ...] = (False, False)) -> None:
        self.histogram = np.array([(g << SHIFT) + h for bins in features for g, h in bins], np.int64)
        self.first = np.cumsum([0, *map(len, features)]).astype(np.uint32)
        self.categorical = np.array(categorical[: len(features)])
        self.total = int(self.histogram[: len(features[0])].sum())
        self.space = make_space(0, len(self.histogram), 2)

    def best(self, **rules: Any) -> tuple[float, int, int]:
        """Gain, bin and direction."""
        return _best(self.histogram, self.first, self.categorical, self.total, _rules(**rules), self.space)

    def keeps(self, current: int, missing_left: int = 0, **rules: Any) -> bool:
        """Whether a split keeps its place."""
        node = self.histogram, self.first, self.categorical, self.total
        return bool(_keeps(*node, _rules(**rules), self.space, current, missing_left))


def test_the_best_threshold() -> None:
    """Bins of gradients -3, -3, 4, 2 with one sample each: 36 / 2 + 36 / 2 for the middle, and nothing missing."""
    node = Node([(-3, 1), (-3, 1), (4, 1), (2, 1), (0, 0)])
    assert node.best() == (36.0, 1, 0)


def test_missing_values_go_where_the_gain_is_larger() -> None:
    node = Node([(-3, 1), (4, 1), (-3, 1)])
    assert node.best() == (9 + 9 + 16 - 9 - 9 - 4 / 3 + 8, 0, 1) or node.best()[1:] == (0, 1)
    assert node.best()[0] == pytest.approx(36 / 2 + 16 - 4 / 3)
    # Missing against the rest: the last candidate of the feature, and no other is as good.
    node = Node([(3, 1), (3, 1), (-9, 1)])
    gain, best, missing_left = node.best()
    assert (best, missing_left) == (1, 0)
    assert gain == pytest.approx(36 / 2 + 81 - 9 / 3)


def test_a_category_against_the_rest() -> None:
    node = Node([(1, 1), (-8, 2), (1, 1), (0, 3)], categorical=(True,))
    gain, best, _ = node.best()
    assert best == 1
    assert gain == pytest.approx(64 / 2 + 4 / 5 - 36 / 7)
    # The last bin holds all others: it can not be split off.
    node = Node([(0, 1), (0, 1), (-9, 1)], categorical=(True,))
    assert node.best()[1] == 0


def test_of_equal_gains_the_lower_number_wins() -> None:
    bins = [(-1, 1), (1, 1), (0, 0)]
    assert Node(bins, bins).best()[1] == 0
    assert Node([(-1, 1), (0, 0), (1, 1), (0, 0)]).best()[1] == 0


def test_without_a_gain_there_is_no_split() -> None:
    assert Node([(2, 1), (2, 1), (4, 2), (0, 0)]).best()[1] == NO_BIN
    assert Node([(5, 1), (0, 0), (0, 0)]).best()[1] == NO_BIN
    assert Node([(-5, 1), (5, 1), (0, 0)]).best(least=2)[1] == NO_BIN


def test_the_hessian_that_each_side_has_to_have() -> None:
    bins = [(-9, 1), (1, 1), (1, 1), (2, 1), (0, 0)]
    assert Node(bins).best()[1] == 0
    assert Node(bins).best(least=2)[1] == 1


# Scores of the four thresholds of the next node: 16 + 16 / 4, 36 / 2 + 36 / 3, 25 / 3 + 25 / 2, 4 / 4 + 4: ranks 3, 1,
# 2 and 4 of 4.
RANKED = Node([(-4, 1), (-2, 1), (1, 1), (3, 1), (2, 1), (0, 0)])
RANKS = [3, 1, 2, 4]


@pytest.mark.parametrize("robustness", [0.0, 0.1, 0.25, 0.26, 0.5, 0.51, 0.75, 0.76, 1.0])
def test_a_split_stays_while_it_ranks_among_the_share_of_sigma(robustness: float) -> None:
    allowed = max(1, int(np.ceil(robustness * 4)))
    kept = [RANKED.keeps(current, robustness=robustness) for current in range(4)]
    assert kept == [rank <= allowed for rank in RANKS]


def test_equal_gains_share_the_better_rank() -> None:
    bins = [(-1, 1), (1, 1), (0, 0)]
    node = Node(bins, bins)
    assert node.keeps(0)
    assert node.keeps(3)


def test_a_split_that_is_no_candidate_any_more_is_the_worst() -> None:
    node = Node([(0, 0), (-1, 1), (1, 1), (0, 0)])
    assert node.keeps(1)
    assert not node.keeps(0)
    assert not node.keeps(0, robustness=0.5)
    assert node.keeps(0, robustness=1.0)


def test_both_directions_of_missing_values_are_candidates() -> None:
    """Thresholds: one; with its missing value left: one more; missing against the rest: a third."""
    node = Node([(-3, 1), (4, 1), (-3, 1)])
    assert node.keeps(0, missing_left=1)
    assert not node.keeps(0, missing_left=0)
    # Right: 9 + 1 / 2; the rest against the missing: 1 / 2 + 9: they share rank 2 of 3.
    assert not node.keeps(0, missing_left=0, robustness=1 / 3)
    assert node.keeps(0, missing_left=0, robustness=0.5)
    assert node.keeps(1, missing_left=0, robustness=0.5)


def test_without_missing_values_their_direction_does_not_matter() -> None:
    node = Node([(-3, 1), (4, 1), (0, 0)])
    assert node.keeps(0, missing_left=1)
    assert node.keeps(0, missing_left=0)


def test_values_of_leaves() -> None:
    assert _value((-6 << SHIFT) + 3, _rules()) == 2.0
    assert _value((-6 << SHIFT) + 3, _rules(l2=1.0)) == 1.5
    assert _value(0, _rules()) == 0.0
