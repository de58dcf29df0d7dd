"""What can be set: a table of parameters for each kind of model.

The table of a kind is in the `parameters.py` of its folder. The constructor's checks, the settings of the service, the
fit request, the command line and the documentation read it. Nothing here needs NumPy, so that a table is read at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Self

from oubli.core.errors import InputError

REGRESSION = "regression"
N_JOBS = "n_jobs"  # the parameter that says how a model works and not what it is
WEIGHTS = ("class_weight", "scale_pos_weight")  # what a fit turns into weights of classes, which the schema keeps


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kind of model.

    Attributes
    ----------
    name : str
    type : type or tuple of types
        int, float, bool or str, several of them, or (float, float) as a pair in a list: `[float, float]`.
    default : object
    text : str
        One line: what it is, for the command line's help and the documentation.
    low, high : float
        What a number may be, the ends included.
    opens : str
        "low" or "high" when that end is not included.
    limit : float or None
        The largest number that this program has room for, if that is below `high`.
    choices : tuple of str
        The words it may be.
    optional : bool
        Whether it may be None.
    none_word : str or None
        What says None where leaving a parameter out means its default.
    is_setting : bool
        Whether the service can set it.
    chooses_kernels : bool
        Whether None asks for other compiled functions than anything else.
    regression : mapping
        What is different for a regression, by attribute.
    """

    name: str
    type: Any
    default: Any
    text: str
    low: float = -math.inf
    high: float = math.inf
    opens: str = ""
    limit: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    none_word: str | None = None
    is_setting: bool = True
    chooses_kernels: bool = False
    regression: Mapping[str, Any] = field(default_factory=dict)

    def of(self, task: str) -> Self:
        """Return the parameter as it is for a task."""
        return replace(self, **self.regression, regression={}) if task == REGRESSION else self

    def read(self, value: Any) -> Any:
        """Return a value that was checked as Python's own number, if it is one by its type."""
        return value if value is None or self.type not in (int, float) else self.type(value)

    def check(self, value: Any) -> None:
        """Check a value against type, bounds and choices.

        Raises
        ------
        InputError
            Naming the parameter, its value and the rule.
        """
        if value is None and self.optional:
            return
        if self.type is bool:
            if not isinstance(value, bool) and type(value).__name__ != "bool":  # NumPy's, too
                raise InputError(f"{self.name}={value!r} must be True or False")
        elif self.type is str:
            if not isinstance(value, str) or value not in self.choices:
                raise InputError(f"{self.name}={value!r} must be one of {', '.join(map(repr, self.choices))}")
        elif self.type in (int, float):
            high = self.high if self.limit is None else self.limit
            check_number(
                self.name, value, low=self.low, high=high, integral=self.type is int, is_open=self.opens == "low"
            )
            if self.opens == "high" and value == self.high:
                raise InputError(f"{self.name}={value!r} must be below {high}")
            if not math.isfinite(value):
                raise InputError(f"{self.name} must be finite")


def check_parameters(table: Sequence[Parameter], values: Mapping[str, Any], task: str = "") -> dict[str, Any]:
    """Check the constructor's parameters and return them by name, numbers as Python's own; `seed` for `random_state`.

    Raises
    ------
    InputError
        Naming the first parameter that does not fit its table.
    """
    table = [one for one in table if one.name not in {N_JOBS, *WEIGHTS}]
    for parameter in table:
        parameter.of(task).check(values[parameter.name])
    read = {one.name: one.read(values[one.name]) for one in table}
    seed = draw_seed(read.pop("random_state"))
    return {**read, "seed": seed}


def whole(name: str, default: int | None, text: str, low: int, limit: float | None = None, **others: Any) -> Parameter:
    """A parameter that is an integer."""
    return Parameter(name, int, default, text, low=low, limit=limit, **others)


def share(name: str, default: float | None, text: str, opens: str = "", **others: Any) -> Parameter:
    """A parameter that is a number from 0 to 1."""
    return Parameter(name, float, default, text, **{"low": 0, "high": 1, "opens": opens, **others})


def random_state(text: str) -> Parameter:
    """The parameter that every kind has, and `draw_seed` reads."""
    return Parameter("random_state", object, None, text, low=0, optional=True)


def class_weight() -> Parameter:
    """The parameter that every kind with classes has, and `SampleStore.weigh_classes` reads."""
    text = "Weights by class, or `balanced`: all classes weigh the same together when the model is fitted."
    return Parameter(WEIGHTS[0], object, None, text, optional=True, is_setting=False)


def scale_pos_weight() -> Parameter:
    """The parameter of boosting that gives the second of two classes a weight."""
    text = "Weight of the second of two classes; a short form of `class_weight`."
    return Parameter(WEIGHTS[1], object, None, text, optional=True, is_setting=False)


def n_jobs() -> Parameter:
    """The parameter that every kind has, and `threads_of` of `threads.py` reads."""
    text = "Threads for long work: `None` is one, `-1` all cores. The model and its predictions are the same."
    return Parameter(N_JOBS, object, None, text, optional=True, is_setting=False)


def check_number(
    name: str, value: Any, *, low: float, high: float = math.inf, integral: bool = True, is_open: bool = False
) -> None:
    """Check that a parameter is a number (an integer) in [low, high], or in (low, high] if `is_open`.

    Raises
    ------
    InputError
        Naming the parameter, its value and the rule.
    """
    kind = "an integer" if integral else "a number"
    is_number = isinstance(value, Integral if integral else Real) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (is_open and value == low):
        bounds = f"of at least {low}" if high == math.inf else f"in {'(' if is_open else '['}{low}, {high}]"
        raise InputError(f"{name}={value!r} must be {kind} {bounds}")


def draw_seed(random_state: Any) -> int:
    """Turn scikit-learn's `random_state` (None, an int, a RandomState or a Generator) into a seed.

    Returns
    -------
    int
        In [0, 2**63); an int is its own seed.

    Raises
    ------
    InputError
        For anything else.
    """
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        seed = int(random_state)
        if 0 <= seed < 2**63:
            return seed
        raise InputError(f"random_state={random_state} must be in [0, 2**63): choose another")
    import numpy as np

    if random_state is None:
        # 53 bits, so that readers of JSON who know only float64 get the seed as it is.
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(11))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63 - 1))
    raise InputError("random_state must be None, an integer, a RandomState or a Generator")
