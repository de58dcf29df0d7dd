"""Sparse matrices of SciPy: what they do not store is 0, and no dense copy of them is made to be predicted."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from oubli.core import DynamicForestClassifier, IncrementalBoostingRegressor
from oubli.core import model as model_module
from oubli.core.data.tables import Sparse, read_table, row_blocks
from oubli.core.errors import FeatureCountError, InputError

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")


def dense(n: int = 60, dtype: Any = np.float64) -> np.ndarray:
    draw = np.random.default_rng(0)
    return (draw.integers(-3, 4, size=(n, 5)) * (draw.random((n, 5)) < 0.3)).astype(dtype)


@pytest.mark.filterwarnings("ignore:Constructing a DIA matrix")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("container", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_every_format_is_the_dense_matrix(form: str, container: Any) -> None:
    X = dense()
    y = X[:, 0] > 0
    given = container(X).asformat(form)
    model = DynamicForestClassifier(n_estimators=4, random_state=0).fit(given, y)
    expected = DynamicForestClassifier(n_estimators=4, random_state=0).fit(X, y)
    assert model.digest() == expected.digest()
    assert np.array_equal(model.predict_proba(given), expected.predict_proba(X))
    can_be_cut = form in ("csr", "csc", "lil", "dok")
    model.add(given[:7] if can_be_cut else container(X)[:7], y[:7])
    expected.add(X[:7], y[:7])
    assert (model.digest(), model.score(given, y)) == (expected.digest(), expected.score(X, y))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, np.uint16, np.bool_])
def test_types_of_columns_are_those_of_the_dense_matrix(dtype: Any) -> None:
    X = dense(dtype=dtype)
    fits = [
        IncrementalBoostingRegressor(n_estimators=2, random_state=0).fit(one, X[:, 0])
        for one in (scipy.sparse.csr_array(X), X)
    ]
    assert (fits[0].schema_, fits[0].digest()) == (fits[1].schema_, fits[1].digest())


def test_stored_zeros_missing_values_and_repeated_entries() -> None:
    data, row, column = [0.0, np.nan, 2.0, 3.0], [0, 1, 2, 2], [0, 1, 1, 1]
    given = scipy.sparse.coo_array((data, (row, column)), shape=(3, 2))
    table = read_table(given)
    assert isinstance(table, Sparse)
    assert (table.n_rows, table.n_columns) == (3, 2)
    assert np.array_equal(table.column(0).values, [0.0, 0.0, 0.0])
    assert np.array_equal(table.column(1).values, [0.0, np.nan, 5.0], equal_nan=True)
    by_columns = scipy.sparse.csc_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 3])), shape=(2, 1))
    assert read_table(by_columns).column(0).values.tolist() == [1.0, 2.0]  # type: ignore[union-attr]
    assert by_columns.nnz == 3  # the caller's is as it was


def test_few_rows_are_dense_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    X = dense(1001)
    y = X[:, 0] - X[:, 1]
    given = scipy.sparse.csr_array(X)
    model = IncrementalBoostingRegressor(n_estimators=3, random_state=0).fit(given, y)
    expected = model.predict(X)
    seen: list[int] = []
    encode = model.samples_.encoder.encode
    monkeypatch.setattr(model_module, "_SPARSE_ROWS", 100)
    monkeypatch.setattr(
        model.samples_.encoder, "encode", lambda rows, *others: seen.append(rows.shape[0]) or encode(rows, *others)
    )
    assert np.array_equal(model.predict(given), expected)
    assert sum(seen) == 1001
    assert max(seen) <= 100
    assert min(seen) > 1
    assert [block.shape for block in row_blocks(given, 400)] == [(333, 5), (334, 5), (334, 5)]
    assert row_blocks(X, 400)[0] is X


def test_what_cannot_be_read_is_refused() -> None:
    model = DynamicForestClassifier(n_estimators=2).fit(dense(), dense()[:, 0] > 0)

    class Other:
        """A sparse array of another library."""

        def toarray(self) -> Any:
            raise AssertionError

    infinite = np.array([[0.0, 0, 0, 0, 0], [0, 0, np.inf, 0, 0]])
    for X, error, rule in (
        (scipy.sparse.csr_array(dense()[:, :3]), FeatureCountError, "3 features"),
        (scipy.sparse.csr_array(infinite), InputError, "row 1, 'x2': must be a finite number"),
        (scipy.sparse.csr_array(dense().astype(complex)), InputError, "Complex data not supported"),
        (scipy.sparse.coo_array(np.arange(5.0)), InputError, "Expected 2D array, got 1D array instead"),
        (scipy.sparse.csr_array((0, 5)), InputError, "has no rows"),
        (Other(), InputError, r"cannot be read by columns: pass X.tocsr\(\)"),
    ):
        with pytest.raises(error, match=rule):
            model.predict(X)
