"""Ids from the index of a DataFrame, by every kind of model."""

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
from oubli.core.estimators import KINDS
from tests.histories.cases import small

N = 12
FOREST = small("forest", lazy=False)
WAY_OUT = 'pass ids= to name the samples, or ids="generate"'


def frame(index: Any) -> tuple[pd.DataFrame, list[Any]]:
    rows, y = FOREST.samples(len(index))
    return pd.DataFrame({"x": np.arange(len(index)) * 1.0, "b": [row[1] for row in rows]}, index=index), y


def fitted(index: Any) -> tuple[Any, pd.DataFrame, list[Any]]:
    X, y = frame(index)
    return FOREST.make().fit(X, y), X, y


@pytest.mark.parametrize("kind", ["forest", "tree", "incremental-boosting", "online-boosting"])
def test_a_label_deletes_its_row_and_no_other(kind: str) -> None:
    X, y = frame(range(1000, 1040))
    model, other = small(kind).make().fit(X[:20], y[:20]), small(kind).make()
    assert model.add(X[20:], y[20:]) == [str(i) for i in range(1020, 1040)]
    for label in (X.index[3], X.index[25]):
        assert model.samples_.get(label).features[0] == X.loc[label, "x"]
        model.delete(label)
    assert model.samples_.ids() == [str(i) for i in range(1000, 1040) if i not in (1003, 1025)]
    assert model.add(X.iloc[[3]], y[3:4], ids="generate") == ["1040"], "an id that was given is not generated"
    for start in range(0, 40, 20):
        other.partial_fit(X[start : start + 20], y[start : start + 20])
    assert other.samples_.ids() == [str(i) for i in range(1000, 1040)]


@pytest.mark.parametrize("index", [
    pd.RangeIndex(1000, 1000 + N), pd.RangeIndex(0, 2 * N, 2), pd.RangeIndex(N - 1, -1, -1), pd.Index(range(1, N + 1)),
    pd.Index([2**63 - 1 - i for i in range(N)]), pd.Index(range(-5, N - 5), dtype="int8"),
    pd.Index(range(3, N + 3), dtype="uint16"), pd.Index(range(3, N + 3), dtype="Int64"),
    pd.Index(range(3, N + 3), dtype=object), pd.Index([f"p {i}" for i in range(N)]),
    pd.Index([f"ü{i}" for i in range(N)], dtype="string"), pd.CategoricalIndex(list("abcdefghijkl")),
    pd.Index([str(i) for i in range(N)]), pd.Index([*range(N - 1), "last"]), pd.date_range("2024-01-01", periods=N),
    pd.date_range("2024-01-01", periods=N, freq="37ns"),
    pd.date_range("2024-10-27", periods=N, freq="h", tz="Europe/Vienna"),
    pd.Index([datetime.date(2024, 1, day + 1) for day in range(N)]), pd.Index(range(3, N + 3), name="x"),
], ids=lambda index: f"{type(index).__name__}-{index[0]}-{index.dtype}")  # fmt: skip
def test_every_label_names_its_row(index: Any) -> None:
    model, X, _ = fitted(index)
    assert len(set(model.samples_.ids())) == N
    for label, value in zip(X.index, X["x"], strict=True):
        assert model.samples_.get(label).features[0] == value
    for position in (3, 0, 7):
        model.delete(X.index[position])
    model.delete(X.index[[1, 2]])
    left = sorted(model.samples_.get(i).features[0] for i in model.samples_.ids())
    assert left == [x for x in range(N) if x not in (0, 1, 2, 3, 7)]


def test_refusals_say_how_to_name_samples() -> None:
    """What is taken, and as what, is compared with a dictionary below."""
    model, X, y = fitted(pd.Index(list(range(N))))
    with pytest.raises(DuplicateIdError, match="held already") as info:
        model.add(X, y)
    assert WAY_OUT in info.value.__notes__[0]
    with pytest.raises(DuplicateIdError) as info:
        model.add(X[4:6], y[4:6], ids=["1", "x"])
    assert not hasattr(info.value, "__notes__")
    X, y = frame(pd.RangeIndex(20))
    model = FOREST.make().fit(X[10:], y[10:], ids=[*range(10, 20)])
    for call in (model.add, model.partial_fit):
        with pytest.raises(InputError, match=WAY_OUT):
            call(X[:10], y[:10])
    assert model.n_samples_ == 10


def test_where_ids_come_from_is_as_before_when_an_addition_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y = fitted(pd.RangeIndex(N))

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(model.engine_, "add", fail)
    with pytest.raises(MemoryError):
        model.add(X.rename(index=lambda i: f"p{i}"), y, subjects=["ada"] * N, expires_at="2030-01-01T00:00:00Z")
    monkeypatch.undo()
    model.check_invariants()
    assert (model.samples_.next_expiry(), model.samples_.ids_of_subject("ada")) == (None, [])
    assert model.add(X, y) == list(map(str, range(N, 2 * N)))


@pytest.mark.parametrize("index", [
    pd.MultiIndex.from_arrays([range(N), range(N)]), np.arange(N) / 2, pd.timedelta_range("1h", periods=N),
    pd.period_range("2024", periods=N, freq="M"), [1.0, np.nan, *range(2, N)], [True, False] * (N // 2),
    pd.MultiIndex.from_arrays([[1] * N, [1] * N]),
])  # fmt: skip
def test_an_index_no_label_of_which_can_be_an_id_is_told_of(index: Any) -> None:
    X, y = frame(range(N))
    X.index = pd.Index(index)
    with pytest.warns(IndexWarning, match=r"^the labels of X's index .* Pass ids=") as caught:
        model = FOREST.make().fit(X, y)
    with pytest.warns(IndexWarning) as again:
        assert model.add(X, y) == list(map(str, range(N, 2 * N)))
    assert {Path(one.filename).name for one in (*caught, *again)} == {"test_index.py"}
    assert model.samples_.ids() == list(map(str, range(2 * N)))
    assert model.add(X, y, ids=[f"p{i}" for i in range(N)])[0] == "p0", "no warning"
    with pytest.raises(InputError):
        model.delete(X.index[[1]])
    assert model.n_samples_ == 3 * N


@pytest.mark.parametrize(("index", "n"), [
    ([5, 5, *range(100, 98 + N)], 1), (["a"] * N, N - 1), ([*range(1, N), "1"], 1), ([None, *map(str, range(1, N))], 1),
    (pd.Index([pd.NA, *range(1, N)], dtype="Int64"), 1),
    (pd.DatetimeIndex(["2024-01-01", None, *pd.date_range("2025", periods=N - 2)]), 1),
    ([True, False, *map(str, range(N - 2))], 2), (["", "x" * 257, *map(str, range(N - 2))], 2), ([0] * N, N - 1),
    ([*range(N // 2), *range(N // 2)], N // 2),
])  # fmt: skip
def test_labels_that_could_delete_another_row_are_refused(index: Any, n: int) -> None:
    X, y = frame(range(N))
    X.index = pd.Index(index)
    model = FOREST.make()
    with pytest.raises(InputError, match=rf'^\'id\': {n} of the {N} labels .*pass ids= .* or ids="generate"'):
        model.fit(X, y)
    model.fit(X, y, ids="generate")
    with pytest.raises(InputError, match="could delete another row"):
        model.add(X, y)
    assert model.add(X, y, ids="generate") == list(map(str, range(N, 2 * N)))


# -- against a dictionary ----------------------------------------------------------------------------

numbers = st.integers(0, 25)
labels = numbers | numbers.map(str) | st.sampled_from(["a", "007", "-1", -1, 2**53, 10**18])
steps = st.lists(
    st.tuples(
        st.sampled_from(["index", "count", "list", "ids", "delete", "pickle", "copy", "file"]),
        st.lists(labels, min_size=1, max_size=5),
    ),
    max_size=12,
)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # lists have none
@settings(deadline=None, max_examples=100)
@given(steps, st.lists(labels, max_size=5))
def test_ids_against_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, list[Any]]], first: list[Any]
) -> None:
    """`held` is what has to be held by id; `used` are the ids that there have been; `source` says whose they are."""
    make: Any = KINDS["forest", FOREST.task]
    model = make(n_estimators=1, max_depth=1, random_state=0)
    held: dict[str, float] = {}
    used: set[str] = set()
    source = "generated"
    values = iter(range(10**6))
    model.start(make(n_estimators=1).fit(pd.DataFrame({"x": [0.0]}), [0]).schema_)
    for what, given_labels in [*([("fit", first)] if first else ()), *history]:
        n, names = len(given_labels), list(map(str, given_labels))
        is_distinct = len(set(names)) == n
        if what == "copy":
            model = model.copy()
        elif what == "pickle":
            model = pickle.loads(pickle.dumps(model))  # noqa: S301 - its own
        elif what == "file":
            path = tmp_path_factory.getbasetemp() / "index.oubli"
            model.save(path)
            model = load(path)
        elif what == "delete":
            if is_distinct and held.keys() >= set(names):
                model.delete(pd.Index(given_labels, dtype=object))
                held = {name: value for name, value in held.items() if name not in names}
            else:
                with pytest.raises((UnknownIdError, DuplicateIdError)):
                    model.delete(given_labels)
        else:
            cells = [float(next(values)) for _ in names]
            counts = what in ("count", "list")  # a default index, or none
            X: Any = pd.DataFrame({"x": cells}, index=None if counts else pd.Index(given_labels, dtype=object))
            X = X.to_numpy() if what == "list" else X
            y, ids = [0] * n, given_labels if what == "ids" else None
            if what == "count" and source == "given" and held:
                with pytest.raises(InputError, match="default index"):
                    model.add(X, y)
                continue
            is_generated = what == "list" or (what == "count" and source != "labels")
            if what == "count" and not is_generated:
                names, is_distinct = list(map(str, range(n))), True
            if not is_generated and (not is_distinct or held.keys() & set(names)):
                with pytest.raises(InputError):
                    model.fit(X, y) if what == "fit" else model.add(X, y, ids=ids)
                if what == "fit":
                    return
                continue
            if what in ("fit", "index") or source == "labels":
                source = "labels"
            elif not held:
                source = "given" if what == "ids" else "generated"
            made = model.fit(X, y).samples_.ids() if what == "fit" else model.add(X, y, ids=ids)
            assert len(set(made)) == n
            assert used.isdisjoint(made) if is_generated else made == names
            held.update(zip(made, cells, strict=True))
            used.update(made)
        assert {name: model.samples_.get(name).features[0] for name in model.samples_.ids()} == held
