"""Boosting on grids: how far updates reach, and awkward cases by name; after every step all equals a fresh fit.

The player compares digest, answers and all counts with a model fitted to the same samples in other slots.
"""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core.boosting.quantised.engine import LastUpdate, QuantisedTrees
from oubli.core.boosting.quantised.regions import Chooser
from tests.histories.kinds import BY_NAME
from tests.histories.player import Player
from tests.histories.worlds import World
from tests.oracles.common import Column
from tests.tiers import covering

KIND = BY_NAME["quantised"]
PARAMETERS: dict[str, Any] = {
    "n_estimators": 12, "learning_rate": 0.1, "max_depth": 4, "l2_regularization": 1.0, "min_child_weight": 1.0,
    "split_sampling": 1.0, "max_bins": 255, "quantization": (0.25, 0.25), "early_stopping": None,
    "validation_fraction": 0.2, "random_state": 3,
}  # fmt: skip


class Case(Player):
    """A model of samples that are named by numbers: those that it begins with, and others that may come."""

    def __init__(self, X: Any, y: Any, first: Any, *, categorical: tuple[int, ...] = (), **changed: Any) -> None:
        is_classes = y.dtype.kind == "i"
        columns = tuple(Column("categorical") if j in categorical else Column() for j in range(X.shape[1]))
        rows = [
            tuple(None if x != x else f"value {int(x)}" if j in categorical else x for j, x in enumerate(row))
            for row in X.tolist()
        ]
        pool = tuple(zip(rows, y.tolist(), strict=True))
        task, label_type = ("classification", "integer") if is_classes else ("regression", "number")
        super().__init__(KIND, World(columns, task, label_type, {**PARAMETERS, **changed}, pool, tuple(rows[:6])))
        self.hold({f"{i}": pool[i] for i in first})
        self.check()

    @property
    def engine(self) -> Any:
        return self.model.engine_

    def come(self, *numbers: int) -> LastUpdate:
        """Add samples in one call; returns what the update came to."""
        self.add_rows([f"{i}" for i in numbers], [self.world.rows[i] for i in numbers])
        self.check()
        return self.update

    def go(self, *numbers: int) -> LastUpdate:
        """Delete samples in one call."""
        self.delete_ids([f"{i}" for i in numbers])
        self.check()
        return self.update

    @property
    def update(self) -> LastUpdate:
        last: LastUpdate = self.engine.last_update
        return last

    def change(self, rng: np.random.Generator, n_steps: int, largest: int) -> list[LastUpdate]:
        """Add and delete at random."""
        updates, everybody = [], {f"{i}" for i in range(len(self.world.rows))}
        for _ in range(n_steps):
            others, size = sorted(everybody - self.held.keys()), int(rng.integers(1, largest + 1))
            if others and rng.random() < 0.5:
                updates.append(self.come(*map(int, rng.permutation(others)[:size])))
            else:
                updates.append(self.go(*map(int, rng.permutation(sorted(self.held))[:size])))
        return updates


def numbers(rng: np.random.Generator, shape: tuple[int, int], most: int) -> Any:
    """Few values around 0, none of which is alone."""
    return np.round(rng.standard_normal(shape) * 2).clip(-most, most)


def classes_of(score: Any, n_classes: int) -> Any:
    """So many classes of about the same size; 0: targets."""
    return score if n_classes == 0 else np.digitize(score, [0.0] if n_classes == 2 else [-1.0, 1.0])


# -- how far updates reach ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_updates_are_local_where_no_value_is_alone(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    X = numbers(rng, (400, 4), 3)
    y = classes_of(X[:, 0] + X[:, 1] * X[:, 2] + rng.standard_normal(400), n_classes)
    updates = Case(X, y, range(380), n_estimators=10).change(rng, 10, 2)
    assert sum(update.grown_from != 0 for update in updates) >= 9


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_a_sample_with_values_of_its_own_seldom_moves_an_edge(n_classes: int) -> None:
    """Only one of the least level does, a sixteenth of all: the others share the bins of the values that there are."""
    rng = np.random.default_rng(n_classes)
    X = numbers(rng, (416, 4), 3)
    y = classes_of(X[:, 0] + X[:, 1] * X[:, 2] + rng.standard_normal(416), n_classes)
    X[400:] += rng.uniform(-9, 9, (16, 4))
    with KIND.tuned(least_size=5):
        case = Case(X, y, range(400), n_estimators=5)
        assert case.engine.edges.least == 4
        updates = [update for i in range(400, 416) for update in (case.come(i), case.go(i))]
    assert 0 < sum(update.grown_from == 0 for update in updates) <= 12


def regional(n_classes: int, rng: np.random.Generator, **changed: Any) -> Case:
    """Samples of few values, of which regions of some hundred are made where regions may be small."""
    X = numbers(rng, (700, 5), 3)
    X[rng.random((700, 5)) < 0.05] = np.nan
    X[:, 4] = rng.integers(0, 6, 700)
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1] * X[:, 2]) + rng.standard_normal(700)
    return Case(X, classes_of(score, n_classes), range(670), categorical=(4,), n_estimators=12, **changed)


@pytest.mark.parametrize(("patience", "n_classes"), covering([None, 4], [0, 3]))
def test_updates_within_regions(n_classes: int, patience: int | None) -> None:
    with KIND.tuned(least_size=6):
        case = regional(n_classes, np.random.default_rng(n_classes), early_stopping=patience)
        updates = case.change(np.random.default_rng(n_classes), 8, 3)
        assert sum(update.grown_from != 0 for update in updates) >= 5
        assert case.engine.regions.levels == 3


@pytest.mark.parametrize("n_classes", [0, 3])
def test_other_regions_stay_as_they_are(n_classes: int) -> None:
    with KIND.tuned(least_size=6):
        case, n_partly = regional(n_classes, np.random.default_rng(1)), 0
        for sample in range(5):
            before = case.engine.forest.nodes["total"][:, 7:15].copy()
            update = case.go(sample)
            is_changed = (case.engine.forest.nodes["total"][:, 7:15] != before).any(axis=0)
            assert is_changed.sum() <= 1 or update.grown_from == 0
            n_partly += update.grown_from > 0
        assert n_partly > 0


@pytest.mark.parametrize(("least", "levels"), [(6, 2), (9, 0)])
def test_labels_that_say_nothing_have_fewer_regions(least: int, levels: int) -> None:
    rng = np.random.default_rng(3)
    with KIND.tuned(least_size=least):
        X, y = rng.integers(0, 5, (700, 3)).astype(float), rng.integers(0, 3, 700)
        case = Case(X, y, range(670), n_estimators=5)
        assert sum(update.grown_from != 0 for update in case.change(rng, 6, 3)) >= 3
        assert case.engine.regions.is_weak
        assert case.engine.regions.levels == levels


@pytest.mark.parametrize("n_classes", [0, 3])
def test_labels_that_begin_to_say_something_have_regions(n_classes: int) -> None:
    """And have none again when they say nothing any more: no update may miss either."""
    X = np.repeat(np.arange(12) % 6, 12)[:, np.newaxis].astype(float)
    y = np.tile(np.arange(3), 48)
    y[90:] = X[90:, 0] // 2  # the first ones are of all classes wherever they are
    with KIND.tuned(least_size=6):
        case, seen = Case(X, y if n_classes else y.astype(float), range(90), n_estimators=3), []
        for change, samples in ((case.come, range(90, 120)), (case.go, range(119, 89, -1))):
            for sample in samples:
                seen.append(case.engine.regions.levels)
                change(sample)
        assert seen[0] == case.engine.regions.levels == 0
        assert max(seen) == 1


def test_more_samples_have_more_levels_of_edges() -> None:
    rng, seen = np.random.default_rng(0), set[int]()
    X = numbers(rng, (40, 2), 3)
    with KIND.tuned(least_size=3):
        case = Case(X, X[:, 0] + rng.standard_normal(40), range(12), n_estimators=3)
        for change, samples in ((case.come, range(12, 40)), (case.go, range(39, 11, -1))):
            for sample in samples:
                change(sample)
                seen.add(case.engine.edges.least)
    assert len(seen) > 1


def test_other_candidates_may_divide_samples_otherwise() -> None:
    """Regions that differ once there is another category have all trees grown again."""
    find, part = Chooser.find, QuantisedTrees._part
    asked: list[bool] = []

    def find_others_once(*arguments: Any) -> Any:
        regions = find(*arguments)
        return regions._replace(cuts=np.append(regions.cuts, 1)) if asked and asked.pop() else regions

    def ask_once(*arguments: Any) -> bool:
        asked[:] = [True]
        is_same = part(*arguments)
        n_others.append(not asked and not is_same)
        asked.clear()
        return is_same

    rng, n_others = np.random.default_rng(8), list[bool]()
    X, y = rng.integers(0, 9, (160, 2)).astype(float), rng.integers(0, 3, 160)
    X[150:, 0] = np.arange(10, 20)
    with KIND.tuned(least_size=7, weak=4.0):
        case = Case(X, y, range(150), categorical=(0,), max_depth=3, n_estimators=3, min_child_weight=0.0)
        assert case.engine.regions.levels == 0
        with patch.object(Chooser, "find", find_others_once), patch.object(QuantisedTrees, "_part", ask_once):
            for number in (*range(150, 160), *range(159, 149, -1)):
                (case.come if f"{number}" not in case.held else case.go)(number)
    assert any(n_others)


# -- statistics of categories ------------------------------------------------------------------------


@pytest.mark.parametrize(("patience", "n_classes"), covering([None, 3], [0, 2, 3, 10]))
def test_statistics_of_categories_follow_their_samples(n_classes: int, patience: int | None) -> None:
    rng = np.random.default_rng(n_classes)
    X = np.column_stack([numbers(rng, (500, 2), 3), rng.zipf(1.4, 500) % 60, rng.integers(0, 4, 500)])
    X[rng.random(500) < 0.05, 2] = np.nan
    score = X[:, 0] + np.nan_to_num(X[:, 2]) % 5 + rng.standard_normal(500)
    y = np.digitize(score, np.linspace(-1, 4, 9)) if n_classes == 10 else classes_of(score - 2, n_classes)
    changed: dict[str, Any] = {"category_statistics": 6, "early_stopping": patience, "n_estimators": 8}
    case = Case(X, y, range(450), categorical=(2, 3), **changed)
    assert case.engine.statistics.columns == (2,)
    assert len(case.engine.features.categorical) == 4 + max(1, min(8, n_classes * (n_classes > 2)))
    updates = case.change(rng, 16, 3)
    assert sum(update.n_recoded > 0 and update.grown_from != 0 for update in updates) >= 3
    gains = case.model.feature_importances_
    assert len(gains) == 4
    assert gains[2] > gains[1]


def test_a_column_has_statistics_while_it_has_many_categories() -> None:
    X = np.column_stack([np.arange(60) % 4, np.arange(60) % 3]).astype(float)
    X[40:44, 0] = [4, 5, 5, 4]
    case, seen = Case(X, (np.arange(60) % 4 > 1).astype(int), range(40), categorical=(0,), category_statistics=4), []
    for change in (case.come, case.go):
        for sample in (40, 41, 42):
            change(sample)
            seen.append(bool(case.engine.statistics))
    assert seen == [True, True, True, True, True, False]


def test_a_category_of_few_samples_is_rare() -> None:
    X = np.column_stack([np.arange(200) % 8, np.arange(200) % 3]).astype(float)
    X[:3, 0] = 9
    y = (np.arange(200) % 8 > 3).astype(int)
    case = Case(X, y, range(200), categorical=(0,), category_statistics=7)
    assert (case.engine.cells[:, 0] == -1).sum() == 3
    of_one = np.flatnonzero(X[:, 0] == 5).tolist()
    for sample in of_one[6:]:
        case.go(sample)
    assert case.update.n_recoded == 6
    assert (case.engine.cells[:, 0] == -1).sum() == 9
    assert case.come(of_one[6]).n_recoded == 6
    assert (case.engine.cells[:, 0] == -1).sum() == 3
    assert case.update.grown_from != 0


def test_free_slots_run_out_where_many_are_recoded() -> None:
    X = np.column_stack([np.arange(64) % 2, np.arange(64) % 3]).astype(float)
    case = Case(X, np.arange(64) % 2, range(64), categorical=(0,), category_statistics=1, n_estimators=3)
    before = case.engine.capacity
    found = [(case.go(sample).n_recoded, case.engine.capacity) for sample in range(0, 40, 2)]
    assert max(n_recoded for n_recoded, _ in found) >= 10
    assert max(capacity for _, capacity in found) > before
    case.come(*range(0, 40, 2))


# -- awkward cases -----------------------------------------------------------------------------------


def coarse(n: int = 300) -> tuple[Any, Any]:
    """Two classes, three columns of few values that many samples have."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (n, 3)).astype(float)
    return X, (X[:, 0] + X[:, 1] + rng.integers(0, 4, n) > 5).astype(int)


def test_nothing_changes_but_sums_when_a_sample_hardly_matters() -> None:
    case, n_unchanged = Case(*coarse(2500), range(2500)), 0
    before = case.engine.trees.nodes.tobytes()
    for i in range(10):
        case.delete_ids([f"{i}"])
        n_unchanged += case.update.nothing_changed
        case.add_rows([f"{i}"], [case.world.rows[i]])
    assert n_unchanged > 0
    assert case.engine.trees.nodes.tobytes() == before
    case.check()


def test_edges_find_their_places_again_or_have_all_grown_anew() -> None:
    X, y = coarse()
    X[:3, 0] = [1.25, 1.5, 1.75]
    case = Case(X, y, range(300))
    for change, samples in ((case.go, (0, 1, 2)), (case.come, (0, 1, 2)), (case.go, (0, 1)), (case.go, (2,))):
        assert change(*samples) != LastUpdate(), "it was grown again"
    X[2, 0] = 99.0
    case = Case(X, y, range(1, 300))
    codes = len(case.engine.features.edges)
    assert case.come(0) == LastUpdate(), "a third value where there are only two codes"
    assert len(case.engine.features.edges) == codes + 1


def test_rows_grow_longer_than_any_before() -> None:
    rng = np.random.default_rng(8)
    X = (rng.random((300, 30)) < 0.05).astype(float)
    X[:2] = 1.0
    X[2:32] = np.eye(30)
    case = Case(X, (X[:, :15].sum(axis=1) + rng.random(300) > 1).astype(int), range(2, 300))
    assert case.engine.bins.rows.shape[1] < 30
    case.come(0)
    case.go(17)
    case.come(1)
    case.go(0)
    assert case.engine.bins.rows.shape[1] == 30
