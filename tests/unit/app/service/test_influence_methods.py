"""Which method answers, and which questions take long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oubli.app.service.model.influence import seconds_for


def boosted(n: int = 1_000, n_trees: int = 100, *, kind: str = "incremental-boosting", grids: bool = True) -> Any:
    guarantee = "exact" if kind.startswith("incremental") else "approximate"
    settings = SimpleNamespace(is_quantised=grids)
    methods = ("leaf-influence", "leaf-refit") + ("leave-one-out",) * (guarantee == "exact")
    return SimpleNamespace(
        kind=kind, guarantee=guarantee, n_samples_=n, n_trees_=n_trees, settings_=settings, influence_methods=methods
    )


def forest(n: int = 1_000, n_trees: int = 100, occurrences: int = 100) -> Any:
    settings = SimpleNamespace(n_trees=n_trees, occurrences=occurrences)
    return SimpleNamespace(
        kind="forest",
        guarantee="exact",
        n_samples_=n,
        settings_=settings,
        influence_methods=("leaf-refit", "leave-one-out"),
    )


def test_what_is_answered_at_once_and_what_takes_long() -> None:
    adult, without_grids = boosted(32_561), boosted(32_561, grids=False)
    reverse = seconds_for(adult, "leaf-influence", "all", 1)
    assert reverse < 1 < seconds_for(boosted(1_000_000), "leaf-influence", "all", 1)
    assert seconds_for(adult, "leaf-influence", "single", 1) == reverse
    assert seconds_for(adult, "leaf-influence", 8, 1) > 1_000 * reverse
    assert seconds_for(adult, "leaf-refit", "all", 1) > max(100, 1_000 * reverse)
    assert reverse < seconds_for(adult, "leaf-refit", "single", 1) < seconds_for(adult, "leaf-refit", 1, 1) / 100
    assert seconds_for(adult, "leave-one-out", "all", 1) > 100
    # Exact splits are unlearned at the price of training; a forest is only read for few rows.
    assert seconds_for(without_grids, "leave-one-out", "all", 1) > 10 * seconds_for(adult, "leave-one-out", "all", 1)
    assert seconds_for(forest(), "leave-one-out", "all", 100) > 10 * seconds_for(forest(), "leave-one-out", "all", 1)
