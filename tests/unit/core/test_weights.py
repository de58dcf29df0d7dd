"""Weights of samples and classes in the library: what is accepted, held, kept in files, and what a fit makes of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oubli import core
from oubli.core.data.schema import Schema
from oubli.core.errors import CapacityError, InputError

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, "yes", "no")
WEIGHTS = RNG.choice([0.5, 1.0, 2.0, 3.25], N)
KINDS: tuple[Any, ...] = (
    lambda **more: core.DynamicForestClassifier(8, random_state=0, **more),
    lambda **more: core.DynamicTreeClassifier(epsilon=0.0, **more),
    lambda **more: core.IncrementalBoostingClassifier(8, random_state=0, **more),
    lambda **more: core.IncrementalBoostingClassifier(8, random_state=0, quantization=None, **more),
    lambda **more: core.OnlineBoostingClassifier(8, random_state=0, **more),
)


def weights_of(model: Any, *names: str) -> list[float]:
    return [model.samples_.get(name).weight for name in names]


@pytest.mark.parametrize(("weights", "said"), [
    ([1, -1], "row 1, 'sample_weight': must be a number of at least 1/512"), ([1, np.nan], "row 1"),
    ([None, 1], "row 0"), ([1, 2**15], "row 1"), ([0.001, 1], "row 0"), ([1, "a"], "row 1"),
    ([1], "2 rows, but 1 weights"), ([[1], [2]], "1d array"), (np.ones((2, 1)), "must be 1D array"),
    ([0, 0], "zero for all samples"), ("w", "no column of this name"),
])  # fmt: skip
def test_what_is_no_weight_is_refused(weights: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        core.DynamicForestClassifier(2).fit(X[:2], Y[:2], sample_weight=weights)
    model = core.DynamicForestClassifier(2, random_state=0).fit(X[:5], Y[:5])
    digest = model.digest()
    with pytest.raises(InputError, match="at least 1/512" if "zero" in said else said):
        model.add(X[:2], Y[:2], sample_weight=weights)
    assert model.digest() == digest


def test_weights_are_on_a_grid_and_a_fit_leaves_out_those_of_zero() -> None:
    frame = pd.DataFrame(X[:4], columns=["a", "b", "c"]).assign(w=[1.0, 0.0, 2.501, 1 / 500])
    model = core.DynamicForestClassifier(3, random_state=0).fit(frame, Y[:4], sample_weight="w")
    assert (list(model.feature_names_in_), model.samples_.ids()) == (["a", "b", "c"], ["0", "2", "3"])
    assert weights_of(model, "0", "2", "3") == [1.0, 2.5, 1 / 256]
    assert model.add(X[4:6].tolist(), Y[4:6], sample_weight=3) == ["4", "5"]
    model.replace("4", X[6], Y[6])
    model.replace("5", X[6], Y[6], sample_weight=7)
    assert weights_of(model, "4", "5") == [3.0, 7.0]
    model.check_invariants()


def test_all_weights_together_are_limited() -> None:
    model = core.DynamicForestRegressor(2, random_state=0).fit(X[:3], X[:3, 0])
    with pytest.raises(CapacityError, match="must be below 8388608"):
        model.add(np.repeat(X, 5, axis=0), np.repeat(X[:, 0], 5), sample_weight=2.0**15 - 1)
    assert model.verify().ok


@pytest.mark.parametrize("make", KINDS)
def test_weights_of_classes_multiply_those_of_samples(make: Any, tmp_path: Path) -> None:
    model = make(class_weight={"yes": 3}).fit(X, Y, sample_weight=WEIGHTS)
    same = make().fit(X, Y, sample_weight=WEIGHTS * np.where(Y == "yes", 3, 1))
    assert model.tree_digests() == same.tree_digests()
    assert model.digest() != same.digest()  # they go different ways from here
    assert weights_of(model, "1") == [WEIGHTS[1]]
    model.add(X[:2], ["yes", "new"], ids=["a", "b"])
    same.add(X[:2], ["yes", "new"], ids=["a", "b"], sample_weight=[3, 1])
    assert model.tree_digests() == same.tree_digests()
    assert model.verify().ok
    model.save(tmp_path / "model")
    assert core.load(tmp_path / "model").class_weight == {"yes": 3.0}


def test_balanced_is_turned_into_numbers_that_stay() -> None:
    model = core.DynamicForestClassifier(3, random_state=0, class_weight="balanced").fit(X, Y)
    n_yes = int((Y == "yes").sum())
    expected = {"no": N / (2 * (N - n_yes)), "yes": N / (2 * n_yes)}
    assert dict(model.schema_.class_weight) == pytest.approx(expected)
    model.delete([str(i) for i in np.flatnonzero(Y == "yes")[:5]])
    assert dict(model.schema_.class_weight) == pytest.approx(expected)
    assert Schema.from_dict(model.schema_.to_dict()) == model.schema_


def test_scale_pos_weight_is_the_weight_of_the_second_class() -> None:
    scaled = core.IncrementalBoostingClassifier(5, random_state=0, scale_pos_weight=2.5).fit(X, Y)
    weighed = core.IncrementalBoostingClassifier(5, random_state=0, class_weight={"yes": 2.5}).fit(X, Y)
    assert scaled.digest() == weighed.digest()


@pytest.mark.parametrize(("make", "y", "said"), [
    (lambda: core.DynamicForestClassifier(2, class_weight="more"), Y, "None, 'balanced' or weights by class"),
    (lambda: core.DynamicForestClassifier(2, class_weight={"yes": -1}), Y, "pairs of a class and its weight"),
    (lambda: core.DynamicForestClassifier(2, class_weight={2.5: 1}), Y, "different labels of type 'string'"),
    (lambda: core.IncrementalBoostingClassifier(2, scale_pos_weight=2), X[:, 0].round(), "needs two classes"),
    (lambda: core.IncrementalBoostingRegressor(2, class_weight={1: 2}), X[:, 0], "a regression has no classes"),
    (lambda: core.IncrementalBoostingClassifier(2, class_weight="balanced", scale_pos_weight=2), Y, "no class_weight"),
])  # fmt: skip
def test_what_is_no_weight_of_a_class_is_refused(make: Any, y: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make().fit(X, y)


def test_a_model_that_starts_empty_has_weights_of_classes_but_for_balanced_ones() -> None:
    schema = Schema.infer(X, Y, task="classification")
    model = core.DynamicForestClassifier(3, random_state=0, class_weight={"yes": 2}).start(schema)
    model.add(X, Y, ids=range(N))
    fitted = core.DynamicForestClassifier(3, random_state=0, class_weight={"yes": 2}).fit(X, Y, ids=range(N))
    assert model.digest() == fitted.digest()
    with pytest.raises(InputError, match="no samples yet"):
        core.DynamicForestClassifier(3, class_weight="balanced").start(schema)


def test_a_look_at_a_tree_counts_weights() -> None:
    model = core.DynamicForestClassifier(1, random_state=0, occurrence=1.0).fit(X, Y, sample_weight=WEIGHTS)
    (counts, _) = model.engine_.look(0, model.problem()).says(0)
    assert counts == [WEIGHTS[Y == "no"].sum(), WEIGHTS[Y == "yes"].sum()]
