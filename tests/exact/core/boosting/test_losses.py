"""Losses of boosted regressions, monotone constraints, stages and the loss curve.

What a fit is, and that updates give it, is in the histories, with the oracles; these are cases that they seldom meet.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli import core, load
from oubli.core.boosting import loss as numbers
from oubli.core.boosting.quantised.split import parting_few
from oubli.core.boosting.rows import without_grain
from oubli.core.errors import InputError, UnavailableError
from oubli.core.influence.methods import influence
from oubli.core.persistence import read_metadata
from tests.exact.core.boosting import reading
from tests.oracles.boosting import numbers as plain
from tests.oracles.boosting import presorted, quantised
from tests.oracles.boosting.quantised_parts import Parameters
from tests.oracles.boosting.trees import sample_of
from tests.oracles.common import Column

LOSSES: tuple[dict[str, Any], ...] = (
    {"loss": "huber"}, {"loss": "huber", "huber_delta": 0.7}, {"loss": "quantile", "quantile": 0.1},
    {"loss": "quantile"}, {"loss": "quantile", "quantile": 0.97}, {"loss": "poisson"},
)  # fmt: skip
GRIDS: tuple[Any, ...] = ("auto", None)
ENGINES: tuple[Any, ...] = (*GRIDS, "online")


def counts(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with missing values, and counts that follow the first two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = rng.poisson(np.exp(0.7 * X[:, 0] - 0.5 * X[:, 1])).astype(float)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y


def regressor(grids: Any, **parameters: Any) -> Any:
    """A small model with a seed, of incremental boosting unless `grids` says online."""
    if grids == "online":
        others = {"n_estimators": 5, "max_leaf_nodes": 8, "min_child_weight": 1.0, "random_state": 3, **parameters}
        return core.OnlineBoostingRegressor(**others)
    others = {"n_estimators": 5, "max_depth": 3, "random_state": 3, **parameters}
    return core.IncrementalBoostingRegressor(quantization=grids, **others)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("asked", LOSSES)
def test_targets_that_hardly_exist(asked: dict[str, Any], engine: Any, tmp_path: Path) -> None:
    """Their unit and the square of their spread are 0."""
    model = regressor(engine, l2_regularization=0.0, **asked)
    model.fit([[float(i % 5)] for i in range(12)], [(0.0, 5e-324, 1e-310)[i % 2 + i // 8] for i in range(12)])
    for change in (lambda: model.delete([f"{i}" for i in range(8, 12)]), lambda: model.add([[2.0]], [3e-310])):
        change()
        model.check_invariants()
        assert np.isfinite(model.predict([[1.0], [2.0]])).all()
        model.save(tmp_path / "model")
        assert load(tmp_path / "model").digest() == model.digest()
        assert engine == "online" or model.fresh_fit().digest() == model.digest()


@pytest.mark.parametrize("asked", LOSSES)
def test_slope_is_the_derivative(asked: dict[str, Any]) -> None:
    """Of the loss itself, away from kinks; and the kernels compute what is written out in Python."""
    kind, level = numbers.KINDS[asked["loss"]], asked.get("quantile", 0.5)
    level = asked.get("huber_delta", 1.5) if asked["loss"] == "huber" else level
    curve = {"huber": plain.huber(level), "quantile": plain.pinball(level, 0.01), "poisson": plain.poisson()}
    own = curve[asked["loss"]]
    for score in (-2.1, -0.4, 0.3, 1.9):
        for y in (0.0, 1.0, 3.0):
            step = 1e-6
            expected = (own.value(score + step, y) - own.value(score - step, y)) / (2 * step)
            assert own.slope(score, y) == pytest.approx(expected, abs=1e-5)
            losses = np.zeros(1)
            numbers.losses_at(kind, level, np.array([score]), np.array([y]), losses)
            assert losses[0] == own.value(score, y) >= 0.0


def require_the_oracle(model: Any, X: Any, y: Any) -> None:
    """Fit, and compare the trees."""
    model.fit(X, y)
    columns = (Column(),) * X.shape[1]
    rows = [[None if x != x else float(x) for x in row] for row in X]
    samples = {str(i): sample_of(str(i), rows[i], y[i], columns, "regression") for i in range(len(y))}
    gradient_grid, leaf_grid = model.settings_.to_dict()["quantization"] or (0.0, 0.0)
    values = {name: getattr(model, name) for name in Parameters.__annotations__ if hasattr(model, name)}
    parameters = Parameters(gradient_grid=gradient_grid, leaf_grid=leaf_grid, **values)
    oracle = quantised if model.quantization else presorted
    reading.assert_same(model.engine_.trees, oracle.fit(samples, parameters, columns, "regression"))


@pytest.mark.parametrize("asked", LOSSES)
@pytest.mark.parametrize("grids", GRIDS)
@pytest.mark.parametrize("constraints", [None, {0: 1, 2: -1}])
def test_fit_is_that_of_the_oracle(grids: Any, asked: dict[str, Any], constraints: dict[int, int] | None) -> None:
    model = regressor(grids, early_stopping=2, validation_fraction=0.3, monotone_constraints=constraints, **asked)
    require_the_oracle(model, *counts(60))


def through_a_file(model: Any, folder: Path) -> Any:
    """Save and load: what comes of it is the same."""
    model.save(folder / "model")
    again = load(folder / "model", verify=True)
    assert (again.digest(), again.settings_) == (model.digest(), model.settings_)
    assert again.train_loss_.tobytes() == model.train_loss_.tobytes()
    return again


@pytest.mark.parametrize("asked", [*LOSSES, {"monotone_constraints": {"x0": 1, "x1": -1}}])
@pytest.mark.parametrize("grids", GRIDS)
@pytest.mark.parametrize("weighs", [False, True])
def test_updates_are_a_fresh_fit(grids: Any, asked: dict[str, Any], weighs: bool, tmp_path: Path) -> None:
    """After a few hundred samples have come and gone; so is the model of a file."""
    X, y = counts(700, 1)
    rng = np.random.default_rng(5)
    weights = rng.choice([1.0, 2.0, 0.3], len(y)) if weighs else None
    held: set[int] = set(range(500))

    def of(rows: Any) -> Any:
        return None if weights is None else weights[rows]

    model = regressor(grids, **asked).fit(X[:500], y[:500], ids=range(500), sample_weight=of(slice(500)))
    for step in range(12):
        rows = rng.choice(500, 2, replace=False) if step % 2 else 500 + 3 * step + np.arange(3)
        gone, new = [row for row in rows.tolist() if row in held], [row for row in rows.tolist() if row not in held]
        if gone:
            model.delete([str(row) for row in gone])
        if new:
            model.add(X[new], y[new], ids=new, sample_weight=of(new))
        held = (held - set(gone)) | set(new)
    rows = sorted(held)
    fresh = regressor(grids, **asked).fit(X[rows], y[rows], ids=rows, sample_weight=of(rows))
    assert (model.digest(), model.predict(X).tobytes()) == (fresh.digest(), fresh.predict(X).tobytes())
    model.check_invariants()
    through_a_file(model, tmp_path)


@pytest.mark.parametrize("asked", [*LOSSES, {"loss": "poisson", "monotone_constraints": {0: 1, 1: -1}}])
@pytest.mark.parametrize("weighs", [False, True])
def test_online_updates_are_kept_and_forgotten(asked: dict[str, Any], weighs: bool, tmp_path: Path) -> None:
    """What comes and goes again leaves nothing, a file has all of the model, and a scrub makes it a fresh fit."""
    X, y = counts(500, 1)
    weights = np.random.default_rng(5).choice([1.0, 2.0, 0.3], len(y)) if weighs else np.ones(len(y))

    def fitted(rows: Any) -> Any:
        lax = regressor("online", robustness=1.0, max_leaf_nodes=4, **asked)  # which retrains no subtree
        return lax.fit(X[rows], y[rows], ids=rows, sample_weight=weights[rows])

    model = fitted(range(400))
    before = model.digest()
    model.add(X[400:406], y[400:406], ids=range(400, 406), sample_weight=weights[400:406])
    assert model.digest() != before
    model.delete([str(i) for i in range(400, 406)])
    assert model.digest() == before
    model.delete([str(i) for i in range(12)])
    assert not model.engine_.last_update.grown
    model.check_invariants()
    again = through_a_file(model, tmp_path)
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    for copy in (again, model):
        copy.add(X[450:452], y[450:452], ids=["a", "b"], sample_weight=weights[450:452])
    assert again.digest() == model.digest()
    model.delete(["a", "b"])
    model.scrub()
    assert model.digest() == fitted(range(12, 400)).digest()
    assert model.verify().ok


@pytest.mark.parametrize("asked", [*LOSSES, {}])
@pytest.mark.parametrize("grids", ENGINES)
def test_stages_curve_and_attributions(grids: Any, asked: dict[str, Any]) -> None:
    """The last stage is the prediction, the curve is the mean of the loss, and attributions add up to raw scores."""
    (X, y), weights = counts(200), None if asked else np.where(np.arange(200) % 3, 1.0, 2.0)
    model = regressor(grids, **asked).fit(X, y, sample_weight=weights)
    stages, raw = list(model.staged_predict(X)), model.raw_scores(X)[:, 0]
    assert not hasattr(model, "staged_predict_proba")
    assert stages[-1].tobytes() == model.predict(X).tobytes()
    assert stages[-1].tolist() == pytest.approx((np.exp(raw) if model.loss == "poisson" else raw).tolist())
    level = model.engine_.loss_level(model.problem()) if model.loss == "huber" else asked.get("quantile", 0.5)
    curve = {"huber": plain.huber(level), "quantile": plain.pinball(level, 1.0), "poisson": plain.poisson()}
    for stage, mean in zip(stages, model.train_loss_, strict=True):
        scores, losses = np.log(stage) if model.loss == "poisson" else stage, (stage - y) ** 2
        if asked:
            losses = [curve[model.loss].value(score, label) for score, label in zip(scores, y, strict=True)]
        assert mean == pytest.approx(np.average(losses, weights=weights), rel=1e-9)
    assert model.train_loss_[-1] < model.train_loss_[0]
    found = model.shap_values(X)
    assert (found.values.sum(axis=1) + found.base_values).tolist() == pytest.approx(raw.tolist())


def test_online_targets_out_of_reach_have_all_trees_grown_again() -> None:
    X, y = counts(200)
    for asked in (*LOSSES, {}):
        model = regressor("online", **asked).fit(X, y, ids=range(200))
        model.add(X[:1], [y.max() * 1.5], ids=["near"])
        assert not model.engine_.last_update.grown
        model.add(X[:1], [y.max() * 100.0], ids=["far"])
        assert model.engine_.last_update.grown
        assert model.digest() == model.fresh_fit().digest()


def test_an_online_file_with_a_wrong_curve_is_refused(tmp_path: Path) -> None:
    X, y = counts(60)
    model = regressor("online", loss="quantile").fit(X, y)
    engine, problem = model.engine_, model.problem()
    for wrong in ([0.5, 0.0, 1.0], [0.5, np.nan, 1.0], [0.5, 1.0]):
        with pytest.raises(ValueError, match=r"curve|scale"):
            engine.copy().take_over({**engine.arrays(), "curve": np.array(wrong)}, problem, model.samples_.slots())


@pytest.mark.parametrize("asked", [{"loss": "quantile"}, {"loss": "poisson"}, {}])
def test_threads_grow_the_same(asked: dict[str, Any]) -> None:
    """With constraints: trees of classes are grown block by block, those of numbers by regions."""
    X, y = counts(300, 6)
    constraints = {"monotone_constraints": {0: 1}}
    digests = []
    for n_jobs in (1, 2):
        with parting_few(), without_grain():
            own = regressor("auto", n_jobs=n_jobs, **asked, **constraints).fit(X, y)
            classes = core.IncrementalBoostingClassifier(4, random_state=0, n_jobs=n_jobs, **constraints).fit(X, y > 1)
            online = regressor("online", n_jobs=n_jobs, **asked, **constraints).fit(X, y)
        digests.append((own.digest(), classes.digest(), online.digest()))
        assert own.engine_.regions.levels == 3
    assert digests[0] == digests[1]


@pytest.mark.parametrize("grids", ENGINES)
def test_file_of_defaults_names_no_new_parameters(grids: Any, tmp_path: Path) -> None:
    """So that older programs read it."""
    X, y = counts(40)
    regressor(grids).fit(X, y).save(tmp_path / "model")
    document = read_metadata(tmp_path / "model")
    new = {"loss", "quantile", "huber_delta", "monotone_constraints", "level", "monotone"}
    assert not new & {*document["parameters"], *document["settings"]}


@pytest.mark.parametrize("grids", ENGINES)
def test_error_is_near_that_of_lightgbm(grids: Any) -> None:
    """Its objectives, with 100 iterations and a learning rate of 0.1; see `benchmarks/bench_losses.py`."""
    import lightgbm

    X, y = counts(3000, 3)
    for asked, theirs in (
        ({"loss": "quantile", "quantile": 0.9}, {"objective": "quantile", "alpha": 0.9}),
        ({"loss": "huber", "huber_delta": 1.0}, {"objective": "huber", "alpha": 1.0}),
        ({"loss": "poisson"}, {"objective": "poisson"}),
    ):
        kind, level = numbers.KINDS[asked["loss"]], asked.get("quantile", asked.get("huber_delta", 0.0))
        ours: Any = core.OnlineBoostingRegressor(random_state=0, **asked)
        if grids != "online":
            ours = core.IncrementalBoostingRegressor(random_state=0, quantization=grids, **asked)
        ours.fit(X[:2000], y[:2000])
        peer = lightgbm.LGBMRegressor(random_state=0, verbose=-1, n_jobs=1, **theirs).fit(X[:2000], y[:2000])
        errors = []
        for predicted in (ours.predict(X[2000:]), peer.predict(X[2000:])):
            losses = np.zeros(1000)
            scores = np.log(predicted) if kind == numbers.POISSON else predicted
            numbers.losses_at(kind, level, scores, y[2000:], losses)
            errors.append(losses.mean())
        assert errors[0] < 1.06 * errors[1], asked


@pytest.mark.parametrize("kind", [core.IncrementalBoostingClassifier, core.OnlineBoostingClassifier])
def test_probabilities_follow_constraints(kind: Any) -> None:
    """Of the second of two classes, along each constrained column with missing values elsewhere, after updates."""
    X, y = counts(400, 4)
    labels = (y > 1).astype(int)
    model = kind(20, random_state=0, monotone_constraints=["x0:1", "x1:-1"], min_child_weight=0.0)
    model.fit(X[:300], labels[:300], ids=range(300))
    model.add(X[300:], labels[300:], ids=range(300, 400))
    model.delete([str(i) for i in range(0, 400, 9)])
    rows = X[:60].copy()
    for column, direction in ((0, 1), (1, -1)):
        stages = []
        for value in np.linspace(-3.0, 3.0, 41):
            rows[:, column] = value
            stages.append(model.predict_proba(rows)[:, 1])
        steps = np.diff(np.array(stages), axis=0) * direction
        assert steps.min() >= 0.0
        assert steps.max() > 0.0
        rows = X[:60].copy()


def test_a_third_class_is_refused() -> None:
    X, y = counts(60)
    model = core.IncrementalBoostingClassifier(3, random_state=0, monotone_constraints={0: 1})
    model.fit(X, (y > 1).astype(int))
    before = model.digest()
    with pytest.raises(InputError, match="third class"):
        model.add(X[:1], [7])
    assert model.digest() == before
    with pytest.raises(InputError, match="third class"):
        core.IncrementalBoostingClassifier(3, monotone_constraints={0: 1}).fit(X, np.minimum(y, 2).astype(int))


@pytest.mark.parametrize("grids", ENGINES)
def test_negative_targets_are_refused(grids: Any) -> None:
    X, y = counts(60)
    model = regressor(grids, loss="poisson").fit(X, y)
    before = model.digest()
    for change in (lambda: model.add(X[:2], [1.0, -0.5]), lambda: model.replace("3", X[0].tolist(), -1.0)):
        with pytest.raises(InputError, match="at least 0"):
            change()
    assert model.digest() == before
    with pytest.raises(InputError, match="at least 0") as refused:
        regressor(grids, loss="poisson").fit(X, y - 1.0)
    assert refused.value.row == int(np.argmax(y == 0))
    other = regressor(grids).fit(X, y - 1.0)
    with pytest.raises(InputError, match="at least 0"):
        regressor(grids, loss="poisson").fit_held(other.samples_)


@pytest.mark.parametrize(("parameters", "rule"), [
    ({"loss": "absolute"}, "must be one of"), ({"quantile": 0.9}, "goes with loss='quantile'"),
    ({"huber_delta": 2.0}, "goes with loss='huber'"), ({"loss": "quantile", "quantile": 1.0}, "must be a number"),
    ({"loss": "huber", "huber_delta": 0.0}, "must be a number"), ({"monotone_constraints": {"shop": 1}}, "no column"),
    ({"monotone_constraints": {7: 1}}, "no column"), ({"monotone_constraints": {0: 2}}, "must say 1"),
    ({"monotone_constraints": {0: 1, "x0": 1}}, "once"), ({"monotone_constraints": {2: 1}}, "categories"),
    ({"monotone_constraints": ["x0"]}, "texts like"), ({"monotone_constraints": "x0:1"}, "texts like"),
])  # fmt: skip
@pytest.mark.parametrize("grids", ["auto", "online"])
def test_wrong_parameters_are_refused(grids: Any, parameters: dict[str, Any], rule: str) -> None:
    rows = [[0.5, 1.0, "a"], [1.5, 2.0, "b"], [2.5, 0.0, "a"]]
    with pytest.raises(InputError, match=rule):
        regressor(grids, **parameters).fit(rows, [1.0, 2.0, 3.0], categorical_features=[2])


@pytest.mark.parametrize("kind", [core.IncrementalBoostingClassifier, core.OnlineBoostingClassifier])
def test_classifiers_have_log_loss_alone(kind: Any) -> None:
    with pytest.raises(InputError, match="is for numbers"):
        kind(loss="quantile").fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("grids", GRIDS)
def test_early_stopping_sees_losses_beyond_the_largest_number(grids: Any) -> None:
    X = np.arange(60.0)[:, np.newaxis]
    y = np.where(X[:, 0] % 3 == 0, 1.7e308, 5.0)
    others = {"early_stopping": 1, "validation_fraction": 0.5, "category_statistics": None}
    require_the_oracle(regressor(grids, loss="poisson", **others), X, y)


def test_boolean_columns_may_be_constrained() -> None:
    rows = [[True, 0.5], [False, 1.5]] * 20
    labels = [1.0, 2.0] * 20  # falls where it is to rise
    model = regressor("auto", monotone_constraints={0: 1}, min_child_weight=0.0).fit(rows, labels)
    low, high = model.predict([[False, 1.5], [True, 1.5]])
    assert low <= high


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", [core.IncrementalBoostingClassifier, core.OnlineBoostingClassifier])
def test_stages_end_in_predictions(n_classes: int, kind: Any) -> None:
    """The last stage is what the model predicts, to the bit; the curve is the mean loss of each."""
    X, y = counts(80)
    labels = np.minimum(y, n_classes - 1).astype(int)
    model = kind(6, random_state=0, min_child_weight=0.0)
    weights = np.where(np.arange(80) % 3, 1.0, 2.0)
    model.fit(X, labels, sample_weight=weights)
    stages = list(model.staged_predict(X))
    assert len(stages) == model.best_iteration_ == len(model.train_loss_) == 6
    assert stages[-1].tolist() == model.predict(X).tolist()
    shares = list(model.staged_predict_proba(X))
    assert shares[-1].tobytes() == model.predict_proba(X).tobytes()
    expected = [np.average(-np.log(share[np.arange(80), labels]), weights=weights) for share in shares]
    assert model.train_loss_.tolist() == pytest.approx(expected, rel=1e-9)
    assert model.train_loss_[-1] < model.train_loss_[0]


def test_curve_goes_with_its_version() -> None:
    """It is kept until the next change, and overwritten then."""
    X, y = counts(80)
    model = regressor("auto").fit(X, y)
    model.train_loss_[0] = 0.0  # a copy
    kept = model.samples_.changes.derived["train_loss"]
    assert kept.all()
    before = model.train_loss_
    model.delete("3")
    assert "train_loss" not in model.samples_.changes.derived
    assert not kept.any()
    assert model.train_loss_.tobytes() != before.tobytes()
    stages = model.staged_predict(X[:2])
    first = next(stages)
    model.delete(model.samples_.ids()[:60])
    assert len([first, *stages]) == 5  # of the model as it was


def test_best_iteration_is_that_of_early_stopping() -> None:
    X, y = counts(300)
    model = regressor("auto", n_estimators=200, learning_rate=1.0, early_stopping=2).fit(X, y)
    assert 0 < model.best_iteration_ == model.n_trees_ < 200
    assert len(model.train_loss_) == model.best_iteration_


def test_influence_through_leaves_is_for_squared_error() -> None:
    X, y = counts(60)
    for asked in ({"loss": "poisson"}, {"monotone_constraints": {0: 1}}):
        model = regressor("auto", category_statistics=None, **asked).fit(X, y)
        with pytest.raises(UnavailableError, match="leave-one-out"):
            influence(model, X[:2], y[:2])
        found = influence(model, X[:2], y[:2], method="leave-one-out")
        assert np.isfinite(found.scores).all()
        with pytest.raises(UnavailableError, match="for squared error"):
            influence(regressor("online", **asked).fit(X, y), X[:2], y[:2])
