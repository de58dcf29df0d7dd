"""`online-boosting`, slowly: robust LogitBoost with best-first trees, and updates in place.

Of every sample and tree it is kept what the sample last contributed, an integer gradient and an integer hessian, but
for its weight. All sums are taken again from these and the weights whenever they are needed; nothing else is kept but
the trees themselves.

Algorithms are those of "Online Gradient Boosting Decision Tree" (Lin, Chung, Lao, Zhao 2025).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.boosting.online_bins import CategoryBins, candidates, make_bins
from tests.oracles.boosting.online_loss import (
    G_STEPS,
    H_STEPS,
    NumberLoss,
    class_derivatives,
    loss_of,
    near_sigmoid,
    near_softmax,
)
from tests.oracles.boosting.trees import Ensemble, Node, Sample, Sums
from tests.oracles.common import Column
from tests.oracles.splits import Split, sides

HAIR = 1.0 + 2.0**-40


@dataclass(frozen=True)
class Parameters:
    """The estimator's, with the seed resolved."""

    n_estimators: int
    learning_rate: float
    max_leaf_nodes: int
    max_bins: int
    split_sampling: float
    robustness: float
    l2_regularization: float
    min_child_weight: float
    random_state: int
    loss: str = "squared_error"
    quantile: float = 0.5
    huber_delta: float | None = None


def size_of(samples: Iterable[Sample]) -> int:
    """Their number, each counted as its weight rounded up."""
    return sum(math.ceil(sample.weight) for sample in samples)


class OnlineBoosting:
    """Trees and samples."""

    def __init__(
        self, parameters: Parameters, columns: Sequence[Column], task: str, *, grows_for_batches: bool = True
    ) -> None:
        self.parameters = parameters
        self.grows_for_batches = grows_for_batches
        self.columns = tuple(columns)
        self.task = task
        self.samples: dict[str, Sample] = {}
        self.forget()

    def forget(self) -> None:
        """Have no trees."""
        self.classes: list[Any] = []  # those that there are trees of, in order
        self.groups = 0
        self.trees: list[list[Node]] = []  # by iteration and group
        self.given: list[list[dict[str, Sums]]] = []  # what each sample last contributed, by iteration and group
        self.drawn: dict[int, list[Split]] = {}
        self.n_grown = 0
        self.numbers: NumberLoss | None = None  # of a regression
        self.tolerance = 0.0  # of the update at hand: sigma, or less for few samples

    def ensemble(self) -> Ensemble:
        """What predictions read."""
        if not self.groups:
            return Ensemble([], [])
        base, unit = (self.numbers.scale.base, self.numbers.scale.unit) if self.numbers else (0.0, 1.0)
        return Ensemble(self.trees, [base] * self.groups, self.parameters.learning_rate * unit)

    # --- derivatives and sums ---------------------------------------------------------------------

    def scores(self, name: str, iteration: int) -> list[float]:
        """Raw scores of a sample before an iteration, by the trees as they are."""
        whole = self.ensemble()
        return Ensemble(self.trees[:iteration], whole.base, whole.unit).scores(self.samples[name].cells)

    def derive(self, name: str, iteration: int) -> list[Sums]:
        """What a sample contributes to the trees of an iteration."""
        sample, scores = self.samples[name], self.scores(name, iteration)
        if self.numbers is not None:
            return [self.numbers.derive(scores[0], sample.label, sample.id_hash, iteration)]
        rank = self.classes.index(sample.label)
        if self.groups == 1:
            return [class_derivatives(near_sigmoid(scores[0]), rank, sample.id_hash, iteration)]
        shares = near_softmax(scores)
        return [class_derivatives(p, int(k == rank), sample.id_hash, iteration) for k, p in enumerate(shares)]

    def weighed(self, name: str, iteration: int, k: int) -> Sums:
        """What a sample counts for, rounded up or down by its id; a hessian of 1 in as fine steps as there is room."""
        sample, (g, h) = self.samples[name], self.given[iteration][k][name]
        offset = sample.id_hash & 255
        return Sums(sample.weighed(g, offset), sample.weighed(h * self.fine, offset))

    def sums(self, names: Iterable[str], iteration: int, k: int) -> Sums:
        """What some samples contribute together."""
        given = [self.weighed(name, iteration, k) for name in names]
        return Sums(sum(one.g for one in given), sum(one.h for one in given))

    @property
    def fine(self) -> int:
        """Steps of a hessian that is 1 for every sample, so that weights leave a trace in it."""
        if self.numbers is None or self.numbers.steps:
            return 1
        return 2 ** min(max(self.numbers.scale.limit.bit_length() - 16, 0), 8)

    @property
    def l2(self) -> float:
        """In the unit of the hessians."""
        return self.parameters.l2_regularization * (self.numbers.ordinary * self.fine if self.numbers else H_STEPS)

    @property
    def least(self) -> int:
        """Hessian that each side has to have, at least 1."""
        weight, numbers = self.parameters.min_child_weight, self.numbers
        needed = weight * numbers.ordinary * numbers.least if numbers else weight * H_STEPS
        return max(1, math.ceil(needed)) * self.fine

    def value(self, total: Sums) -> float:
        """Line 7 of Algorithm 1."""
        limit = math.inf
        if self.numbers:
            scale, limit = self.numbers.scale, self.numbers.limit
            factor = (self.numbers.steps or self.fine) / scale.unit / scale.scale
        else:
            factor = ((self.groups - 1) / self.groups if self.groups > 1 else 1.0) * (H_STEPS / G_STEPS)
        weight = float(total.h) + self.l2
        return max(-limit, min(-(float(total.g) * factor) / weight, limit)) if weight > 0.0 else 0.0

    def score(self, left: Sums, total: Sums) -> float | None:
        """Both sides' G^2 / (H + l2), None where a side is too light."""
        if left.h < self.least or total.h - left.h < self.least:
            return None
        a, b = float(left.g), float(total.g - left.g)
        c, d = float(left.h) + self.l2, float(total.h - left.h) + self.l2
        return (a * a * d + b * b * c) / (c * d)

    def unsplit(self, total: Sums) -> float:
        """The same of a node that is not split."""
        weight = float(total.h) + self.l2
        return float(total.g) * float(total.g) / weight if weight > 0.0 else 0.0

    # --- candidates of a node ---------------------------------------------------------------------

    def splits(self, iteration: int) -> list[Split]:
        """The candidates of an iteration; they are the same until a category comes that was not there."""
        if iteration not in self.drawn:
            p = self.parameters
            self.drawn[iteration] = candidates(self.bins, p.split_sampling, iteration, p.random_state)
        return self.drawn[iteration]

    def scored(self, names: Sequence[str], iteration: int, k: int) -> list[tuple[Split, float]]:
        """The candidates of a node with their scores, in the order in which they are preferred.

        Missing values may go left only where there are some that contribute anything.
        """
        rows = [self.samples[name].cells for name in names]
        given = [self.weighed(name, iteration, k) for name in names]
        total = self.sums(names, iteration, k)
        has_missing = [
            self.sums([i for i in names if self.samples[i].cells[j] is None], iteration, k) != Sums(0, 0)
            for j in range(len(self.columns))
        ]
        splits = [one for one in self.splits(iteration) if has_missing[one.feature] or not one.missing_left]
        lefts = sides(splits, rows).astype(np.int64) @ np.array(given, np.int64).reshape(-1, 2)
        result = []
        for split, (g, h) in zip(splits, lefts.tolist(), strict=True):
            score = self.score(Sums(g, h), total)
            if score is not None:
                result.append((split, score))
        return result

    def best_split(self, names: Sequence[str], iteration: int, k: int) -> tuple[float, Split] | None:
        """The first of the best candidates that gain anything, with its gain."""
        unsplit = self.unsplit(self.sums(names, iteration, k))
        best: tuple[float, Split] | None = None
        for split, score in self.scored(names, iteration, k):
            if score > (unsplit * HAIR if best is None else best[0]):
                best = score, split
        return None if best is None else (best[0] - unsplit, best[1])

    def keeps_its_place(self, split: Split, names: Sequence[str], iteration: int, k: int) -> bool:
        """Section 3.4: whether a split ranks among the best max(1, ceil(tolerance * candidates)) of its node.

        One that has come to have too light a side ranks behind all others.
        """
        scored = self.scored(names, iteration, k)
        missing = [name for name in names if self.samples[name].cells[split.feature] is None]
        if self.sums(missing, iteration, k) == Sums(0, 0):
            split = Split(split.feature, split.threshold, category=split.category)
        own = dict(scored).get(split)
        if own is None:
            n_better, n_candidates = len(scored), len(scored) + 1
        else:
            n_better, n_candidates = sum(score > own * HAIR for _, score in scored), len(scored)
        return n_better < max(1, math.ceil(self.tolerance * n_candidates - 1e-9))

    # --- growing ----------------------------------------------------------------------------------

    def grow(self) -> None:
        """Algorithm 1 on all samples."""
        self.forget()
        self.classes = sorted({sample.label for sample in self.samples.values()}) if self.is_classification else []
        if not self.samples or len(self.classes) == 1:
            return
        self.groups = len(self.classes) if len(self.classes) > 2 else 1
        self.n_grown = size_of(self.samples.values())
        if not self.is_classification:
            targets = [sample.label for sample in self.samples.values()]
            units = [round(256 * sample.weight) for sample in self.samples.values()]
            self.numbers = loss_of(targets, units, 2 * self.n_grown, self.parameters)
        rows = [sample.cells for sample in self.samples.values()]
        self.bins = make_bins(rows, self.columns, self.parameters.max_bins)
        for iteration in range(self.parameters.n_estimators):
            derived = {name: self.derive(name, iteration) for name in self.samples}
            self.given.append([{name: sums[k] for name, sums in derived.items()} for k in range(self.groups)])
            roots = [Node() for _ in range(self.groups)]
            for k, root in enumerate(roots):
                self.grow_at(root, list(self.samples), iteration, k, self.parameters.max_leaf_nodes)
            self.trees.append(roots)

    @property
    def is_classification(self) -> bool:
        """Whether labels are classes."""
        return self.task == "classification"

    def grow_at(self, top: Node, names: list[str], iteration: int, k: int, budget: int) -> None:
        """Grow a subtree of at most so many leaves, best first; of equal leaves the one that was opened first."""
        leaves = [(top, names)]
        while len(leaves) < budget:
            found = [self.best_split(names, iteration, k) for _, names in leaves]
            gains = [0.0 if one is None else one[0] for one in found]
            place = gains.index(max(gains))
            best = found[place]
            if best is None or best[0] <= 0.0:
                break
            node, names = leaves[place]
            node.split, node.left, node.right = best[1], Node(), Node()
            left = [i for i in names if best[1].goes_left(self.samples[i].cells)]
            leaves[place] = node.left, left
            leaves.append((node.right, [i for i in names if i not in set(left)]))
        for leaf, names in leaves:
            leaf.value = self.value(self.sums(names, iteration, k))

    # --- updating ---------------------------------------------------------------------------------

    def is_too_much(self, n_moved: int, n_held: int) -> bool:
        """Whether a batch has all trees grown again: more than a fifth, or many and more than a sixtieth."""
        return self.grows_for_batches and (5 * n_moved > n_held or (n_moved > 100 and 60 * n_moved > n_held))

    def add(self, samples: dict[str, Sample]) -> None:
        """Incremental learning (Algorithms 2 and 3)."""
        n_after, n_moved = size_of((*self.samples.values(), *samples.values())), size_of(samples.values())
        labels = {sample.label for sample in samples.values()}
        self.samples.update(samples)
        n_classes = len({sample.label for sample in self.samples.values()}) if self.is_classification else 0
        groups = n_classes if n_classes > 2 else int(n_classes != 1)
        grows = self.groups == 0 or n_after > 2 * self.n_grown or self.is_too_much(n_moved, n_after)
        if self.is_classification:
            grows = grows or (groups != self.groups and min(groups, self.groups) < 3)
        elif self.numbers is not None:
            grows = grows or max(abs(y - self.numbers.center) for y in labels) > self.numbers.scale.reach
        if grows:
            self.grow()
            return
        new = self.admit_classes(labels) if groups > self.groups else []
        self.drawn = {}
        for sample in samples.values():
            for part, value in zip(self.bins, sample.cells, strict=True):
                if isinstance(part, CategoryBins):
                    part.meet(value)
        self.update(samples, new, comes=True)

    def delete(self, names: Sequence[str]) -> None:
        """Decremental learning; a class whose last sample leaves takes its trees along."""
        gone = {name: self.samples.pop(name) for name in names}
        if not self.samples:
            self.forget()
            return
        if self.is_too_much(size_of(gone.values()), size_of(self.samples.values())):
            self.grow()
        elif self.groups:
            self.update(gone, [], comes=False)
        if self.is_classification and {sample.label for sample in self.samples.values()} != set(self.classes):
            self.drop_classes()

    def admit_classes(self, labels: set[Any]) -> list[int]:
        """Appendix M: an unseen class gets trees, leaves of 0 so far; the factor (K - 1) / K of all others changes."""
        classes = sorted({*self.classes, *labels})
        new = [k for k, label in enumerate(classes) if label not in self.classes]
        for roots, given in zip(self.trees, self.given, strict=True):
            for k in new:
                roots.insert(k, Node())
                given.insert(k, dict.fromkeys(self.samples, Sums(0, 0)))
        self.classes, self.groups = classes, len(classes)
        self.value_all_leaves()
        return new

    def drop_classes(self) -> None:
        """Drop the trees of classes that no sample is of; with two left, or one, all trees are grown again."""
        left = sorted({sample.label for sample in self.samples.values()})
        if len(left) < 3:
            self.grow()
            return
        kept = [self.classes.index(label) for label in left]
        self.trees = [[roots[k] for k in kept] for roots in self.trees]
        self.given = [[given[k] for k in kept] for given in self.given]
        self.classes, self.groups = left, len(left)
        self.value_all_leaves()

    def value_all_leaves(self) -> None:
        """Compute all leaves' values from what is there."""
        for iteration, roots in enumerate(self.trees):
            for k, root in enumerate(roots):
                for leaf in root.leaves():
                    names = [i for i in self.given[iteration][k] if root.leaf_of(self.samples[i].cells) is leaf]
                    leaf.value = self.value(self.sums(names, iteration, k))

    def update(self, batch: dict[str, Sample], new: list[int], *, comes: bool) -> None:
        """Algorithm 2: tree by tree; of a class in `new` the trees are grown from the root."""
        rows = [sample.cells for sample in batch.values()]
        share = 50.0 * size_of(batch.values()) / size_of(self.samples.values())
        self.tolerance = self.parameters.robustness * (0.1 if share < 0.1 else min(share, 1.0))
        for iteration in range(self.parameters.n_estimators):
            derived = {name: self.derive(name, iteration) for name in batch} if comes else {}
            for k, root in enumerate(self.trees[iteration]):
                given = self.given[iteration][k]
                for name in batch:
                    given.pop(name, None)
                    if comes:
                        given[name] = derived[name][k]
                if k in new:
                    self.retrain(root, root, iteration, k)
                else:
                    self.update_tree(root, rows, iteration, k)

    def update_tree(self, root: Node, rows: Sequence[Sequence[Any]], iteration: int, k: int) -> None:
        """Algorithm 3: ask the nodes that the batch reaches, by ascending depth."""
        queue = [(root, list(self.samples), list(rows))]
        while queue:
            node, names, rows = queue.pop(0)
            if node.split is None:
                node.value = self.value(self.sums(names, iteration, k))
            elif not self.keeps_its_place(node.split, names, iteration, k):
                self.retrain(root, node, iteration, k)
            else:
                for child, is_left in ((node.left, True), (node.right, False)):
                    assert child is not None
                    there = [row for row in rows if node.split.goes_left(row) is is_left]
                    inside = [i for i in names if node.split.goes_left(self.samples[i].cells) is is_left]
                    if there:
                        queue.append((child, inside, there))

    def retrain(self, root: Node, node: Node, iteration: int, k: int) -> None:
        """Train a subtree again on derivatives that are up to date, with its leaves and those the tree may yet have."""
        inside = set(map(id, node.leaves()))
        names = [i for i in self.samples if id(root.leaf_of(self.samples[i].cells)) in inside]
        budget = self.parameters.max_leaf_nodes - len(root.leaves()) + len(inside)
        for name in names:
            self.given[iteration][k][name] = self.derive(name, iteration)[k]
        node.split = node.left = node.right = None
        self.grow_at(node, names, iteration, k, budget)
