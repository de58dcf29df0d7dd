"""Conditions that fail a load test, as in ``predict.p99>5ms``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oubli.client.load.plan import OPERATIONS, LoadTestError

_FORM = re.compile(
    rf"\s*(?:(?P<operation>{'|'.join(OPERATIONS)}|all)\s*\.)?\s*(?P<figure>p\d+(?:\.\d+)?|max|mean|rate|errors|refused)"
    r"\s*(?P<sign>>=|<=|>|<)\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|%)?\s*"
)
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_COUNTS = {"errors": "errors", "refused": "refused"}


@dataclass(frozen=True)
class Threshold:
    """A condition that fails a test.

    Attributes
    ----------
    text
        As it was written.
    operation
        Whose figure it is about; `all` for all of the mix together.
    figure
        A percentile such as `p99.9`, `max` or `mean` (times), `rate` (successes a second), `errors` or `refused`.
    sign, limit, unit
        The test fails when the figure compares so. Times have a unit; a `%` is of all requests.
    """

    text: str
    operation: str
    figure: str
    sign: str
    limit: float
    unit: str

    def value(self, step: dict[str, Any]) -> float | None:
        """The figure in a step's report; None when there is none."""
        found = step["operations"].get(self.operation)
        if found is None:
            return None
        if self.figure in _COUNTS:
            count: int = found[_COUNTS[self.figure]]
            return 100 * count / max(1, found["requests"]) if self.unit == "%" else count
        if self.figure == "rate":
            return float(found["rate"])
        times = found["latency_ms"]
        return None if times is None else float(times[self.figure])

    def fails(self, step: dict[str, Any]) -> bool:
        """Whether a step's report meets the condition; one without the figure does, as nothing proves the contrary."""
        value = self.value(step)
        return value is None or _SIGNS[self.sign](value, self.limit * _UNITS.get(self.unit, 1.0))


def read_threshold(text: str, mix: Iterable[str]) -> Threshold:
    """Read a condition.

    Parameters
    ----------
    text
        An operation and a point, or nothing for all; a figure, a sign, a number with its unit.
    mix
        Operations that there are.

    Raises
    ------
    LoadTestError
        When it cannot be read, or can never be told.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise LoadTestError(
            f"the condition {text!r} cannot be read: write one such as predict.p99>5ms, errors>0 or all.rate<1000"
        )
    operation, figure, unit = form["operation"] or "all", form["figure"], form["unit"] or ""
    if operation not in {*mix, "all"}:
        raise LoadTestError(f"the condition {text!r} is about {operation}, which the mix does not have")
    is_time = figure not in {"rate", *_COUNTS}
    if is_time != (unit in _UNITS) or (unit == "%" and figure not in _COUNTS):
        allowed = "us, ms or s" if is_time else "%, or no unit" if figure in _COUNTS else "no unit"
        raise LoadTestError(f"the condition {text!r} has the wrong unit: {figure} takes {allowed}")
    if figure.startswith("p") and not 0 < float(figure[1:]) <= 100:
        raise LoadTestError(f"the condition {text!r} names a percentile that there is not")
    return Threshold(text, operation, figure, form["sign"], float(form["limit"]), unit)


def percents(thresholds: Sequence[Threshold]) -> list[float]:
    """The percentiles that conditions are about."""
    return [float(one.figure[1:]) for one in thresholds if one.figure.startswith("p")]
