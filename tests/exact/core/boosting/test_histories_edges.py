"""Histories at the edges: no samples, one, duplicates, constant columns, classes and categories that go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.histories.kinds import BY_NAME
from tests.histories.player import Player
from tests.histories.worlds import World
from tests.oracles.common import Column

NUMBER, CATEGORY = Column(), Column("categorical")

EXACT: dict[str, Any] = {
    "n_estimators": 3,
    "learning_rate": 0.5,
    "max_depth": 3,
    "min_child_weight": 0.0,
    "split_sampling": 0.5,
    "random_state": 5,
}
ONLINE: dict[str, Any] = {
    "n_estimators": 3,
    "learning_rate": 0.5,
    "max_leaf_nodes": 4,
    "min_child_weight": 0.0,
    "robustness": 0.0,
    "random_state": 5,
}
PARAMETERS = {"quantised": EXACT, "presorted": {**EXACT, "quantization": None}, "online": ONLINE}

Rows = list[tuple[tuple[Any, ...], Any]]


def start(engine: str, columns: tuple[Column, ...], rows: Rows, label_type: str, **changed: Any) -> Player:
    """A player without samples."""
    task = "regression" if label_type == "number" else "classification"
    queries = tuple(features for features, _ in rows)
    return Player(
        BY_NAME[engine], World(columns, task, label_type, {**PARAMETERS[engine], **changed}, tuple(rows), queries)
    )


def one_by_one(player: Player, rows: Rows, *, backwards: bool = True) -> None:
    """Samples come one by one, and go one by one, the last first or the first first; all is checked in between."""
    names = [f"sample {i}" for i in range(len(rows))]
    player.check()
    for name, row in zip(names, rows, strict=True):
        player.add_rows([name], [row])
        player.check()
    for name in reversed(names) if backwards else names:
        player.delete_ids([name])
        player.check()


engines = pytest.mark.parametrize("engine", PARAMETERS)
both_ways = pytest.mark.parametrize("backwards", [False, True])


@engines
@both_ways
def test_classes_come_and_go(engine: str, backwards: bool) -> None:
    """From none to five and back, the new ones before, between and behind the others."""
    labels = [3, 3, 1, 3, 1, 5, 5, 2, 1, 4, 4, 3]
    rows: Rows = [((float(i % 5), float(label)), label) for i, label in enumerate(labels)]
    one_by_one(start(engine, (NUMBER, NUMBER), rows, "integer"), rows, backwards=backwards)


@engines
@both_ways
def test_categories_come_and_go(engine: str, backwards: bool) -> None:
    values = ["a", "b", None, "a", "c", "d", None, "e", "b"]
    rows: Rows = [((value, float(i)), int(value in ("a", None))) for i, value in enumerate(values)]
    one_by_one(start(engine, (CATEGORY, NUMBER), rows, "integer"), rows, backwards=backwards)


@engines
@pytest.mark.parametrize("label_type", ["integer", "number"])
def test_samples_that_are_all_alike(engine: str, label_type: str) -> None:
    """No split parts them; the answer is the same for all."""
    rows: Rows = [((1.5, "a", None), i % 2) for i in range(9)]
    player = start(engine, (NUMBER, CATEGORY, NUMBER), rows, label_type)
    one_by_one(player, rows)
    player.add_rows([f"again {i}" for i in range(9)], rows)
    player.check()
    assert len(set(player.model.predict([list(row) for row, _ in rows]).tolist())) == 1
    assert player.model.feature_importances_.tolist() == [0.0, 0.0, 0.0]


@engines
def test_only_missing_values_tell_samples_apart(engine: str) -> None:
    rows: Rows = [((None if i % 3 == 0 else 7.0,), "odd" if i % 3 == 0 else "even") for i in range(24)]
    player = start(engine, (NUMBER,), rows, "string", l2_regularization=0.0)
    player.fit(24)
    player.check()
    assert player.model.predict([[None], [7.0], [8.0]]).tolist() == ["odd", "even", "even"]
    one_by_one(player, rows[:6])


@engines
@both_ways
def test_targets_that_hardly_differ(engine: str, backwards: bool) -> None:
    """The same target again and again, and one that is far away."""
    targets = [2.5, 2.5, 2.5, 2.5000000001, 1e9, 0.0, -1e-300, 2.5]
    rows: Rows = [((float(i),), y) for i, y in enumerate(targets)]
    one_by_one(start(engine, (NUMBER,), rows, "number"), rows, backwards=backwards)


@engines
def test_one_target_is_answered_exactly(engine: str) -> None:
    """F_0 is the target when there is only one: no grid, no spread."""
    for target in (0.0, 0.1, -7.25, 1e30):
        rows: Rows = [((float(i),), target) for i in range(5)]
        player = start(engine, (NUMBER,), rows, "number")
        for n in (1, 5):
            player.fit(n)
            player.check()
            assert player.model.predict([[0.0], [99.0]]) == pytest.approx([target] * 2, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("engine", ["quantised", "presorted"])
@pytest.mark.parametrize("label_type", ["integer", "number"])
def test_few_samples_validate_or_train(engine: str, label_type: str) -> None:
    """Of few samples none may validate, or none train; which is decided by their ids."""
    rows: Rows = [((float(i),), i % 2) for i in range(12)]
    changed = {"early_stopping": 1, "validation_fraction": 0.5, "min_child_weight": 0.0}
    one_by_one(start(engine, (NUMBER,), rows, label_type, **changed), rows)


@pytest.mark.parametrize("engine", ["quantised", "presorted"])
def test_one_class_goes_through_a_file_where_samples_validate(engine: str) -> None:
    """There are no trees, and some samples validate what is not there."""
    rows: Rows = [((float(i),), "only") for i in range(12)]
    player = start(engine, (NUMBER,), rows, "string", early_stopping=1, validation_fraction=0.5)
    player.fit(12)
    player.save_and_load(1)
    player.check()
    player.add_rows(["other"], [((20.0,), "another")])
    player.save_and_load(1)
    player.check()


@engines
def test_the_same_again_and_again(engine: str) -> None:
    """A sample comes and goes many times: nothing wears out, and the exact kind is back where it was."""
    rows: Rows = [((float(i % 7), float(i % 3)), int(i % 7 > 3)) for i in range(30)]
    player = start(engine, (NUMBER, NUMBER), rows, "integer")
    player.fit(30)
    before = player.model.digest()
    for i in range(6):
        player.add_rows(["guest"], [((float(i), 1.0), i % 2)])
        player.check()
        player.delete_ids(["guest"])
        player.check()
    if engine != "online":
        assert player.model.digest() == before
