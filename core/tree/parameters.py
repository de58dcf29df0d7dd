"""The parameters of a tree, checked and turned into numbers, and the guarantee that follows from them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oubli.core.errors import InputError
from oubli.core.parameters import Parameter, check_parameters, class_weight, n_jobs, random_state, share, whole

MAX_DEPTH = 64
MAX_SAMPLES = 2**26  # 2^52 is exact in float64, see `split.py`
EXACT_BELOW = 2**31 - 1

PARAMETERS = (
    Parameter("lazy", bool, False, "Put rebuilding off until a query needs it.", is_setting=False),
    whole(
        "max_depth",
        10,
        "Greatest depth of a tree; without it trees grow until their leaves are pure or small.",
        low=0,
        limit=MAX_DEPTH,
        optional=True,
    ),
    whole("pruning_size", 1, "Samples up to which a node of a `tree` is a leaf (k).", 1, EXACT_BELOW),
    share("alpha", 0.0, "Gini index of a `tree`'s node below which it need not be split.", "high"),
    share(
        "beta",
        0.0,
        "How far the gain of a `tree`'s split may be from the best one's; with `alpha` it bounds `epsilon`.",
        opens="high",
    ),
    Parameter(
        "epsilon",
        float,
        0.1,
        "Share of a `tree`'s node that may change before it is rebuilt, or `derived` from `alpha` and `beta`.",
        low=0,
        optional=True,
        none_word="derived",
    ),
    whole(
        "window",
        None,
        "Maximum number of samples that a `tree` holds: each further sample deletes the oldest.",
        low=1,
        limit=MAX_SAMPLES,
        optional=True,
    ),
    class_weight(),
    random_state("Draws nothing; every kind has it."),
    n_jobs(),
)


@dataclass(frozen=True)
class TreeSettings:
    """The parameters that the kernels read.

    Attributes
    ----------
    max_depth : h, from 0 to MAX_DEPTH.
    pruning_size : k, at least 1; a node with at most k samples is a leaf.
    alpha : a node with a Gini index of at most alpha / 2 is a leaf.
    epsilon : share of a node's samples that may come and go before it is rebuilt.
    """

    max_depth: int
    pruning_size: int
    alpha: float
    epsilon: float


@dataclass(frozen=True)
class TreeParameters:
    """The parameters of a model, all defaults resolved to numbers.

    Attributes
    ----------
    tree : those that the kernels read.
    beta : what a split's gain may be below the best one's.
    window : samples held at most, or None.
    seed : what `random_state` said; the tree draws nothing.
    """

    tree: TreeSettings
    beta: float
    window: int | None
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """The settings as a model file has them."""
        return asdict(self)

    @property
    def is_feasible(self) -> bool:
        """Whether Theorem 3.2 holds, so that the tree is (alpha, beta)-feasible at all times."""
        tree = self.tree
        return 0.0 < tree.epsilon < epsilon_bound(tree.alpha, self.beta, tree.pruning_size)


def epsilon_bound(alpha: float, beta: float, pruning_size: int) -> float:
    """What epsilon has to be below for the tree to be (alpha, beta)-feasible: min(1 / (k + 1), alpha / 5, beta / 12.5).

    That is Theorem 3.2, for two classes. It holds for any number, and for splits on categories and missing
    values, with g(S) = 1 - sum p_c^2. Let h(S) = |S| g(S) = |S| - Q / |S|, where Q is the sum of the squared class
    counts. One more sample of a class with m of the n samples changes h by n (1 - 2 m / n + Q / n^2) / (n + 1), and
    since (m / n)^2 <= Q / n^2 <= (m / n)^2 + (1 - m / n)^2 that is at least 0 and below 2. So, with D the number of
    edits from S to S', a split fixed, and n the larger of both sizes:

    *   |S| G(S) = h(S) - h(left) - h(right). An edit changes h(S) and one side by as much as [0, 2) each, so |S| G
        by less than 2, and G by at most (2 D + G D) / n <= 3 D / n. The paper has 12.5 D / n.
    *   The best split when the node was built gains at most 6 D / n less than another one now, twice the above. (A
        factor of 2 is lost between (37) and (38) in the paper's proof of Lemma A.3; the sharper constant
        makes up for it.) As D <= epsilon |S|, epsilon < beta / 6 is enough for condition 2.
    *   A leaf of g(S) <= alpha / 2 has g(S') < alpha as long as D < alpha |S| / 4: with i inserts and r removals
        h grows by less than 2 i, and alpha (|S| + i - r) <= h(S') would need alpha |S| / 2 < (2 - alpha) i + alpha r.
        An inner node with h(S) > alpha |S| / 2 comes to h = 0 by alpha |S| / 4 removals at least. So
        epsilon < alpha / 4 is enough for condition 1, beside 1 / (k + 1) for the sizes.

    Both are larger than what the paper asks for, which is therefore enough.
    """
    return min(1 / (pruning_size + 1), alpha / 5, beta / 12.5)


def read_settings(params: Mapping[str, Any]) -> TreeParameters:
    """Check a tree's parameters.

    Parameters
    ----------
    params : the constructor's parameters by name.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    values = check_parameters(PARAMETERS, params)
    depth, alpha, beta, pruning_size = (values[name] for name in ("max_depth", "alpha", "beta", "pruning_size"))
    epsilon = _read_epsilon(values["epsilon"], epsilon_bound(alpha, beta, pruning_size))
    tree = TreeSettings(MAX_DEPTH if depth is None else depth, pruning_size, alpha, epsilon)
    return TreeParameters(tree, beta, values["window"], values["seed"])


def _read_epsilon(epsilon: float | None, bound: float) -> float:
    """The number that epsilon stands for; None stands for the largest below the bound."""
    if epsilon is not None:
        return epsilon
    if bound == 0.0:
        raise InputError("epsilon=None is derived from alpha and beta: make both greater than 0, or give epsilon")
    return math.nextafter(bound, 0.0)
