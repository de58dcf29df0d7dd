"""The forest, slowly: what `oubli.core.forest` must equal bit for bit, in plain Python.

A forest is a pure function of its parameters, its column types and the *set* of samples held. This
file is that function and nothing else: no store, no slots, no counters that are kept, no tags. A
delete is a fit without the sample. It shares no code with `core` and uses NumPy for three things only:
rounding to float32, the neighbour of a float, and the sum of importances.

A node is a nested dict:

    {"n": 3, "amount": 3, "statistics": (2, 1), "split": None}                     a leaf
    {"n": 9, "amount": 9, "statistics": (5, 4), "split": (attribute, candidate), "rule": {...},
     "left": {...}, "right": {...}}                                                 an inner node

`n` counts samples, and `amount` their weights: in units of 1/256, unless all samples of the forest have whole ones. So
do `statistics`, which are the class counts in canonical class order, or, for regression, the one-element
tuple of the sum of quantised targets. A rule is one of

    {"kind": "threshold", "threshold": 1.5, "missing_left": False}     left: x <= threshold
    {"kind": "one-vs-rest", "category": 0x1234}                        left: hash(x) == category
    {"kind": "subset", "key": 0x5678}                                  left: top bit of mix(key ^ hash(x))

One function a rule of the semantics, in the order in which they are needed.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tests.oracles import common

Node = dict[str, Any]
Rule = dict[str, Any]


class Row(NamedTuple):
    """A sample as a user gives it."""

    id: str
    features: tuple[Any, ...]
    label: Any
    weight: float = 1.0


@dataclass(frozen=True)
class Parameters:
    """What decides the forest, with every default resolved to a number."""

    seed: int = 0
    n_estimators: int = 10
    occurrence: float = 1.0
    max_depth: int | None = None
    min_samples_split: int = 2
    n_thresholds: int = 3
    n_attributes: int = 2
    criterion: str = "gini"
    has_low_disclosure: bool = False


@dataclass(frozen=True)
class Forest:
    """The result: one nested dict a tree (None: no samples), and what reading them needs."""

    parameters: Parameters
    columns: tuple[common.Column, ...]
    task: str
    classes: tuple[Any, ...]
    exponent: int
    trees: tuple[Node | None, ...]
    is_whole: bool = True


class _Sample(NamedTuple):
    """A sample as a tree sees it: floats (None: missing) and category hashes; class index or target."""

    cells: tuple[Any, ...]
    target: int
    id_hash: int
    amount: int = 1
    weighed: int = 0  # the target times the weight, rounded


# --- OCC(q): which trees hold a sample ------------------------------------------------------------


def occurrences(n_estimators: int, occurrence: float) -> int:
    """In how many trees each sample is."""
    return min(n_estimators, max(1, math.ceil(occurrence * n_estimators - 1e-9)))


def hash_of_values(cells: Sequence[Any], columns: Sequence[common.Column]) -> int:
    """What draws the trees of a row with low disclosure: its numbers as float32 has them, its categories' hashes."""
    key = 0
    for value, column in zip(cells, columns, strict=True):
        if column.type == "categorical":
            key = common.combine(key, value)
        elif value is None:
            key = common.combine(key, common.WORD - 1)
        else:
            sign, exponent, bits = float32_parts(value)
            if exponent == 255:
                key = common.combine(key, common.WORD - 2 - (sign == 0))
                continue
            # As a fraction from 1/2 to 1 in units of 2**-53, and a power of two.
            digits = bits + (exponent > 0) * 2**23
            shift = 53 - digits.bit_length()
            power = 0 if digits == 0 else max(exponent, 1) - 150 + digits.bit_length()
            fraction = (digits << shift) * (-1) ** sign if digits else 0
            key = common.combine(common.combine(key, fraction % common.WORD), 4096 + power)
    return key


def float32_parts(value: float) -> tuple[int, int, int]:
    """Sign, exponent and fraction bits of the nearest float32."""
    with np.errstate(over="ignore"):
        (word,) = struct.unpack("<I", struct.pack("<f", np.float32(value)))
    return word >> 31, word >> 23 & 255, word & (2**23 - 1)


def drawn_of(hashed: int, parameters: Parameters) -> tuple[list[int], list[int]]:
    """The trees that hold a sample, decided by the hash of its id, or of its values with low disclosure; the others."""
    key = common.sample_key(parameters.seed, hashed)
    k = occurrences(parameters.n_estimators, parameters.occurrence)
    order = common.shuffled(parameters.n_estimators, k, lambda i: common.combine(key, i))
    return order[:k], order[k:]


# --- a node ---------------------------------------------------------------------------------------


def statistics(samples: Sequence[_Sample], n_classes: int) -> tuple[int, ...]:
    """Class counts in canonical order, or the sum of quantised targets (n_classes = 0)."""
    if n_classes == 0:
        return (sum(sample.weighed for sample in samples),)
    counts = [0] * n_classes
    for sample in samples:
        counts[sample.target] += sample.amount
    return tuple(counts)


def amount_of(samples: Sequence[_Sample]) -> int:
    """What samples count for together."""
    return sum(sample.amount for sample in samples)


def attribute_order(node_key: int, n_features: int) -> list[int]:
    """All attributes in the node's own order."""
    key = common.combine(node_key, 2)
    return common.shuffled(n_features, n_features, lambda i: common.combine(key, i))


def is_constant(samples: Sequence[_Sample], attribute: int) -> bool:
    """Whether all cells are equal, a missing one being equal to a missing one."""
    return len({sample.cells[attribute] for sample in samples}) <= 1


CHOSEN = 32


def chosen_of(node_key: int, samples: Sequence[_Sample]) -> list[_Sample]:
    """The samples that decide which candidates there are: those with small hashes, some 16 to 32 of a large node."""
    size = 1.0 + common.unit(common.combine(node_key, 4))
    while size < len(samples):
        size *= 2.0
    if size <= CHOSEN:
        return list(samples)
    limit = 2 * int(CHOSEN / size * 2.0**63)
    return [sample for sample in samples if common.mix(node_key ^ sample.id_hash) <= limit] or list(samples)


def attributes_of(node_key: int, samples: Sequence[_Sample], p: int) -> list[int]:
    """The node's attributes: the first p of its order in which the chosen samples differ; others fill what is left."""
    order = attribute_order(node_key, len(samples[0].cells))
    chosen = chosen_of(node_key, samples)
    spread = [a for a in order if not is_constant(chosen, a)]
    others = [a for a in order if is_constant(chosen, a) and not is_constant(samples, a)]
    return [*spread, *others][:p]


def is_leaf(samples: Sequence[_Sample], depth: int, parameters: Parameters) -> bool:
    """Too small, too deep, pure, or without anything to split on."""
    return (
        len(samples) < parameters.min_samples_split
        or (parameters.max_depth is not None and depth >= parameters.max_depth)
        or len({sample.target for sample in samples}) <= 1
        or all(is_constant(samples, a) for a in range(len(samples[0].cells)))
    )


# --- candidates -----------------------------------------------------------------------------------


def neighbour(value: float, towards: float, kind: type[Any]) -> float:
    """The next float of the kind in a direction."""
    with np.errstate(over="ignore"):  # behind the largest number is infinity
        return float(np.nextafter(kind(value), kind(towards)))


def cell_scale(lo: float, hi: float, s: int) -> float | None:
    """1 / g for the largest g = 2^e or 1.5 * 2^e with (hi - lo) / g >= max(1, 0.8 s); None near the limits.

    In float64, from half of the range, which never overflows.
    """
    mantissa, exponent = math.frexp((hi * 0.5 - lo * 0.5) / max(4 * s / 5, 1.0))
    if not -1000 <= exponent <= 1000 or mantissa == 0.0:
        return None
    if mantissa < 0.75:  # g = 2^exponent, for the whole range is twice the half
        return math.ldexp(1.0, -exponent)
    return math.ldexp(4.0 / 3.0, -exponent - 1)  # g = 1.5 * 2^exponent


def thresholds(attr_key: int, lo: float, hi: float, s: int, kind: type[Any]) -> list[tuple[int, float]]:
    """The candidates between lo < hi: (number, threshold) of each cell's end but the last's.

    A value x is in cell floor(x / g + phase). The threshold of cell m is the largest value of the kind
    that is in it or below.
    """
    scale, phase = cell_scale(lo, hi, s), common.unit(common.combine(attr_key, 0))
    if scale is None:
        return [(0, lo)]
    place = lambda x: x * scale + phase  # noqa: E731
    most = int(1.5 * max(1.0, 0.8 * s)) + 2
    first, last = math.floor(place(lo)), math.floor(place(hi))
    if not (first > -(2**53) and last < 2**53 and 1 <= last - first < most):
        return [(0, lo)]  # float64 cannot tell the cells apart
    result = []
    for number in range(first, last):
        low, high = lo, hi  # invariant: low is in a cell <= number, high in one above
        guess = float(kind((number + 1 - phase) / scale))
        for x in (guess, neighbour(guess, -math.inf, kind), neighbour(guess, math.inf, kind)):
            if low < x < high:
                low, high = (x, high) if math.floor(place(x)) <= number else (low, x)
        while neighbour(low, math.inf, kind) < high:
            middle = float(kind(low + (high - low) / 2))
            if not low < middle < high:
                middle = neighbour(low, math.inf, kind)
            low, high = (middle, high) if math.floor(place(middle)) <= number else (low, middle)
        result.append((number, low + 0.0))
    return result


def numeric_rules(
    chosen: Sequence[float | None], cells: Sequence[float | None], attr_key: int, s: int, kind: type[Any]
) -> list[Rule]:
    """The candidates of a numeric or boolean attribute that is not constant."""
    values = [x for x in chosen if x is not None]
    missing_alone = {"kind": "threshold", "threshold": math.inf, "missing_left": False}
    if not values:
        return [missing_alone]
    lo, hi = min(values), max(values)
    if lo < hi:
        found = thresholds(attr_key, lo, hi, s, kind)
    elif None in chosen:  # the chosen samples differ in that alone
        return [missing_alone]
    elif any(x is not None and x > lo for x in cells):
        found = [(0, lo)]
    elif any(x is not None and x < lo for x in cells):
        found = [(0, neighbour(lo, -math.inf, kind))]
    else:
        return [missing_alone]
    coins = common.combine(attr_key, 1)
    return [
        {
            "kind": "threshold",
            "threshold": t,
            "missing_left": common.top_bit(common.combine(coins, number % common.WORD)),
        }
        for number, t in found
    ]


def category_rules(chosen: Sequence[int], attr_key: int, s: int) -> list[Rule | None]:
    """The candidates of a categorical attribute: one category against the rest, or a subset.

    None stands for a candidate that tells the isolated categories apart like one of the first 64 before it.
    """
    rules: list[Rule] = []
    for j in range(s):
        key = common.combine(attr_key, j)
        if j % 2 == 0:
            isolated = min(set(chosen), key=lambda h: common.mix(key ^ h))
            rules.append({"kind": "one-vs-rest", "category": isolated})
        else:
            rules.append({"kind": "subset", "key": key})
    known = {rule["category"] for rule in rules[:64:2]}
    seen: set[frozenset[frozenset[int]]] = set()
    kept: list[Rule | None] = []
    for j, rule in enumerate(rules):
        passed = frozenset(h for h in known if goes_left(h, rule))
        division = frozenset({passed, frozenset(known - passed)})
        kept.append(None if division in seen else rule)
        if j < 64:
            seen.add(division)
    return kept


def goes_left(value: Any, rule: Rule) -> bool:
    """The side of a cell."""
    if rule["kind"] == "one-vs-rest":
        return bool(value == rule["category"])
    if rule["kind"] == "subset":
        return common.top_bit(common.mix(rule["key"] ^ value))
    if value is None:
        return bool(rule["missing_left"])
    return bool(value <= rule["threshold"])


def rules_of(
    node_key: int, attribute: int, samples: Sequence[_Sample], columns: Sequence[common.Column], s: int
) -> Sequence[Rule | None]:
    """All candidates of one attribute of a node, in the order of their index j."""
    attr_key = common.combine(common.combine(node_key, 3), attribute)
    cells = [sample.cells[attribute] for sample in samples]
    chosen = [sample.cells[attribute] for sample in chosen_of(node_key, samples)]
    if columns[attribute].type == "categorical":
        return category_rules(chosen, attr_key, s)
    return numeric_rules(chosen, cells, attr_key, s, common.threshold_type(columns))


# --- scores: the larger the better ----------------------------------------------------------------


def gini(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    """Sum over both sides of (sum of squared counts) / n, by one division."""
    square_left, n_left = float(sum(c * c for c in left)), float(sum(left))
    square_right, n_right = float(sum(c * c for c in right)), float(sum(right))
    return (square_left * n_right + square_right * n_left) / (n_left * n_right)


def xlog2x(count: int) -> int:
    """count * log2(count) in units of 2^-24, from + - * / in a fixed order, halves up.

    count = mantissa * 2^exponent with mantissa in (sqrt(1/2), sqrt(2)], and, with
    z = (m - 1) / (m + 1), log2 m = 2 / ln 2 * (z + z^3 / 3 + z^5 / 5 + ... + z^21 / 21).
    """
    if count < 2:
        return 0
    exponent = count.bit_length() - 1
    mantissa = float(count) / float(2**exponent)
    if mantissa > 1.4142135623730951:
        mantissa /= 2.0
        exponent += 1
    z = (mantissa - 1.0) / (mantissa + 1.0)
    series = 1.0 / 21.0
    for power in (19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
        series = series * (z * z) + 1.0 / float(power)
    value = float(count) * (float(exponent) + 2.8853900817779268 * (z * series))
    return math.floor(value * 2.0**24 + 0.5)


def entropy(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    """Minus the size-weighted entropy of the two sides, a sum of integers."""
    terms = [xlog2x(c) for c in left + right]
    return float(sum(terms) - xlog2x(sum(left)) - xlog2x(sum(right)))


def squared_error(left_sum: int, total: int, n_left: int, n_right: int) -> float:
    """The decrease of the squared error, up to a factor that is the same for all candidates."""
    n = float(n_left + n_right)
    d = float(left_sum) - float(total) * (float(n_left) / n)
    return d * d / (float(n_left) * float(n_right))


def score(left: Sequence[_Sample], right: Sequence[_Sample], n_classes: int, criterion: str) -> float:
    """The score of one candidate, from integers only."""
    a, b = statistics(left, n_classes), statistics(right, n_classes)
    if criterion == "squared_error":
        return squared_error(a[0], a[0] + b[0], amount_of(left), amount_of(right))
    return gini(a, b) if criterion == "gini" else entropy(a, b)


# --- building -------------------------------------------------------------------------------------


def grow(
    samples: Sequence[_Sample],
    node_key: int,
    depth: int,
    n_classes: int,
    columns: Sequence[common.Column],
    parameters: Parameters,
) -> Node:
    """The subtree of these samples."""
    node: Node = {"n": len(samples), "amount": amount_of(samples), "split": None}
    node["statistics"] = statistics(samples, n_classes)
    if is_leaf(samples, depth, parameters):
        return node
    best = -math.inf
    for attribute in sorted(attributes_of(node_key, samples, parameters.n_attributes)):
        rules = rules_of(node_key, attribute, samples, columns, parameters.n_thresholds)
        for j, rule in enumerate(rules):
            if rule is None:
                continue
            left = [sample for sample in samples if goes_left(sample.cells[attribute], rule)]
            right = [sample for sample in samples if not goes_left(sample.cells[attribute], rule)]
            if not left or not right:
                continue
            value = score(left, right, n_classes, parameters.criterion)
            if value > best:  # ties: the lower attribute, then the lower j
                best = value
                node.update(split=(attribute, j), rule=rule, left=left, right=right)
    for side, v in (("left", 0), ("right", 1)):
        node[side] = grow(node[side], common.combine(node_key, v), depth + 1, n_classes, columns, parameters)
    return node


def fit(rows: Sequence[Row], parameters: Parameters, columns: Sequence[common.Column], task: str) -> Forest:
    """The forest of a set of samples; their order does not matter."""
    labels = [row.label for row in rows]
    classes: tuple[Any, ...] = ()
    exponent = 0
    if task == "classification":
        classes = common.canonical_classes(labels)
        index = {(type(c).__name__, c): i for i, c in enumerate(classes)}
        targets = [index[type(label).__name__, label] for label in labels]
    else:
        exponent = common.scale_exponent([float(y) for y in labels])
        targets = [common.quantised(float(y), exponent) for y in labels]
    is_whole = all(float(row.weight).is_integer() for row in rows)
    members: list[list[_Sample]] = [[] for _ in range(parameters.n_estimators)]
    for row, target in zip(rows, targets, strict=True):
        cells = tuple(common.cell(v, c) for v, c in zip(row.features, columns, strict=True))
        units = math.floor(256 * row.weight + 0.5)
        amount, weighed = units // 256 if is_whole else units, (target * units + 128) // 256
        id_hash = common.hash_bytes(row.id.encode("utf-8"))
        hashed = hash_of_values(cells, columns) if parameters.has_low_disclosure else id_hash
        for t in drawn_of(hashed, parameters)[0]:
            members[t].append(_Sample(cells, target, id_hash, amount, weighed))
    trees = tuple(
        grow(members[t], common.tree_key(parameters.seed, t), 0, len(classes), columns, parameters)
        if members[t]
        else None
        for t in range(parameters.n_estimators)
    )
    return Forest(parameters, tuple(columns), task, classes, exponent, trees, is_whole)


# --- reading --------------------------------------------------------------------------------------


def leaf_of(tree: Node, cells: Sequence[Any]) -> Node:
    """The leaf that a row of cells reaches."""
    while tree["split"] is not None:
        attribute, _ = tree["split"]
        tree = tree["left"] if goes_left(cells[attribute], tree["rule"]) else tree["right"]
    return tree


def leaf_value(leaf: Node) -> list[float]:
    """Class shares, or the mean of the quantised targets, of one leaf."""
    return [float(c) / float(leaf["amount"]) for c in leaf["statistics"]]


def average(forest: Forest, features: Sequence[Any]) -> list[float]:
    """Leaf values summed in tree order over the trees with samples, divided by their number.

    With low disclosure only those that the row does not draw, in the order that its draws leave.
    """
    cells = [common.cell(v, c) for v, c in zip(features, forest.columns, strict=True)]
    numbers: Sequence[int] = range(len(forest.trees))
    if forest.parameters.has_low_disclosure:
        _, numbers = drawn_of(hash_of_values(cells, forest.columns), forest.parameters)
    trees = [tree for tree in (forest.trees[t] for t in numbers) if tree is not None]
    totals = [0.0] * max(1, len(forest.classes))
    for tree in trees:
        for i, value in enumerate(leaf_value(leaf_of(tree, cells))):
            totals[i] += value
    return [total / float(max(1, len(trees))) for total in totals]


def predict_proba(forest: Forest, queries: Sequence[Sequence[Any]]) -> list[list[float]]:
    """Class probabilities, one row a query, in canonical class order."""
    averages = [average(forest, features) for features in queries]
    return [banded(one) for one in averages] if forest.parameters.has_low_disclosure else averages


def banded(shares: list[float]) -> list[float]:
    """The largest share in the middle of its quarter, of which what is below 1 / n is cut off; the others are equal."""
    n, most = len(shares), max(shares)
    if n == 1:
        return [1.0]
    quarter = min(math.floor(4 * most), 3)
    told = (max(quarter / 4, 1 / n) + (quarter + 1) / 4) / 2 if most > 0 else 1 / n
    winner = shares.index(most)
    return [told if i == winner else (1 - told) / (n - 1) for i in range(n)]


def predict(forest: Forest, queries: Sequence[Sequence[Any]]) -> list[Any]:
    """The most probable class (ties: the smaller one), or the mean target, scaled back at the end."""
    if forest.task == "regression":
        means = [average(forest, features)[0] for features in queries]
        return [math.ldexp(mean, forest.exponent - 38 + (0 if forest.is_whole else 8)) for mean in means]
    return [forest.classes[row.index(max(row))] for row in predict_proba(forest, queries)]


# --- importances ----------------------------------------------------------------------------------


def breadth_first(root: Node) -> list[Node]:
    """All nodes of a tree, level by level."""
    nodes = [root]
    for node in nodes:
        if node["split"] is not None:
            nodes += [node["left"], node["right"]]
    return nodes


def gain(node: Node, criterion: str) -> float:
    """What a split gains: its score less that of the node left whole, weighted by samples."""
    left, right, whole = (one["statistics"] for one in (node["left"], node["right"], node))
    n, amount_left = node["amount"], node["left"]["amount"]
    if criterion == "squared_error":
        return squared_error(left[0], whole[0], amount_left, n - amount_left) * float(n)
    if criterion == "gini":
        return gini(left, right) - float(sum(c * c for c in whole)) / float(n)
    return entropy(left, right) - float(sum(xlog2x(c) for c in whole) - xlog2x(n))


def feature_importances(forest: Forest) -> list[float]:
    """Each attribute's share of the gains, averaged over the trees that gain anything.

    Gains are summed from the last node of the level order to the first, and those of many attributes as NumPy does.
    """
    importances = [0.0] * len(forest.columns)
    for tree in forest.trees:
        gains = [0.0] * len(forest.columns)
        for node in reversed(breadth_first(tree) if tree is not None else []):
            if node["split"] is not None:
                gains[node["split"][0]] += gain(node, forest.parameters.criterion)
        total = float(np.sum(gains))
        if total > 0:
            importances = [a + b / total for a, b in zip(importances, gains, strict=True)]
    total = float(np.sum(importances))
    return [a / total for a in importances] if total > 0 else importances
