"""The parameters of a forest, checked and turned into numbers."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from oubli.core.errors import InputError
from oubli.core.parameters import (
    REGRESSION,
    Parameter,
    check_parameters,
    class_weight,
    n_jobs,
    random_state,
    share,
    whole,
)

MAX_TREES = 2**15
MAX_ENTRIES = 2**31 - 1  # entries, places in `members`, nodes and leaves are int32
MAX_SAMPLES = 2**26  # sums of squared counts are exact in float64, see `split.py`
UNLIMITED_DEPTH = 2**31 - 1
STANDARD, LOW = "standard", "low"  # what answers may disclose of single samples
LOW_OCCURRENCE = 0.7  # with low disclosure: the largest share, since only the other trees answer for a sample,
LOW_TREES = 3  # and how many times as many trees
CRITERIA = {"gini": 0, "entropy": 1, "squared_error": 2}  # as `split.py` numbers them

PARAMETERS = (
    Parameter("lazy", bool, True, "Put rebuilding off until a query needs it.", is_setting=False),
    whole("n_estimators", 100, "Number of trees of a forest, or of iterations of boosting.", 1, MAX_TREES),
    share(
        "occurrence",
        0.7,
        "Share of the trees that learn each sample (q); smaller makes adding and deleting cheaper.",
        opens="low",
        regression={"default": 0.5},
    ),
    whole(
        "max_depth",
        None,
        "Greatest depth of a tree; without it trees grow until their leaves are pure or small.",
        low=1,
        limit=UNLIMITED_DEPTH,
        optional=True,
    ),
    whole("min_samples_split", 2, "Samples that a node needs to be split.", 2, 2**31 - 1, regression={"default": 5}),
    whole(
        "n_thresholds",
        20,
        "Candidate splits drawn for each attribute of a node (s).",
        low=1,
        limit=2**15,
        regression={"default": 30},
    ),
    Parameter(
        "max_features",
        (int, float, str),
        "sqrt",
        "Attributes tried at each node (p): a number, a share between 0 and 1, `sqrt`, `log2` or `all`.",
        choices=("sqrt", "log2"),
        optional=True,
        none_word="all",
        regression={"default": 0.5},
    ),
    Parameter(
        "criterion",
        str,
        "gini",
        "Measure of a split: `gini` or `entropy` for classes, `squared_error` for numbers.",
        choices=("gini", "entropy"),
        regression={"default": "squared_error", "choices": ("squared_error",)},
    ),
    Parameter(
        "disclosure",
        str,
        STANDARD,
        "How much answers may show of single samples: `standard`, or `low`: a row is answered by trees that learned no "
        "sample of the same values, and class probabilities are rounded. Three times as many trees are grown.",
        choices=(STANDARD, LOW),
    ),
    class_weight(),
    random_state("Seed of every random choice; the same seed and samples give the same model."),
    n_jobs(),
)


@dataclass(frozen=True)
class ForestSettings:
    """The parameters of a forest, all defaults resolved to numbers."""

    n_trees: int
    occurrences: int
    max_depth: int
    min_samples_split: int
    n_thresholds: int
    max_features: int
    criterion: int
    seed: int
    is_regression: bool
    has_low_disclosure: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The settings as a model file has them; what is as it was before there was a choice is left out."""
        settings = asdict(self)
        if not self.has_low_disclosure:
            del settings["has_low_disclosure"]
        return settings


def places_of(settings: ForestSettings, n_samples: int) -> int:
    """Places that the leaves of so many samples may take in `members`; there are fewer nodes than that.

    A room is less than twice as large as what is in it, that of an empty leaf has one place, and before leaves move
    there has to be room for some times the largest tree (`reserve`, `_has_many_pieces`).
    """
    occurrences = settings.occurrences
    return 2 * n_samples * occurrences + settings.n_trees + 8 * (n_samples + 16) + 64 * occurrences


def count_occurrences(occurrence: float, n_estimators: int) -> int:
    """Trees a sample: k = min(T, max(1, ceil(q T - 1e-9))).

    A bare ceil would give 8 for q = 0.07 and T = 100, since 0.07 * 100 > 7 in floating point.
    """
    return min(n_estimators, max(1, math.ceil(occurrence * n_estimators - 1e-9)))


def count_features(max_features: Any, n_features: int) -> int:
    """Attributes a node from the `max_features` parameter, as scikit-learn's forests read it.

    Raises
    ------
    InputError
        When it is neither a known word, nor a share in (0, 1], nor a count of at least 1.
    """
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        if max_features == "sqrt":
            return max(1, int(math.sqrt(n_features)))
        if max_features == "log2":
            return max(1, int(math.log2(n_features)))
    elif isinstance(max_features, Integral) and not isinstance(max_features, bool):
        if int(max_features) >= 1:
            return min(int(max_features), n_features)
    elif isinstance(max_features, Real) and not isinstance(max_features, bool) and 0.0 < float(max_features) <= 1.0:
        return max(1, int(float(max_features) * n_features))
    raise InputError(
        f"max_features={max_features!r} must be 'sqrt', 'log2', None, a share in (0.0, 1.0] or a "
        "number of features of at least 1"
    )


def read_settings(params: Mapping[str, Any], n_features: int, task: str) -> ForestSettings:
    """Check a forest's parameters.

    Parameters
    ----------
    params : the constructor's parameters by name.
    n_features : number of columns.
    task : classification or regression.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    values = check_parameters(PARAMETERS, params, task)
    n_trees, occurrence, has_low_disclosure = values["n_estimators"], values["occurrence"], values["disclosure"] == LOW
    if has_low_disclosure:
        n_trees, occurrence = min(MAX_TREES, LOW_TREES * n_trees), min(occurrence, LOW_OCCURRENCE)
    return ForestSettings(
        n_trees=n_trees,
        occurrences=count_occurrences(occurrence, n_trees),
        max_depth=values["max_depth"] or UNLIMITED_DEPTH,
        min_samples_split=values["min_samples_split"],
        n_thresholds=values["n_thresholds"],
        max_features=count_features(values["max_features"], n_features),
        criterion=CRITERIA[values["criterion"]],
        seed=values["seed"],
        is_regression=task == REGRESSION,
        has_low_disclosure=has_low_disclosure,
    )
