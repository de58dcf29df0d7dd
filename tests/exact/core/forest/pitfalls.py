"""Models in situations built on purpose, for the tests of pitfalls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.histories.kinds import BY_NAME
from tests.histories.player import Player
from tests.histories.worlds import World
from tests.oracles import common
from tests.oracles import forest as oracle
from tests.oracles.common import Column

NUMERIC, WIDE, CATEGORY, BOOLEAN = Column(), Column("numeric", "float64"), Column("categorical"), Column("boolean")
FOREST = BY_NAME["forest"]
Sample = tuple[str, tuple[Any, ...], Any]
Make = Callable[..., Iterator[Player]]


def start(columns: Sequence[Column], samples: Sequence[Sample], **parameters: Any) -> Player:
    """A player whose model was fitted to these samples."""
    label_type = parameters.pop("label_type", "integer")
    task = parameters.pop("task", "classification")
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
        queries=tuple(features for _, features, _ in samples) or ((None,) * len(columns),),
    )
    player = Player(FOREST, world)
    player.hold({name: (features, label) for name, features, label in samples})
    player.check()
    return player


def add(player: Player, *samples: Sample) -> None:
    player.add_rows([name for name, _, _ in samples], [(f, y) for _, f, y in samples])
    player.check()


def delete(player: Player, *ids: str) -> None:
    player.delete_ids(list(ids))
    player.check()


def change(player: Player, *steps: Any) -> None:
    """Delete what is named, add samples, and, for `...`, compare with a fresh fit and the oracle."""
    for step in steps:
        if step is ...:
            player.beside.resolved()
        elif isinstance(step[0], str):
            delete(player, *step)
        else:
            add(player, *step)


def live(player: Player, *steps: Any) -> None:
    """Change the samples, and compare everything at the end."""
    change(player, *steps)
    player.beside.finish()


def root_attributes(player: Player, tree: int = 0) -> list[int]:
    """The attributes that the oracle uses at a root, all samples being in every tree."""
    parameters = oracle.Parameters(
        seed=player.world.parameters["random_state"], n_attributes=player.world.parameters["max_features"]
    )
    samples = [
        oracle._Sample(tuple(common.cell(v, c) for v, c in zip(f, player.world.columns, strict=True)), 0)
        for f, _ in player.held.values()
    ]
    return oracle.attributes_of(common.tree_key(parameters.seed, tree), samples, parameters.n_attributes)


def root_split(player: Player, tree: int = 0) -> tuple[int, int] | None:
    """(attribute, candidate) of a root as the oracle chooses it."""
    root = player.beside.expected().trees[tree]
    return None if root is None else root["split"]


def ramp(n: int, columns: int = 1, classes: int = 2) -> list[Sample]:
    """n samples on a line, classes in turn."""
    return [(f"r{i}", (float(i),) * columns, i % classes) for i in range(n)]


def mixed_samples(n: int = 24) -> list[Sample]:
    rng = random.Random(n)
    return [
        (f"s{i}", (rng.choice([0.5, 1.0, 2.5, None]), rng.choice("abc"), rng.random() < 0.5), rng.randrange(4))
        for i in range(n)
    ]


MIXED = [NUMERIC, CATEGORY, BOOLEAN]
