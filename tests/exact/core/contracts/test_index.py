"""Ids from the index of a DataFrame, by every kind of model."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli.core import load
from oubli.core.errors import DuplicateIdError, IndexWarning, InputError, UnknownIdError
from oubli.core.registry import KINDS
from tests.exact.core.contracts.test_contract import CASES, Case

N = 12
FOREST = next(case for case in CASES if case.kind == "forest")
ids_of_cases = [str(case) for case in CASES]


def frame(index: Any, case: Case = FOREST) -> tuple[pd.DataFrame, list[Any]]:
    rows, y = case.samples(len(index))
    return pd.DataFrame({"x": np.arange(len(index)) * 1.0, "b": [row[1] for row in rows]}, index=index), y


def fitted(index: Any, case: Case = FOREST) -> tuple[Any, pd.DataFrame, list[Any]]:
    X, y = frame(index, case)
    return case.make().fit(X, y), X, y


@pytest.mark.parametrize("case", CASES, ids=ids_of_cases)
def test_a_label_deletes_its_row_and_no_other(case: Case) -> None:
    X, y = frame(range(1000, 1040), case)
    model = case.make().fit(X[:20], y[:20])
    assert model.add(X[20:], y[20:]) == [str(i) for i in range(1020, 1040)]
    for label in (X.index[3], X.index[25]):
        assert model.samples_.get(label).features[0] == X.loc[label, "x"]
        model.delete(label)
    assert model.samples_.ids() == [str(i) for i in range(1000, 1040) if i not in (1003, 1025)]
    assert model.add(X.iloc[[3]].reset_index(drop=True), y[3:4]) == ["1040"], "an id that was given is not generated"
    model.check_invariants()
    if model.guarantee == "exact":
        assert model.verify().ok


@pytest.mark.parametrize("case", CASES, ids=ids_of_cases)
def test_partial_fit_takes_the_index(case: Case) -> None:
    X, y = frame(range(60), case)
    model = case.make()
    for start in range(0, 60, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    assert model.samples_.ids() == list(map(str, range(60)))


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(1000, 1000 + N), pd.RangeIndex(0, 2 * N, 2), pd.RangeIndex(N - 1, -1, -1),
        pd.Index(range(1, N + 1)),
        pd.Index([2**63 - 1 - i for i in range(N)]), pd.Index(range(-5, N - 5), dtype="int8"),
        pd.Index(range(3, N + 3), dtype="uint16"), pd.Index(range(3, N + 3), dtype="Int64"),
        pd.Index(range(3, N + 3), dtype=object), pd.Index([f"p {i}" for i in range(N)]),
        pd.Index([f"ü{i}" for i in range(N)], dtype="string"), pd.CategoricalIndex(list("abcdefghijkl")),
        pd.Index([str(i) for i in range(N)]), pd.Index([*range(N - 1), "last"]),
        pd.date_range("2024-01-01", periods=N), pd.date_range("2024-01-01", periods=N, freq="37ns"),
        pd.date_range("2024-10-27", periods=N, freq="h", tz="Europe/Vienna"),
        pd.Index([datetime.date(2024, 1, day + 1) for day in range(N)]), pd.Index(range(3, N + 3), name="x"),
    ],
    ids=lambda index: f"{type(index).__name__}-{index[0]}-{index.dtype}",
)  # fmt: skip
def test_every_label_names_its_row(index: Any) -> None:
    model, X, _ = fitted(index)
    assert len(set(model.samples_.ids())) == N
    for label, value in zip(X.index, X["x"], strict=True):
        assert model.samples_.get(label).features[0] == value
    left = list(range(N))
    for position in (3, 0, 7):
        model.delete(X.index[position])
        left.remove(position)
        assert sorted(model.samples_.get(i).features[0] for i in model.samples_.ids()) == left
    model.delete(X.index[[1, 2]])
    assert len(model.samples_) == N - 5


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(N), pd.Index(range(N)), pd.Index(range(N), dtype="Int64"), pd.Index(range(N), dtype=object)]
)
def test_an_index_that_counts_rows_gives_no_ids(index: Any) -> None:
    model, X, y = fitted(index)
    assert model.samples_.ids() == list(map(str, range(N)))
    assert model.add(X, y) == list(map(str, range(N, 2 * N)))
    assert model.add(X[2:4], y[2:4], ids=["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("index", "n"),
    [
        ([5, 5, *range(100, 98 + N)], 1), (["a"] * N, N - 1), ([*range(1, N), "1"], 1),
        ([None, *map(str, range(1, N))], 1),
        ([1.0, np.nan, *range(2, N)], N), (pd.Index([pd.NA, *range(1, N)], dtype="Int64"), 1),
        (pd.DatetimeIndex(["2024-01-01", None, *pd.date_range("2025", periods=N - 2)]), 1),
        (pd.MultiIndex.from_arrays([range(N), range(N)]), N), (np.arange(N) / 2, N),
        (pd.timedelta_range("1h", periods=N), N),
        (pd.period_range("2024", periods=N, freq="M"), N), ([True, False, *map(str, range(N - 2))], 2),
        (["", "x" * 257, *map(str, range(N - 2))], 2),
    ],
)  # fmt: skip
def test_an_index_that_names_no_rows_is_told_of(index: Any, n: int) -> None:
    X, y = frame(range(N))
    X.index = pd.Index(index)
    with pytest.warns(IndexWarning, match=rf"^{n} of the {N} labels .* Pass ids=") as caught:
        model = FOREST.make().fit(X, y)
    assert [Path(one.filename).name for one in caught] == ["test_index.py"]
    assert model.samples_.ids() == list(map(str, range(N)))
    with pytest.warns(IndexWarning):
        assert model.add(X, y) == list(map(str, range(N, 2 * N)))
    assert model.add(X, y, ids=[f"p{i}" for i in range(N)])[0] == "p0", "no warning"


@pytest.mark.parametrize("label", [0.0, np.float64(3), True, np.True_, pd.NaT, np.datetime64("2024-01-01")])
def test_a_label_that_is_no_id_deletes_nothing(label: Any) -> None:
    model, _, _ = fitted(range(N))
    with pytest.raises(InputError, match="must be text of 1 to 256 characters, or an integer"):
        model.delete(label)
    with pytest.raises(InputError, match="must be text"):
        model.delete(np.array(["2024-01-01"], "M8[ns]"))
    assert model.n_samples_ == N


def test_labels_that_are_held_are_refused_with_a_way_out() -> None:
    model, X, y = fitted(range(1000, 1000 + N))
    before = model.digest()
    with pytest.raises(DuplicateIdError, match="held already") as info:
        model.add(X[4:6], y[4:6])
    assert "pass ids= or X.reset_index" in info.value.__notes__[0]
    with pytest.raises(DuplicateIdError) as info:
        model.add(X[4:6], y[4:6], ids=["1000", "x"])
    assert not hasattr(info.value, "__notes__")
    assert model.digest() == before


def test_the_index_of_the_labels_is_ignored() -> None:
    X, y = frame(range(1000, 1000 + N))
    labels = pd.Series(y, index=range(5, 5 + N))
    assert FOREST.make().fit(X, labels).digest() == FOREST.make().fit(X, y).digest()


def test_lists_and_arrays_have_no_index() -> None:
    X, y = frame(range(1000, 1000 + N))
    for rows in (X.to_numpy(object), X.to_numpy(object).tolist(), tuple(X.to_numpy(object).tolist())):
        assert FOREST.make().fit(rows, y).samples_.ids() == list(map(str, range(N)))


# -- against a dictionary ----------------------------------------------------------------------------

numbers = st.integers(0, 25)
labels = numbers | numbers.map(str) | st.sampled_from(["a", "007", "-1", -1, 2**53, 10**18])
steps = st.lists(
    st.tuples(st.sampled_from(["index", "count", "ids", "delete", "copy"]), st.lists(labels, min_size=1, max_size=5)),
    max_size=12,
)


@settings(deadline=None, max_examples=150)
@given(steps, st.lists(labels, min_size=1, max_size=5))
@pytest.mark.filterwarnings("ignore::oubli.core.errors.IndexWarning")
def test_ids_against_a_dictionary(history: list[tuple[str, list[Any]]], first: list[Any]) -> None:
    """`held` is what has to be held by id; `used` are the ids that there have been."""
    make: Any = KINDS["forest", FOREST.task]
    model = make(n_estimators=1, max_depth=1, random_state=0)
    held: dict[str, float] = {}
    used: set[str] = set()
    values = iter(range(10**6))
    for what, given_labels in [("fit", first), *history]:
        n, names = len(given_labels), list(map(str, given_labels))
        is_distinct = len(set(names)) == n
        if what == "copy":
            model = pickle.loads(pickle.dumps(model))  # noqa: S301 - its own
        elif what == "delete":
            if is_distinct and held.keys() >= set(names):
                model.delete(pd.Index(given_labels, dtype=object))
                held = {name: value for name, value in held.items() if name not in names}
            else:
                with pytest.raises((UnknownIdError, DuplicateIdError)):
                    model.delete(given_labels)
        else:
            index = list(range(n)) if what == "count" else given_labels
            cells = [float(next(values)) for _ in index]
            X, y = pd.DataFrame({"x": cells}, index=pd.Index(index, dtype=object)), [0] * n
            ids = given_labels if what == "ids" else None
            is_generated = ids is None and (not is_distinct or index == list(range(n)))
            if not is_generated and (not is_distinct or held.keys() & set(names)):
                with pytest.raises(DuplicateIdError):
                    model.add(X, y, ids=ids)
                continue
            made = model.fit(X, y).samples_.ids() if what == "fit" else model.add(X, y, ids=ids)
            assert len(set(made)) == n
            assert used.isdisjoint(made) if is_generated else made == names
            held.update(zip(made, cells, strict=True))
            used.update(made)
        assert {name: model.samples_.get(name).features[0] for name in model.samples_.ids()} == held


def test_generated_ids_skip_given_ones_after_loading(tmp_path: Path) -> None:
    model, X, y = fitted(range(5, 5 + N))
    model.delete(X.index[N - 1])
    model.save(tmp_path / "m.oubli")
    again = load(tmp_path / "m.oubli")
    assert again.add(X[:2].reset_index(drop=True), y[:2]) == [str(5 + N), str(6 + N)]
