"""A tree of samples with weights: beside one of repeated rows, built and judged by the oracle, and after histories."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicTreeClassifier
from oubli.core.tree.invariants import _gains, find_broken_promises
from tests.exact.core.tree.reading import columns_of, read, samples_of
from tests.exact.core.tree.test_engine import table
from tests.histories.comparisons import tree_parameters
from tests.oracles import tree as oracle

WEIGHTS = {"whole": [1, 2, 3], "halves": [0.5, 1, 2.5], "few halves": [1] * 30 + [0.5], "far apart": [0.5, 40]}
BOUNDS: dict[str, Any] = {"alpha": 0.4, "beta": 0.6, "epsilon": None, "max_depth": None}


def weighted(n: int, weights: str, n_classes: int, seed: int = 1) -> tuple[Any, Any, Any]:
    X, y = table(n, seed, n_values=6, missing=0.1, n_categories=4, n_classes=n_classes)
    return X, y, np.random.default_rng(seed).choice(WEIGHTS[weights], n)


def fitted(X: Any, y: Any, weights: Any, **parameters: Any) -> Any:
    model = DynamicTreeClassifier(**parameters)
    return model.fit(X, y, categorical_features=[3], sample_weight=weights, ids=[f"{i}" for i in range(len(y))])


def repeated(model: Any, held: dict[str, oracle.Sample]) -> dict[str, oracle.Sample]:
    """Samples of a model as often as twice their weights say."""
    times = {name: int(2 * model.samples_.get(name).weight) for name in held}
    return {f"{name} {i}": sample for name, sample in held.items() for i in range(times[name])}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_give_the_tree_of_repeated_rows(weights: str, n_classes: int) -> None:
    X, y, w = weighted(120, weights, n_classes)
    model = fitted(X, y, w, max_depth=None, alpha=0.05)
    times = (2 * w).astype(int)
    twin = fitted(np.repeat(X, times, axis=0), np.repeat(y, times), None, max_depth=None, alpha=0.05)
    assert np.array_equal(model.predict_proba(X), twin.predict_proba(X))
    assert np.array_equal(model.feature_importances_, twin.feature_importances_)
    held = repeated(model, samples_of(model))
    parameters = oracle.Parameters(h=None, alpha=0.05)
    theirs = list(oracle.build(held, 0, parameters, columns_of(model)).walk())
    # Counted in units of 1/256 or as whole weights, and there as halves.
    scale = 1 if weights == "whole" else 256
    for mine, its in zip(read(model).walk(), theirs, strict=True):
        assert (mine.split, 2 * mine.s) == (its.split, scale * its.s)
        assert len(repeated(model, mine.held())) == its.s
    data, slots = model.data(), model.samples_.slots()
    best = max(gain for column in range(4) for gain in _gains(data, column, slots))
    assert best == pytest.approx(oracle.best_gain(list(held.values()), columns_of(model)), abs=1e-12)
    assert model.verify().ok


PARAMETERS: dict[str, dict[str, Any]] = {
    "exact": {"epsilon": 0.0}, "exact window": {"epsilon": 0.0, "window": 60, "lazy": True}, "feasible": BOUNDS,
    "feasible, pruned": {**BOUNDS, "pruning_size": 5, "lazy": True},
}  # fmt: skip


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", PARAMETERS)
def test_histories(name: str, weights: str, tmp_path: Path) -> None:
    """Samples come, go and are replaced, until all weights are whole again, and are not once more."""
    X, y, w = weighted(400, weights, 3)
    rng, model = np.random.default_rng(3), fitted(X[:80], y[:80], w[:80], **PARAMETERS[name])

    def check() -> None:
        model.check_invariants()
        assert model.verify().ok
        if model.settings_.tree.epsilon == 0.0:
            fresh = model.fresh_fit()
            assert (fresh.digest(), fresh.engine_.is_whole) == (model.digest(), model.engine_.is_whole)
        elif "pruned" not in name:
            settings, held = tree_parameters({**model.get_params(), "lazy": False}), samples_of(model)
            assert not oracle.violations(read(model), repeated(model, held), settings, columns_of(model))

    for step in range(30):
        new = slice(80 + 10 * step, 80 + 10 * step + int(rng.integers(1, 10)))
        model.add(X[new], y[new], ids=[f"{i}" for i in range(400)[new]], sample_weight=w[new])
        model.delete(rng.choice(model.samples_.ids(), int(rng.integers(1, 8)), replace=False).tolist())
        model.replace(str(rng.choice(model.samples_.ids())), X[-step], y[-step], sample_weight=w[-step])
        if step % 5 == 0:
            check()
    for part in [name for name in model.samples_.ids() if model.samples_.get(name).weight % 1]:
        model.delete(part)
    assert model.engine_.is_whole
    check()
    model.replace(model.samples_.ids()[0], X[0], y[0], sample_weight=0.5)
    check()
    model.copy().check_invariants()
    model.save(tmp_path / "model")
    loaded = DynamicTreeClassifier.load(tmp_path / "model", verify=False)
    assert loaded.digest() == model.digest()
    assert not loaded.engine_.recount(loaded.problem(), loaded.samples_.slots())


def test_weights_that_no_parameter_allows_for_break_promises() -> None:
    """Heavy samples turn the labels around under a tree that is hardly ever rebuilt."""
    X, y, w = weighted(100, "whole", 2)
    model = fitted(X, y, w, **{**BOUNDS, "epsilon": 9.0, "alpha": 0.2, "beta": 0.05})
    model.add(X, 1 - (X[:, 1] > 0), ids=[f"b{i}" for i in range(100)], sample_weight=3)
    settings, held = tree_parameters({**model.get_params(), "lazy": False}), repeated(model, samples_of(model))
    broken = find_broken_promises(model.engine_.tree, model.settings_, model.data(), model.samples_.slots())
    assert len(broken) == len(oracle.violations(read(model), held, settings, columns_of(model))) > 0


def test_a_node_that_comes_to_the_pruning_size_is_rebuilt_however_little_weighs_what_came() -> None:
    model = DynamicTreeClassifier(pruning_size=4, **BOUNDS).fit([[0], [1], [2], [3]], [0, 0, 1, 1], sample_weight=50)
    for change, n_nodes in ((lambda: model.add([[4]], [1], ids=["4"]), 3), (lambda: model.delete("4"), 1)):
        assert model.engine_.n_nodes == 4 - n_nodes
        change()
        assert model.engine_.n_nodes == n_nodes
        assert model.verify().ok


@pytest.mark.parametrize(("n", "touched"), [(19, 1), (9, 0)])
def test_updates_in_parts_are_rounded_up_when_all_weights_are_whole_again(n: int, touched: int) -> None:
    """Of 9.5 a tenth may go, but 1, which half a sample counts for from then on, is more than a tenth of 9."""
    model = DynamicTreeClassifier().fit(np.eye(n + 1), np.arange(n + 1) % 2, sample_weight=[1] * n + [0.5])
    model.delete(str(n))
    assert (model.engine_.tree.nodes["built"][0], model.engine_.tree.nodes["touched"][0]) == (n, touched)
    model.check_invariants()
    assert model.verify().ok
