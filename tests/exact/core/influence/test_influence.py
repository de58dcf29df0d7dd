"""The public question: signs, shapes, and what does not go together."""

from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicTreeClassifier
from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier
from oubli.core.boosting.online.estimator import OnlineBoostingClassifier
from oubli.core.errors import InputError, NotFittedError, UnknownIdError
from oubli.core.influence import Influence, influence, view
from tests.exact.core.influence.test_leave_one_out import loss_of

N = 120
METHODS, UPDATE_SETS = ("leaf-influence", "leaf-refit", "leave-one-out"), ("all", "single", 2)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(N, 3)), 2)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=N) > 0, "yes", "no").tolist()
    return X, y


@pytest.fixture(scope="module")
def exact(data) -> IncrementalBoostingClassifier:
    model = IncrementalBoostingClassifier(10, max_depth=3, learning_rate=0.3, quantization=None, random_state=0)
    return model.fit(*data)


@pytest.mark.parametrize("method", METHODS)
def test_a_positive_score_means_that_removing_the_sample_raises_the_loss(method, exact, data):
    X, y = data
    found = influence(exact, X[:8], y[:8], method=method)
    assert found.scores.shape == (N,)
    (helper, best), (harmer, worst) = found.helpful(1)[0], found.harmful(1)[0]
    assert best > 0 > worst
    for name, sign in ((helper, 1), (harmer, -1)):
        other = exact.copy()
        other.delete([name])
        assert sign * (loss_of(other, X[:8], y[:8]) - loss_of(exact, X[:8], y[:8])).mean() > 0


@pytest.mark.parametrize(
    "how",
    [{"method": "leave-one-out"}, *({"method": one, "update_set": n} for one in METHODS[:2] for n in UPDATE_SETS)],
)
def test_rows_by_themselves_have_the_mean(how, exact, data):
    X, y = data
    ids = ["5", "0", "77"]
    each = influence(exact, X[:4], y[:4], reduce=None, ids=ids, **how)
    mean = influence(exact, X[:4], y[:4], ids=ids, **how)
    assert each.scores.shape == (3, 4)
    assert mean.ids == each.ids == ids
    np.testing.assert_allclose(each.scores.mean(axis=1), mean.scores, rtol=1e-9, atol=1e-15)
    everything = influence(exact, X[:4], y[:4], **how)
    np.testing.assert_allclose(everything.scores[[5, 0, 77]], mean.scores, rtol=1e-9, atol=1e-15)
    alone = influence(exact, X[2:3], y[2:3], ids=ids, **how)
    np.testing.assert_allclose(each.scores[:, 2], alone.scores, rtol=1e-9, atol=1e-15)


def test_ranking_and_ties():
    found = Influence(["a", "b", "c", "d"], np.array([0.5, -1.0, 0.0, 0.5]), "leaf-influence")
    assert found.helpful() == [("a", 0.5), ("d", 0.5)]
    assert found.helpful(1) == [("a", 0.5)]
    assert found.harmful() == [("b", -1.0)]
    assert found.harmful(0) == []
    by_row = Influence(["a", "b"], np.array([[1.0, -1.0], [2.0, -3.0]]), "leaf-influence")
    assert by_row.helpful(row=0) == [("b", 2.0), ("a", 1.0)]
    assert by_row.harmful(1, row=1) == [("b", -3.0)]
    with pytest.raises(InputError, match="name one by `row`"):
        by_row.helpful()
    with pytest.raises(InputError, match="row=2 must be from 0 to 1"):
        by_row.helpful(row=2)
    with pytest.raises(InputError, match="leave `row` out"):
        found.harmful(row=0)


def test_kinds_and_methods_that_do_not_go_together(exact, data):
    X, y = data
    tree = DynamicTreeClassifier().fit(X, y)
    forest = DynamicForestClassifier(n_estimators=4).fit(X, y)
    low = DynamicForestClassifier(n_estimators=4, disclosure="low").fit(X, y)
    online = OnlineBoostingClassifier(4, random_state=0).fit(X, y)
    rows = [[*row, f"{i % 5}"] for i, row in enumerate(np.asarray(X).tolist())]
    with_statistics = IncrementalBoostingClassifier(2, random_state=0, category_statistics=3).fit(rows, y)
    with pytest.raises(InputError, match="category_statistics=None"):
        influence(with_statistics, rows[:2], y[:2], method="leaf-influence")
    assert influence(with_statistics, rows[:2], y[:2], method="leave-one-out").scores.any()
    cases: list[tuple[Any, str, str]] = [
        (tree, "leaf-influence", "kind tree: use forest"), (tree, "leave-one-out", "kind tree: use forest"),
        (forest, "leaf-influence", "use method='leaf-refit'"), (low, "leaf-refit", "use method='leave-one-out'"),
        (online, "leave-one-out", "approximate: use method='leaf-influence'"),
        (view(exact), "leave-one-out", "a model that unlearns"), (object(), "leaf-influence", "make a view"),
        (exact, "other", "must be one of leaf-influence"),
    ]  # fmt: skip
    for model, method, text in cases:
        with pytest.raises(InputError, match=text):
            influence(model, X[:2], y[:2], method=method)


def test_other_arguments_are_checked(exact, data):
    X, y = data
    for arguments, text in (
        ({"reduce": "sum"}, "reduce='sum'"), ({"update_set": "some"}, "update_set='some'"),
        ({"update_set": 0}, "update_set=0"), ({"update_set": True}, "update_set=True"),
        ({"method": "leave-one-out", "update_set": 3}, "leave it out"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=text):
            influence(exact, X[:2], y[:2], **arguments)
    for method in METHODS:
        with pytest.raises(InputError, match="must be a class that the model holds"):
            influence(exact, X[:2], ["yes", "perhaps"], method=method)
        with pytest.raises(UnknownIdError, match="nobody"):
            influence(exact, X[:2], y[:2], method=method, ids=["1", "nobody"])
        with pytest.raises(InputError, match="no rows"):
            influence(exact, X[:0], [], method=method)
    with pytest.raises(NotFittedError):
        influence(OnlineBoostingClassifier(), X[:1], y[:1])


def test_asking_changes_nothing_and_tells_how_far_it_is(exact, data):
    """In pieces, when somebody wants to know; of a view as of a model."""
    X, y = data
    digest = exact.digest()
    cases: list[dict[str, Any]] = [{"update_set": "single"}, {"update_set": 2}, {"reduce": None}]
    for arguments in (*cases, *({"method": method} for method in METHODS)):
        done: list[tuple[int, int]] = []
        found = influence(exact, X[:3], y[:3], progress=lambda *progress, done=done: done.append(progress), **arguments)
        assert len(done) > (3 if arguments == {"method": "leaf-influence"} else 0)
        assert done == sorted(set(done))
        assert done[-1][0] == done[-1][1]
        np.testing.assert_array_equal(found.scores, influence(exact, X[:3], y[:3], **arguments).scores)
    np.testing.assert_array_equal(influence(view(exact), X[:3], y[:3]).scores, influence(exact, X[:3], y[:3]).scores)
    assert exact.digest() == digest
    exact.check_invariants()
