"""The text of a LightGBM model, read and followed in plain Python, one row at a time.

After the documentation of LightGBM and what its own predictions are seen to do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

CATEGORY, LEFT_IF_MISSING = 1, 2
ZERO = 1e-35  # numbers up to this size are taken for 0


class Tree:
    """One tree, from its lines by name."""

    def __init__(self, lines: dict[str, str]) -> None:
        parts = {name: value.split() for name, value in lines.items()}

        def whole(name: str) -> list[int]:
            return list(map(int, parts.get(name, [])))

        self.values = list(map(float, parts["leaf_value"]))
        assert whole("num_leaves") == [len(self.values)]
        self.features, self.kinds = whole("split_feature"), whole("decision_type")
        self.thresholds = list(map(float, parts.get("threshold", [])))
        self.lefts, self.rights = whole("left_child"), whole("right_child")
        ends, words = whole("cat_boundaries"), whole("cat_threshold")
        self.sets = [
            {32 * i + bit for i, word in enumerate(words[first:behind]) for bit in range(32) if word >> bit & 1}
            for first, behind in pairwise(ends)
        ]
        assert whole("num_cat") == [len(self.sets)]

    def leaf(self, row: Sequence[float]) -> int:
        """The number of the leaf that a row reaches."""
        node = 0 if len(self.values) > 1 else -1
        while node >= 0:
            x, kind = row[self.features[node]], self.kinds[node]
            assert kind >> 2 == 2, "missing values are no zeros"
            if kind & CATEGORY:
                is_left = not math.isnan(x) and x >= 0 and int(x) in self.sets[int(self.thresholds[node])]
            elif math.isnan(x):
                is_left = bool(kind & LEFT_IF_MISSING)
            else:
                is_left = (0.0 if abs(x) <= ZERO else x) <= self.thresholds[node]
            node = self.lefts[node] if is_left else self.rights[node]
        return ~node


class Booster:
    """A model as LightGBM understands its text."""

    def __init__(self, text: str) -> None:
        head, _, rest = text.partition("\n\n")
        self.head = dict(line.partition("=")[::2] for line in head.splitlines())
        assert text.startswith("tree\nversion=v4\n")
        self.trees: list[Tree] = []
        for size in map(int, self.head["tree_sizes"].split()):
            block, rest = rest[:size], rest[size:]
            assert block.startswith(f"Tree={len(self.trees)}\n")
            assert block.endswith("\n\n")
            lines = dict(line.partition("=")[::2] for line in block.strip().splitlines())
            self.trees.append(Tree(lines))
        assert rest.startswith("end of trees\n")
        self.n_outputs = int(self.head["num_tree_per_iteration"])
        assert self.head["num_class"] == self.head["num_tree_per_iteration"]
        assert len(self.trees) % self.n_outputs == 0

    def leaves(self, row: Sequence[float]) -> list[int]:
        """The number of the leaf in each tree."""
        return [tree.leaf(row) for tree in self.trees]

    def raw(self, row: Sequence[float]) -> list[float]:
        """The sum of the leaves by output, or their mean."""
        sums = [0.0] * self.n_outputs
        for number, tree in enumerate(self.trees):
            sums[number % self.n_outputs] += tree.values[tree.leaf(row)]
        if "average_output" in self.head:
            return [one / (len(self.trees) // self.n_outputs) for one in sums]
        return sums

    def predict(self, row: Sequence[float]) -> list[float]:
        """What the objective makes of the raw scores."""
        raw = self.raw(row)
        match self.head.get("objective", "").split(" ")[0]:
            case "binary":
                return [1 / (1 + math.exp(-raw[0]))]
            case "poisson":
                return [math.exp(raw[0])]
            case "multiclass":
                powers = [math.exp(one - max(raw)) for one in raw]
                return [power / sum(powers) for power in powers]
        return raw
