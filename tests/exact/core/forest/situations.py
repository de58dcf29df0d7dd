"""Models in situations built on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.histories.kinds import BY_NAME
from tests.histories.player import Player
from tests.histories.worlds import World
from tests.oracles.common import Column

NUMERIC, WIDE, CATEGORY, BOOLEAN = Column(), Column("numeric", "float64"), Column("categorical"), Column("boolean")
FOREST = BY_NAME["forest"]
Sample = tuple[str, tuple[Any, ...], Any]


def start(columns: Sequence[Column], samples: Sequence[Sample], **parameters: Any) -> Player:
    """A player whose model was fitted to these samples."""
    label_type = parameters.pop("label_type", "integer")
    task = parameters.pop("task", "classification")
    queries = parameters.pop("queries", ())
    defaults = {
        "n_estimators": 3,
        "occurrence": 1.0,
        "max_depth": None,
        "min_samples_split": 2,
        "n_thresholds": 3,
        "max_features": 1,
        "criterion": "gini" if task == "classification" else "squared_error",
        "lazy": True,
        "random_state": 0,
    }
    world = World(
        columns=tuple(columns),
        task=task,
        label_type="number" if task == "regression" else label_type,
        parameters={**defaults, **parameters},
        rows=tuple((features, label) for _, features, label in samples),
        queries=(*queries, *(features for _, features, _ in samples)) or ((None,) * len(columns),),
    )
    player = Player(FOREST, world)
    player.hold({name: (features, label) for name, features, label in samples})
    player.check()
    return player


def change(player: Player, step: Any) -> None:
    """Delete what is named, or add samples."""
    if isinstance(step[0], str):
        player.delete_ids(list(step))
    else:
        player.add_rows([name for name, _, _ in step], [(features, label) for _, features, label in step])
    player.check()
