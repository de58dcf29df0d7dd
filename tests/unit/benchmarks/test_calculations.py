"""What the scripts calculate from their measurements, with figures that can be checked by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.boosting import exactness
from benchmarks.boosting.datasets import Split
from benchmarks.failover.clients import Change, Notes, wrong_answers, wrong_versions
from benchmarks.results import at_most


def made_split(task: str, y_test: list[Any], n: int = 0) -> Split:
    return Split("made", task, np.zeros((n, 1)), np.zeros(n), np.zeros((0, 1)), np.array(y_test))


# --- boosting


def test_digests_that_differ_are_counted_and_shown() -> None:
    found = exactness.Found(made_split("binary", [], 100), 10)
    model: Any = SimpleNamespace(engine_=SimpleNamespace(), n_estimators=5, n_trees_=10, n_samples_=99)

    def update(**last: Any) -> None:
        model.engine_.last_update = SimpleNamespace(**last)

    outcome = found.outcomes["delete", 0.0]
    outcome.update(model, lambda: update(nothing_changed=True, first_tree=-1, n_touched=0, grown_from=-1))
    outcome.update(model, lambda: update(nothing_changed=False, first_tree=4, n_touched=2, grown_from=4))
    outcome.compare("a", "a")
    outcome.compare("a", "b")
    assert (outcome.unchanged, outcome.first_trees, outcome.touched) == (1, [4], [0, 2 + 2 * 99])
    (row,) = exactness.touched_rows([found])
    assert row.cells == ("made", "delete", "1", "2", "50", "4", "10", "10.00", "2")
    assert (row.figure, row.mark, row.verdict) == (1, at_most(0), "**no**")


# --- servers


def notes_of(*changes: Change) -> Notes:
    notes = Notes()
    notes.changes.extend(changes)
    return notes


def test_what_two_leaders_at_once_would_do_is_counted() -> None:
    changes = [
        Change("add", name, 0.0, status=status, version=version, answered_at=1.0)
        for name, status, version in (("a", 201, 5), ("b", 200, 6), ("c", 404, 6), ("d", 200, 0), ("e", 200, 0))
    ]
    assert wrong_versions(notes_of(*changes)) == 0
    again = Change("delete", "f", 0.0, status=200, version=5, answered_at=2.0)
    assert wrong_versions(notes_of(*changes, again)) == 1
    impossible = (("add", 201), ("add", 409), ("delete", 200), ("delete", 404), ("add", 0))
    assert wrong_answers(notes_of(*(Change(kind, f"{kind}-{s}", 0.0, status=s) for kind, s in impossible))) == 2


# --- data that are made up
