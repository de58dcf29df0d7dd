"""Cleaning: harmful samples go while the validation loss falls, and nothing else does."""

from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicTreeClassifier
from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.boosting.online.estimator import OnlineBoostingClassifier
from oubli.core.errors import InputError
from oubli.core.influence import clean, influence
from tests.exact.core.influence.test_leave_one_out import loss_of


def noisy(n: int = 300, n_flipped: int = 40) -> tuple[np.ndarray, np.ndarray, set[str], np.ndarray, np.ndarray]:
    """Samples of which some have the wrong label, and validation rows."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(2 * n, 3)), 2)
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
    flipped = rng.choice(n, n_flipped, replace=False)
    y[flipped] = 1 - y[flipped]
    return X[:n], y[:n], {str(i) for i in flipped}, X[n:], y[n:]


def cleaned(model: Any, V: np.ndarray, w: np.ndarray, **options: Any) -> Any:
    """Clean a model; the report tells the losses of before and after, and the loss falls."""
    before = loss_of(model, V, w).mean()
    report = clean(model, V, w, **options)
    assert report.loss_before == pytest.approx(before)
    assert report.loss_after == pytest.approx(loss_of(model, V, w).mean())
    assert report.loss_after < report.loss_before
    return report


@pytest.mark.parametrize("reranks", [False, True])
@pytest.mark.parametrize("make", [
    lambda: IncrementalBoostingClassifier(15, max_depth=3, random_state=0),
    lambda: IncrementalBoostingClassifier(15, max_depth=3, quantization=None, random_state=0),
    lambda: OnlineBoostingClassifier(15, max_leaf_nodes=6, random_state=0),
], ids=["quantised", "presorted", "online"])  # fmt: skip
def test_flipped_labels_go_and_the_validation_loss_falls(make, reranks):
    X, y, flipped, V, w = noisy()
    model = make().fit(X, y)
    done: list[int] = []
    options = {"batch_size": 8, "max_removed": 40, "reranks": reranks}
    report = cleaned(model, V, w, progress=lambda number, _: done.append(number), **options)
    assert 8 * (len(report.removed) // 8) in done
    kept = [step.loss for step in report.steps if step.kept]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == report.loss_after
    assert all(step.kept for step in report.steps[:-1])
    assert model.n_samples_ == len(X) - len(report.removed)
    assert not any(name in model.samples_ for name in report.removed)
    assert len(flipped & set(report.removed)) > 0.6 * len(report.removed)


def test_the_forest_is_cleaned_by_refitted_leaves():
    X, y, _, V, w = noisy(60, 10)
    model = DynamicForestClassifier(n_estimators=6, max_depth=3, random_state=0).fit(X, y)
    report = cleaned(model, V[:12], w[:12], batch_size=2, max_removed=8)
    assert report.method == "leaf-refit"
    assert model.n_samples_ == 60 - len(report.removed) < 60


def test_the_batch_that_does_not_help_comes_back_as_it_was():
    X, y, _, V, w = noisy(120, 6)
    model = IncrementalBoostingClassifier(10, max_depth=3, quantization=None, random_state=0).fit(X, y)
    worst = influence(model, V, w).harmful(1)[0][0]
    model.samples_.set_subject(worst, "ada")
    model.samples_.set_expiry(worst, 2**40)
    model.samples_.set_origins([worst], 7)
    digest = model.digest()
    # Nearly everything at once: that cannot lower the loss.
    report = clean(model, V, w, batch_size=110, max_removed=110)
    assert [step.kept for step in report.steps] == [False]
    assert report.loss_after == report.loss_before
    assert model.digest() == digest
    store = model.samples_
    assert (store.subject(worst), store.expiry(worst), store.origin(worst)) == ("ada", 2**40, 7)


def test_a_dry_run_only_proposes():
    X, y, flipped, V, w = noisy()
    model = IncrementalBoostingClassifier(15, max_depth=3, random_state=0).fit(X, y)
    digest = model.digest()
    report = clean(model, V, w, dry_run=True, max_removed=0.1)
    assert model.digest() == digest
    assert (report.steps, report.removed, len(report.proposed)) == ([], [], 30)
    assert report.proposed == influence(model, V, w).harmful(30)
    assert sum(name in flipped for name, _ in report.proposed) > 20


def test_regressions_are_cleaned_too():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] * 2
    y[:10] += 15.0
    model = IncrementalBoostingRegressor(15, max_depth=3, random_state=0).fit(X[:200], y[:200])
    report = cleaned(model, X[200:], y[200:], batch_size=5, max_removed=20)
    assert {str(i) for i in range(5)} & set(report.removed)


def test_what_does_not_fit_is_refused_before_anything_changes():
    X, y, _, V, w = noisy(60, 5)
    model = IncrementalBoostingClassifier(5, random_state=0).fit(X, y)
    digest = model.digest()
    for arguments, text in (
        ({"batch_size": 0}, "batch_size=0"), ({"max_removed": 1.5}, "max_removed=1.5"),
        ({"max_removed": 0}, "max_removed=0"), ({"method": "other"}, "method='other'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=text):
            clean(model, V, w, **arguments)
    with pytest.raises(InputError, match="kind tree"):
        clean(DynamicTreeClassifier().fit(X, y), V, w)
    assert model.digest() == digest
