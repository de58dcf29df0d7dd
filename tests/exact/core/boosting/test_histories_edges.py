"""Histories at the edges: no samples, one, duplicates, constant columns, classes and categories that go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.histories.kinds import BY_NAME
from tests.histories.player import Player
from tests.histories.worlds import World
from tests.oracles.common import Column

NUMBER, CATEGORY = Column(), Column("categorical")

COMMON = {"n_estimators": 3, "learning_rate": 0.5, "min_child_weight": 0.0, "random_state": 5}
EXACT: dict[str, Any] = {**COMMON, "max_depth": 3, "split_sampling": 0.5}
PARAMETERS: dict[str, dict[str, Any]] = {
    "quantised": EXACT,
    "presorted": {**EXACT, "quantization": None},
    "online": {**COMMON, "max_leaf_nodes": 4, "robustness": 0.0},
}


@dataclass(frozen=True)
class Edge:
    """Samples, and what all of them together make of some rows."""

    columns: tuple[Column, ...]
    features: list[tuple[Any, ...]]
    labels: list[Any]
    label_type: str = "integer"
    changed: dict[str, Any] = field(default_factory=dict)  # parameters; of early stopping: only where there is any
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)


ALIKE: Any = (NUMBER, CATEGORY, NUMBER), [(1.5, "a", None)] * 9, [i % 2 for i in range(9)]
EDGES = {
    "classes, the new ones before, between and behind the others": Edge(
        (NUMBER, NUMBER),
        [(float(i % 5), float(i * i % 7)) for i in range(12)],
        [3, 3, 1, 3, 1, 5, 5, 2, 1, 4, 4, 3],
    ),
    "samples that no split parts": Edge(*ALIKE),
    "targets that no split parts": Edge(*ALIKE, "number"),
    "only missing values tell samples apart": Edge(
        (NUMBER,),
        [(None if i % 3 == 0 else 7.0,) for i in range(24)],
        ["odd" if i % 3 == 0 else "even" for i in range(24)],
        "string",
        {"l2_regularization": 0.0},
        {(None,): "odd", (7.0,): "even", (8.0,): "even"},
    ),
    "targets that hardly differ, and one far away": Edge(
        (NUMBER,),
        [(float(i),) for i in range(8)],
        [2.5, 2.5, 2.5, 2.5000000001, 1e9, 0.0, -1e-300, 2.5],
        "number",
    ),
    **{  # their unit and the square of their spread are 0
        f"targets that hardly exist, {loss}": Edge(
            (NUMBER,),
            [(float(i % 5),) for i in range(12)],
            [(0.0, 5e-324, 1e-310)[i % 2 + i // 8] for i in range(12)],
            "number",
            {"loss": loss, "l2_regularization": 0.0},
        )
        for loss in ("squared_error", "quantile", "huber", "poisson")
    },
    **{  # F_0 is the target when there is only one: no grid, no spread
        f"only {target}": Edge((NUMBER,), [(float(i),) for i in range(5)], [target] * 5, "number", {}, {(9.0,): target})
        for target in (0.0, 0.1, -7.25, 1e30)
    },
    **{  # of few samples none may validate, or none train; which is decided by their ids
        f"few validate, {label_type}": Edge(
            (NUMBER,),
            [(float(i),) for i in range(12)],
            [i % 2 for i in range(12)],
            label_type,
            {"early_stopping": 1, "validation_fraction": 0.5},
        )
        for label_type in ("integer", "number")
    },
}


def start(engine: str, edge: Edge) -> Player:
    """A player without samples."""
    rows = tuple(zip(edge.features, edge.labels, strict=True))
    task = "regression" if edge.label_type == "number" else "classification"
    parameters = {**PARAMETERS[engine], **edge.changed}
    return Player(
        BY_NAME[engine], World(edge.columns, task, edge.label_type, parameters, rows, tuple(edge.features[:8]))
    )


CASES = [
    (engine, name)
    for name, edge in EDGES.items()
    for engine in PARAMETERS
    if engine != "online" or not edge.changed.keys() & {"early_stopping", "loss"}
]


@pytest.mark.parametrize(("engine", "name"), CASES)
def test_samples_come_and_go_one_by_one(engine: str, name: str) -> None:
    """The last first, and the first first; all is checked in between."""
    edge = EDGES[name]
    player = start(engine, edge)
    for backwards in (True, False):
        names = [f"sample {i}" for i in range(len(edge.labels))]
        for one, row in zip(names, player.world.rows, strict=True):
            player.add_rows([one], [row])
            player.check()
        if engine == "online":
            player.scrub(1)  # its answers depend on its history
        for features, expected in edge.answers.items():
            (answer,) = player.model.predict([list(features)]).tolist()
            assert answer == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-9, abs=1e-12))
        if "no split parts" in name:
            assert player.model.feature_importances_.tolist() == [0.0, 0.0, 0.0]
        for one in reversed(names) if backwards else names:
            player.delete_ids([one])
            player.check()


@pytest.mark.parametrize("engine", ["quantised", "presorted"])
def test_one_class_goes_through_a_file_where_samples_validate(engine: str) -> None:
    """There are no trees, and some samples validate what is not there."""
    changed = {"early_stopping": 1, "validation_fraction": 0.5}
    player = start(engine, Edge((NUMBER,), [(float(i),) for i in range(12)], ["only"] * 12, "string", changed))
    player.fit(12)
    player.save_and_load(1)
    player.check()
    player.add_rows(["other"], [((20.0,), "another")])
    player.save_and_load(1)
    player.check()


@pytest.mark.parametrize("engine", PARAMETERS)
def test_the_same_again_and_again(engine: str) -> None:
    """A sample comes and goes many times: nothing wears out, and the exact kind is back where it was."""
    features = [(float(i % 7), float(i % 3)) for i in range(30)]
    player = start(engine, Edge((NUMBER, NUMBER), features, [int(i % 7 > 3) for i in range(30)]))
    player.fit(30)
    before = player.model.digest()
    for i in range(6):
        player.add_rows(["guest"], [((float(i), 1.0), i % 2)])
        player.check()
        player.delete_ids(["guest"])
        player.check()
    if engine != "online":
        assert player.model.digest() == before
