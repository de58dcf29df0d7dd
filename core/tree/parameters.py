"""The tree's constructor parameters, checked and turned into numbers; and what they promise."""

import math
from dataclasses import dataclass
from typing import Any

from oubli.core.base import check_number, draw_seed
from oubli.core.errors import InputError
from oubli.core.tree.engine import MAX_DEPTH, MAX_SAMPLES, TreeSettings

EXACT_BELOW = 2**31 - 1


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


def read_parameters(params: dict[str, Any]) -> TreeParameters:
    """Check a tree's parameters.

    Parameters
    ----------
    params : the constructor's parameters by name.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    depth, window = params["max_depth"], params["window"]
    if depth is not None:
        check_number("max_depth", depth, low=0, high=MAX_DEPTH)
    check_number("pruning_size", params["pruning_size"], low=1, high=EXACT_BELOW)
    for name in ("alpha", "beta"):
        check_number(name, params[name], low=0, high=1, integral=False)
        if params[name] == 1:
            raise InputError(f"{name}={params[name]!r} must be below 1")
    if window is not None:
        check_number("window", window, low=1, high=MAX_SAMPLES)
    alpha, beta, pruning_size = float(params["alpha"]), float(params["beta"]), int(params["pruning_size"])
    tree = TreeSettings(
        max_depth=MAX_DEPTH if depth is None else int(depth),
        pruning_size=pruning_size,
        alpha=alpha,
        epsilon=_read_epsilon(params["epsilon"], epsilon_bound(alpha, beta, pruning_size)),
    )
    seed = draw_seed(params["random_state"])
    return TreeParameters(tree, beta, None if window is None else int(window), seed)


def _read_epsilon(epsilon: Any, bound: float) -> float:
    """Check epsilon; None stands for the largest number below the bound."""
    if epsilon is not None:
        check_number("epsilon", epsilon, low=0, integral=False)
        if not math.isfinite(epsilon):
            raise InputError("epsilon must be finite: max_depth=0 makes a tree that is never built anew")
        return float(epsilon)
    if bound == 0.0:
        raise InputError("epsilon=None is derived from alpha and beta: make both greater than 0, or give epsilon")
    return math.nextafter(bound, 0.0)
