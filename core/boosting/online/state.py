"""What online boosting keeps of its trees, so that an update touches only the samples that come or go.

Every tree has room for J leaves, and nothing moves: 2 J - 1 nodes, the root first, then J - 1 pairs of children.

    place        0      1 2     3 4     5 6
    nodes     [ root | l r   | l r   | . .   ]      an inner node's `left` points at its pair; pair q is at 1 + 2 q
                       ^ q = 0
    stats     [ sums of the node whose children are pair q, by bin ]
    leaf      left children have the leaf number of their parent, the right child of pair q has q + 1

So leaves are numbered without a table, and a subtree that is retrained leaves all other numbers as they are.

Sums are packed (`gradient << shift) + hessian`, integers both: a sum of packed values is the packed sum. Of each
sample, `gh` is what it last contributed to each tree, but for its weight, and `leaf_of` where: these and the weights
decide every other sum here.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.bins import Bins
from oubli.core.boosting.online.split import Candidates
from oubli.core.boosting.state import LEAF, NODE
from oubli.core.boosting.weights import weighed
from oubli.core.jit.policy import inner, pasted

STATE = np.dtype(
    {
        "names": ["sums", "bin", "parent", "leaf", "in_use"],
        "formats": ["i8", "i4", "i4", "i4", "i4"],
        # sums:    packed sums of the samples that reach the node
        # bin:     of an inner node: the last bin that goes left, counted from the feature's first; the category's bin
        # parent:  place of the parent, NIL at the root
        # leaf:    the node's leaf number, also while it is an inner node
        # in_use:  1 while the node is in the tree
    }
)

NIL = -1

# With n the size of all samples (`weights.py`), below 2**24:
# Classification: g in [-1, 1] and h in [0, 1/4], 8 bits each: |G| <= 127 n and H <= 255 n, below 2**31 and 2**32.
SHIFT_OF_CLASSES = 32
G_SCALE = 127.0
H_SCALE = 8 * G_SCALE
# Regression: h is the weight in steps of 2**-weight_bits, which are as fine as H < 2**24 allows; the scale of g is
# chosen so that |G| < 2**39.
SHIFT_OF_NUMBERS = 24
G_BITS = 39
# A regression by a loss whose curvature differs by sample has h in 8 bits, packed as in a classification; |G| < 2**31.
H_MOST = 255.0

_BYTE = np.int64(8)
_LOW_BYTE = np.int64(255)
_OFFSET = np.uint64(255)


class Forest(NamedTuple):
    """The trees, iteration-major: tree m * groups + k; T trees of P = 2 J - 1 nodes, S slots, R bins."""

    nodes: Any  # NODE[T * P]: what predictions read
    states: Any  # STATE[T * P]
    stats: npt.NDArray[np.int64]  # int64[T, J - 1, R]: packed sums by bin of every inner node
    values: npt.NDArray[np.float64]  # float64[T, J]: values by leaf number; 0 where there is no leaf
    gh: Any  # int16[T, S], g * 256 + h; regression: int32, g, or the same where curvatures differ
    leaf_of: npt.NDArray[np.uint8]  # uint8[T, S]: leaf number of each sample

    @property
    def n_trees(self) -> int:
        """T."""
        return int(self.stats.shape[0])

    @property
    def n_places(self) -> int:
        """P: nodes that a tree has room for."""
        return 2 * int(self.stats.shape[1]) + 1

    @property
    def roots(self) -> npt.NDArray[np.int32]:
        """Rows of the roots."""
        return np.arange(self.n_trees, dtype=np.int32) * np.int32(self.n_places)


class Rules(NamedTuple):
    """What decides splits and values, in the units of the sums."""

    shift: int  # bits of a packed hessian
    weight_bits: int  # regression: h is 2**weight_bits by weight 1
    l2: float  # what is added to hessians
    least: int  # hessian that each side of a split has to have
    factor: float  # a leaf's value is -factor * G / (H + l2)
    limit: float  # its largest size
    robustness: float  # share of the candidates among which a split may rank and stay
    directions: npt.NDArray[np.int64]  # int64[d]: 1 or -1 of a column with a monotone constraint; empty when none has


def blank_states(n_trees: int, n_places: int) -> npt.NDArray[Any]:
    """States of trees that are a leaf without samples."""
    states = np.zeros(n_trees * n_places, STATE)
    states["parent"] = NIL
    states["in_use"][::n_places] = 1
    return states


def blank_nodes(n_trees: int, n_places: int) -> npt.NDArray[Any]:
    """Nodes of trees that are a leaf of value 0."""
    nodes = np.zeros(n_trees * n_places, NODE)
    nodes["feature"] = LEAF
    return nodes


def blank_forest(n_trees: int, n_leaves: int, n_bins: int, n_slots: int, *, is_classification: bool) -> Forest:
    """Trees that are a leaf without samples."""
    n_places = 2 * n_leaves - 1
    return Forest(
        blank_nodes(n_trees, n_places),
        blank_states(n_trees, n_places),
        np.zeros((n_trees, n_leaves - 1, n_bins), np.int64),
        np.zeros((n_trees, n_leaves)),
        np.zeros((n_trees, n_slots), np.int16 if is_classification else np.int32),
        np.zeros((n_trees, n_slots), np.uint8),
    )


@pasted
def unpack(stored, rules):
    """The packed derivatives of a sample of weight 1 from what `gh` says."""
    if rules.shift == SHIFT_OF_NUMBERS:
        return (np.int64(stored) << np.int64(SHIFT_OF_NUMBERS)) + (np.int64(1) << np.int64(rules.weight_bits))
    return ((np.int64(stored) >> _BYTE) << np.int64(SHIFT_OF_CLASSES)) + (np.int64(stored) & _LOW_BYTE)


@pasted
def contribution_of(model, tree, slot):
    """What a sample adds to the sums of a tree: its packed derivatives, rounded up or down by its id when weighed."""
    packed = unpack(model.forest.gh[tree, slot], model.rules)
    if model.units.shape[0] == 0:
        return packed
    shift = np.int64(model.rules.shift)
    units, offset = np.int64(model.units[slot]), np.int64(model.id_hashes[slot] & _OFFSET)
    h = weighed(packed & ((np.int64(1) << shift) - np.int64(1)), units, offset)
    return (weighed(packed >> shift, units, offset) << shift) + h


@pasted
def value_of(sums, rules):
    """Value of a leaf (Algorithm 1, line 7) from its packed sums."""
    shift = np.int64(rules.shift)
    gradient = np.float64(sums >> shift)
    hessian = np.float64(sums & ((np.int64(1) << shift) - np.int64(1))) + rules.l2
    if hessian <= 0.0:
        return 0.0
    return min(max(-(gradient * rules.factor) / hessian, -rules.limit), rules.limit)


@pasted
def row_of(forest, tree, place):
    """Row of a place of a tree in `nodes` and `states`."""
    return tree * (2 * forest.stats.shape[1] + 1) + place


@pasted
def children_of(forest, tree, place):
    """Place of an inner node's left child, or NIL of a leaf."""
    row = row_of(forest, tree, place)
    if forest.nodes[row]["feature"] == LEAF:
        return NIL
    return np.int64(forest.nodes[row]["left"]) - row_of(forest, tree, 0)


@inner
def list_below(forest, tree, place, found):
    """Write a place and all places below it to int64[P], parents before children; returns how many there are."""
    found[0] = place
    n_found, i = 1, 0
    while i < n_found:
        left = children_of(forest, tree, found[i])
        if left != NIL:
            found[n_found], found[n_found + 1] = left, left + 1
            n_found += 2
        i += 1
    return n_found


@inner
def _bounded(forest, rules, tree, place, value):
    """A leaf's value within the bounds of monotone constraints: the middle of the children of each node above.

    The bounds of nodes further up come last, so that they hold in any case.
    """
    parent = np.int64(forest.states[row_of(forest, tree, place)]["parent"])
    while parent != NIL:
        direction = rules.directions[forest.nodes[row_of(forest, tree, parent)]["feature"]]
        left = children_of(forest, tree, parent)
        if direction != 0:
            row = row_of(forest, tree, left)
            own, other = value_of(forest.states[row]["sums"], rules), value_of(forest.states[row + 1]["sums"], rules)
            middle = 0.5 * own + 0.5 * other
            value = min(value, middle) if (place == left) == (direction > 0) else max(value, middle)
        place, parent = parent, np.int64(forest.states[row_of(forest, tree, parent)]["parent"])
    return value


@pasted
def write_value(forest, rules, tree, place):
    """Write the value of a leaf, which follows from its sums."""
    row = row_of(forest, tree, place)
    value = value_of(forest.states[row]["sums"], rules)
    if rules.directions.shape[0] > 0:
        value = _bounded(forest, rules, tree, place, value)
    forest.nodes[row]["value"] = value
    forest.values[tree, forest.states[row]["leaf"]] = value


@inner
def write_values_of(forest, rules, tree):
    """Write the values of all leaves of a tree from the sums."""
    for place in range(2 * forest.stats.shape[1] + 1):
        row = row_of(forest, tree, place)
        if forest.states[row]["in_use"] != 0 and forest.nodes[row]["feature"] == LEAF:
            write_value(forest, rules, tree, place)


@pasted
def clear_state(forest, row):
    """Give a node's place back."""
    state = forest.states[row]
    state["sums"] = 0
    state["parent"] = np.int32(NIL)
    state["leaf"] = np.int32(0)
    state["in_use"] = np.int32(0)


class Model(NamedTuple):
    """The trees, what decides their splits and values, and what samples count for."""

    forest: Forest
    bins: Bins
    candidates: Candidates
    rules: Rules
    units: npt.NDArray[np.int32]  # int32[n_slots]: weights; empty when all are 1
    id_hashes: npt.NDArray[np.uint64]  # uint64[n_slots]


class Labels(NamedTuple):
    """What derivatives are computed from, besides scores."""

    id_hashes: npt.NDArray[np.uint64]
    class_codes: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int32]  # int32[n_codes]: number of each class code among the trees of an iteration
    y: npt.NDArray[np.float64]  # float64[n_slots]: of a regression; else empty
    base: npt.NDArray[np.float64]  # float64[K]
    unit: float
    scale: float  # of the gradients of a regression; 0.0: classification
    limit: int  # largest gradient of a regression
    kind: int  # of a regression's loss, as in `core/boosting/loss.py`; 0: squared error
    level: float
    band: float
    curvature: float  # from a curvature to an integer
