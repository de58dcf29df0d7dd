"""The table of kinds: how one is built, what goes along with it, and what its histories are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from oubli.core.boosting.online import engine as online_engine
from oubli.core.boosting.presorted import state as presorted_table
from oubli.core.boosting.quantised import regions, split
from oubli.core.forest import engine as forest_engine
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.layout.blocks import CHOSEN
from oubli.core.tree import engine as tree_engine
from tests.histories import comparisons
from tests.histories.worlds import Chooser, History, World, awkward_world, learnable_world, without_signs
from tests.oracles import forest as forest_oracle
from tests.oracles.boosting import presorted, quantised, quantised_parts

MANY = 10**9
# None; whole ones; some that are not, so that the grid changes; none that is whole.
_WEIGHTS: tuple[tuple[float, ...], ...] = ((), (), (1, 2, 5), (*[1] * 9, 0.5), (0.3, 900.5, 1 / 256))
TASKS = ("classification", "classification", "regression")
LOSSES = ("squared_error", "squared_error", "quantile", "huber", "poisson")

# What happens: any order at all, and orders that an adversary would choose.
RANDOM = (
    *("add", "add", "add", "add batch", "add batch", "delete", "delete", "delete", "delete batch", "delete batch"),
    *("add again", "replace", "replace", "a class comes and goes", "recover", "add extremes"),
)
ADVERSARIAL = (
    *("add sorted", "add one class", "add one row", "add and delete"),
    *("delete one class", "delete one leaf", "delete oldest", "delete newest", "delete sorted"),
)
DRIFTING = ("slide", "slide", "slide", "slide", "drift", "add", "delete oldest")
LAZY = ("predict", "predict", "predict frozen", "resolve")
RARE = (
    *("delete everything", "refuse", "predict", "predict", "predict frozen"),
    *("recover", "recover", "scrub", "wipe", "verify", "fit", "restrict", "restrict", "release"),
)
FOREST = (
    *(*RANDOM[:5], *RANDOM[5:10], "add batch", "add batch", "delete everything", "add again", "add again"),
    *("replace", "replace", "refuse", "predict", "predict", "predict frozen", "resolve", "verify"),
    *("recover", "recover", "add extremes", "restrict", "restrict", "release"),
)
ANY = (*RANDOM, *ADVERSARIAL, *DRIFTING)
SINGLE = ("add", "add", "delete", "delete", "add one row", "delete oldest", "recover", "add extremes", "drift")
RESTRICTING = (
    *("restrict", "restrict", "restrict", "restrict", "release", "release", "add", "add batch", "delete", "replace"),
    *("add again", "recover", "recover", "verify", "predict"),
)


@contextmanager
def tuned_forest(
    counters_from: int = 2,
    replant_share: float = math.inf,
    n_chosen: int = CHOSEN,
    most_counters: int = ForestEngine.most_counters,
) -> Iterator[None]:
    """Let small models work as large ones do.

    Parameters
    ----------
    counters_from : samples from which on a node keeps candidate counters; by default far more than
        small data has, so that its counters would never be tested.
    replant_share : a batch of a larger share of the samples is not learned or unlearned one by one, but
        the trees are planted again; by default so small that all that happens to a few samples does
        that, and their updating would never be tested.
    n_chosen : samples of a node that its candidates depend on, at most; small data has fewer than the default.

    most_counters : classes up to which a leaf has a counter for each; small data has no more.

    None of them but `n_chosen` may show in the model.
    """

    def block_minimum(engine: ForestEngine) -> int:
        return counters_from if engine.smallest_block is None else engine.smallest_block

    with (
        patch.object(ForestEngine, "_block_minimum", block_minimum),
        patch.object(forest_engine, "_REPLANT_SHARE", replant_share),
        patch.object(ForestEngine, "n_chosen", n_chosen),
        patch.object(ForestEngine, "most_counters", most_counters),
        patch.object(forest_oracle, "CHOSEN", n_chosen),
    ):
        yield


def tuned_tree(rebuild_size: int = MANY) -> AbstractContextManager[Any]:
    """A batch of more samples, and of a tenth of those held, builds the tree again."""
    return patch.object(tree_engine, "_REBUILD_SIZE", rebuild_size)


def tuned_online(replant_share: float = math.inf) -> AbstractContextManager[Any]:
    """By default a batch of a fifth of the samples has all trees grown again, which is any batch of a small set."""
    if replant_share == math.inf:
        return patch.object(online_engine, "is_too_much", lambda n_moved, n_held: False)
    return nullcontext()


@contextmanager
def tuned_quantised(
    least_size: int = split.LEAST_SIZE, weak: float = regions._WEAK, large_size: int = split._LARGE_SIZE
) -> Iterator[None]:
    """Let small sets have regions.

    Parameters
    ----------
    least_size : log2 of the samples of a region; by default more than small sets have in all.
    weak : a first split that explains less than 1 / weak of the greatest variance takes a level of regions away; by
        default so little that in small sets chance alone explains more.
    large_size : log2 of the samples from which on a set is large, to which other numbers apply.
    """
    with (
        patch.object(split, "LEAST_SIZE", least_size),
        patch.object(quantised_parts, "LEAST", least_size),
        patch.object(regions, "_WEAK", weak),
        patch.object(quantised_parts, "WEAK", weak),
        patch.object(split, "_LARGE_SIZE", large_size),
        patch.object(quantised_parts, "LARGE", large_size),
    ):
        yield


def tuned_presorted(most_bins: int = presorted_table.MOST_BINS) -> AbstractContextManager[Any]:
    """Columns of more values are wide: they have no bins."""
    return patch.object(presorted_table, "MOST_BINS", most_bins)


def forest_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """Arguments of DynamicForest*."""
    criteria = ["gini", "entropy"] if world.task == "classification" else ["squared_error"]
    return {
        "n_estimators": choose.integer(1, 8),
        "occurrence": choose.one([1.0, 0.75, 0.5] if deep else [1.0, 0.5, 0.34, 0.2, 0.01]),
        "max_depth": choose.one([None] if deep else [None, 1, 2, 4]),
        "min_samples_split": choose.one([2, 2, 3] if deep else [2, 3, 5, 10]), "n_thresholds": choose.integer(1, 6),
        "max_features": choose.integer(1, choose.one([1, len(world.columns)])), "criterion": choose.one(criteria),
        "lazy": choose.one([True, True, False]), "disclosure": choose.one(["standard", "standard", "low"]),
        "random_state": choose.integer(0, 2 ** choose.one([2, 32, 62])),
    }  # fmt: skip


def tree_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """Arguments of DynamicTreeClassifier of all kinds, most of them outside of Theorem 3.2."""
    return {
        "max_depth": choose.one([None, 10, 10, 4, 2, 1, 0]), "pruning_size": choose.one([1, 1, 1, 2, 5]),
        "alpha": choose.one([0.0, 0.0, 0.0, 0.1, 0.4]), "beta": choose.one([0.0, 0.0, 0.2]),
        "epsilon": choose.one([0.0, 0.05, 0.1, 0.1, 0.3, 1.0, 2.0]), "lazy": choose.one([False, False, True]),
        "window": choose.one([None, None, None, 1, 8, 30]),
    }  # fmt: skip


def feasible_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """Parameters that meet Theorem 3.2, epsilon as large as it may be or a part of that."""
    k, alpha, beta = choose.one([1, 1, 2, 5, 20]), choose.one([0.05, 0.1, 0.2, 0.4]), choose.one([0.1, 0.2, 0.3, 0.45])
    bound = min(1 / (k + 1), alpha / 5, beta / 12.5)
    return {
        "max_depth": choose.one([None, 10, 4, 2, 1]), "pruning_size": k, "alpha": alpha, "beta": beta,
        "epsilon": choose.one([None, None, 0.999 * bound, 0.5 * bound]), "lazy": choose.one([False, False, True]),
        "window": choose.one([None, None, None, 100]),
    }  # fmt: skip


def boosted_parameters(choose: Chooser) -> dict[str, Any]:
    """Arguments that both kinds of boosting have."""
    return {
        "n_estimators": choose.integer(1, 6), "learning_rate": choose.one([0.1, 0.3, 1.0]),
        "max_bins": choose.one([2, 4, 17, 255]), "split_sampling": choose.one([0.1, 0.5, 1.0]),
        "l2_regularization": choose.one([0.0, 0.5, 1.0]), "min_child_weight": choose.one([0.0, 0.2, 1.0, 3.0]),
        "random_state": choose.integer(0, 2 ** choose.one([2, 32, 62])),
    }  # fmt: skip


def asked_loss(choose: Chooser, world: World, losses: Sequence[str] = LOSSES) -> dict[str, Any]:
    """A loss, now and then, of a set of numbers."""
    loss = choose.one(losses)
    if world.task != "regression":
        return {}
    if loss == "quantile":
        return {"loss": loss, "quantile": choose.one([0.1, 0.5, 0.98])}
    return {"loss": loss, "huber_delta": choose.one([None, 0.5, 100.0])} if loss == "huber" else {"loss": loss}


def asked_constraints(choose: Chooser, world: World, shares: Sequence[bool] = (False, False, True)) -> dict[str, Any]:
    """Monotone constraints, now and then; what a set cannot have is left out."""
    labels = {label for _, label in world.rows} | {label for phase in world.drifted for label in phase}
    numeric = [i for i, column in enumerate(world.columns) if column.type != "categorical"]
    if numeric and (world.task == "regression" or len(labels) <= 2) and choose.one(shares):
        return {"monotone_constraints": {i: choose.one([1, -1]) for i in numeric[: choose.integer(1, 2)]}}
    return {}


def quantised_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """Arguments of IncrementalBoosting*."""
    return {
        **boosted_parameters(choose), "max_depth": choose.one([1, 2, 3, 3, 5, 8]),
        "quantization": choose.one(["auto", "auto", (0.25, 0.125), (0.00390625, 0.00390625), (1.0, 1.0)]),
        "early_stopping": choose.one([None, None, None, 1, 2]), "validation_fraction": choose.one([0.1, 0.5]),
        "category_statistics": choose.one([None, 32, 1, 2, 3]), **asked_loss(choose, world),
        **asked_constraints(choose, world),
    }  # fmt: skip


def regional_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """The same with all candidates, so that few updates grow everything again."""
    return {**quantised_parameters(choose, world, deep), "max_bins": 255, "split_sampling": 1.0}


def presorted_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """The same without quantization."""
    return {**quantised_parameters(choose, world, deep), "quantization": None}


def online_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """Arguments of OnlineBoosting*."""
    return {
        **boosted_parameters(choose), "max_leaf_nodes": choose.one([2, 3, 5, 20]),
        "robustness": choose.one([0.0, 0.1, 0.3, 1.0]), **asked_loss(choose, world),
    }  # fmt: skip


def constrained_parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
    """The same with monotone constraints, which the oracle does not know."""
    return {**online_parameters(choose, world, deep), **asked_constraints(choose, world)}


ASKED = ("quantile", "huber", "poisson", "monotone constraints")


def asking(kind: Kind, what: str) -> Kind:
    """A kind of boosting whose worlds have numbers, and one of `ASKED`."""

    def parameters(choose: Chooser, world: World, deep: bool) -> dict[str, Any]:
        values = kind.parameters(choose, world, deep)
        if what == ASKED[-1]:
            return {**values, **asked_constraints(choose, world, [True])}
        for name in ("quantile", "huber_delta"):
            values.pop(name, None)
        return {**values, **asked_loss(choose, world, [what])}

    return replace(kind, parameters=parameters, tasks=("regression",), wide=())


@dataclass(frozen=True)
class Kind:
    """A kind of model, and how its histories are chosen.

    Attributes
    ----------
    name : of the row.
    kind : of the registry.
    comparison : what goes along with the model.
    parameters : chooses the estimator's arguments.
    worlds : awkward ones with trees that are "shallow" or "deep", or a "learnable" one, with "many" samples.
    mixtures : a history is made of the operations of one of them.
    tuned : lets small sets be treated as large ones are.
    tuning : values of its arguments to choose from.
    wide : tasks for which there are columns of float64. Kernels are compiled for each type of cells and labels, which
        takes most of a run with an empty cache: one of the four is left to the long tests.
    outcome : what an update came to, in a few words; of the engine's `last_update`.
    outcomes : what updates must have come to, in a run of histories.
    oracle : of incremental boosting; a module.
    has_weights : whether samples may have weights; some oracles know none.
    """

    name: str
    kind: str
    comparison: type[comparisons.Comparison]
    parameters: Callable[[Chooser, World, bool], dict[str, Any]]
    worlds: tuple[str, ...]
    mixtures: tuple[tuple[str, ...], ...]
    tuned: Callable[..., AbstractContextManager[Any]] = nullcontext
    tuning: dict[str, list[Any]] = field(default_factory=dict)
    tasks: tuple[str, ...] = TASKS
    wide: tuple[str, ...] = ("classification",)
    outcome: Callable[[Any], str] = str
    outcomes: frozenset[str] = frozenset()
    oracle: ModuleType | None = None
    has_weights: bool = False

    def choose_world(self, choose: Chooser, max_rows: int, which: str = "") -> World:
        """Choose a world."""
        which = which or choose.one(self.worlds)
        if which in ("learnable", "many"):
            world = learnable_world(choose, max_rows if which == "learnable" else 4 * max_rows, self.tasks)
        else:
            world = awkward_world(choose, max_rows, self.tasks, deep=which == "deep", wide_tasks=self.wide)
        tuning = {name: choose.one(values) for name, values in self.tuning.items()}
        weights = choose.one(_WEIGHTS) if self.has_weights else ()
        parameters = self.parameters(choose, world, which == "deep")
        world = replace(world, parameters=parameters, tuning=tuning, weights=weights)
        return without_signs(world) if parameters.get("loss") == "poisson" else world

    def choose_history(self, choose: Chooser, max_operations: int, max_rows: int) -> History:
        """Choose a history; it starts with a fit (of size 0: an empty model)."""
        world = self.choose_world(choose, max_rows)
        fit = ("fit", choose.one([0, len(world.rows) // 2, len(world.rows)]))
        operations = choose.one(self.mixtures)
        rest = [(choose.one(operations), choose.integer(1, 10)) for _ in range(choose.integer(1, max_operations))]
        return History(world, (fit, *rest), choose.integer(0, 2**16))

    def random_history(self, seed: int, max_operations: int, max_rows: int) -> History:
        """Make the history of a seed."""
        return self.choose_history(Chooser.of_seed(seed), max_operations, max_rows)

    def long_life(self, seed: int, n_operations: int) -> History:
        """Make a history of single mutations of a model with deep trees."""
        choose = Chooser.of_seed(seed)
        tuning = {
            "counters_from": choose.one([2, 5, 12, MANY]),
            "n_chosen": choose.one([2, 5, CHOSEN]),
            "most_counters": choose.one([2, ForestEngine.most_counters]),
        }
        world = replace(self.choose_world(choose, 60, "deep"), tuning=tuning)
        operations = [("fit", 40)]
        operations += [(choose.one(["add", "delete", "replace"]), choose.integer(1, 4)) for _ in range(n_operations)]
        return History(world, tuple(operations), seed)


@st.composite
def histories(draw: st.DrawFn, kind: Kind, max_operations: int, max_rows: int) -> History:
    """Draw a history that Hypothesis can shrink."""
    return kind.choose_history(Chooser.of_hypothesis(draw), max_operations, max_rows)


_TREE_MIXTURES = tuple((*one, *more) for one in (RANDOM, ADVERSARIAL, DRIFTING, ANY) for more in (LAZY, (*LAZY, *RARE)))
_TREE = Kind(
    "tree", "tree", comparisons.TreeOracle, tree_parameters, ("shallow", "learnable"), _TREE_MIXTURES,
    tuned_tree, {"rebuild_size": [MANY, MANY, 1, 4]}, ("classification",),
)  # fmt: skip
_BOOSTED_WORLDS = ("shallow", "deep", "learnable", "learnable", "many", "many")
_BOOSTED = (RANDOM, (*RANDOM, *RARE), (*ANY, *RARE))
_QUANTISED = Kind(
    "quantised", "incremental-boosting", comparisons.FreshFit, quantised_parameters, _BOOSTED_WORLDS, _BOOSTED,
    tuned_quantised, {"least_size": [split.LEAST_SIZE, split.LEAST_SIZE, 1, 3], "weak": [regions._WEAK, 4.0]},
    outcome=comparisons.outcome_of_quantised,
    outcomes=frozenset(
        {"nothing changed", "leaves changed", "subtrees grown again", "the rest grown again", "all grown again"}
    ),
    has_weights=True,
)  # fmt: skip
_PRESORTED = Kind(
    "presorted", "incremental-boosting", comparisons.FreshFit, presorted_parameters, _BOOSTED_WORLDS, _BOOSTED,
    tuned_presorted, {"most_bins": [presorted_table.MOST_BINS, 0, 5]}, outcome=comparisons.outcome_of_presorted,
    outcomes=frozenset({"nodes kept", "nodes changed", "roots changed"}), has_weights=True,
)  # fmt: skip
_ONLINE = Kind(
    "online", "online-boosting", comparisons.Twin, constrained_parameters, _BOOSTED_WORLDS, _BOOSTED, tuned_online,
    {"replant_share": [math.inf, math.inf, 0.2]}, outcome=comparisons.outcome_of_online,
    outcomes=frozenset({"splits kept", "subtrees retrained", "all grown again"}), has_weights=True,
)  # fmt: skip
ROWS = (
    Kind(
        "forest", "forest", comparisons.ForestOracle, forest_parameters, ("shallow", "deep"),
        (FOREST, FOREST, (*FOREST, *ANY, *RARE)), tuned_forest,
        {
            "counters_from": [2, 2, 5, 12, MANY], "replant_share": [math.inf, math.inf, 0.3, 0.08],
            "n_chosen": [2, 4, 8, CHOSEN], "most_counters": [2, 3, ForestEngine.most_counters],
        },
        has_weights=True,
    ),
    _TREE, replace(_TREE, name="feasible", parameters=feasible_parameters), _QUANTISED,
    replace(
        _QUANTISED, name="quantised oracle", oracle=quantised,
        tuning={**_QUANTISED.tuning, "least_size": [split.LEAST_SIZE, 1, 3], "large_size": [split._LARGE_SIZE, 5]},
    ),
    replace(
        _QUANTISED, name="regions", parameters=regional_parameters, worlds=("many",), mixtures=(SINGLE,),
        tasks=("classification", "regression"), tuning={"least_size": [4, 5, 6, 7], "weak": [regions._WEAK, 8.0, 4.0]},
    ),
    _PRESORTED, replace(_PRESORTED, name="presorted oracle", oracle=presorted), _ONLINE,
    replace(_ONLINE, name="online oracle", comparison=comparisons.OnlineOracle, parameters=online_parameters),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in ROWS}
