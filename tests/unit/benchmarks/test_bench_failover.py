"""Failures of a cluster: what the tables say of them, and that two leaders at once would be seen."""

from __future__ import annotations

from benchmarks.bench_failover import Outcome, report
from benchmarks.failover.clients import Change, Notes, wrong_versions


def test_each_failure_has_a_row_and_losses_miss_their_mark() -> None:
    outcome = Outcome(n_changes=12_345, lost=1)
    outcome.waits["leader", "kill"] += [3.0, 4.0, 20.0]
    outcome.waits["primary", "stop"] += [6.0]
    found = report(outcome)
    text, waits = found["failover-waits"][1:]
    assert "12,345 in all" in text
    assert "4 failures" in text
    assert "| kill leader | 3 | 4 | 20 |" in waits
    assert "| stop primary | 1 | 6 | 6 |" in waits
    assert "| p50 | 4 | at most 5 | yes |" in found["failover-leaders"][2]
    assert "| longest | 20 | at most 15 | **no** |" in found["failover-leaders"][2]
    assert "| acknowledged and lost | 1 | at most 0 | **no** |" in found["failover-losses"][2]
    assert "| deleted and back | 0 | at most 0 | yes |" in found["failover-losses"][2]


def test_two_changes_with_one_version_are_seen() -> None:
    notes = Notes()
    for name, status, version in (("a", 201, 5), ("b", 200, 6), ("c", 404, 6), ("d", 200, 0), ("e", 200, 0)):
        notes.changes.append(Change("add", name, 0.0, status=status, version=version, answered_at=1.0))
    assert wrong_versions(notes) == 0
    notes.changes.append(Change("delete", "f", 0.0, status=200, version=5, answered_at=2.0))
    assert wrong_versions(notes) == 1


def test_the_first_answer_after_a_failure_is_that_of_another_node() -> None:
    notes = Notes()
    for by, at in (("a", 1.0), ("a", 3.0), ("b", 4.0), ("c", 3.5)):
        notes.changes.append(Change("add", by, 0.0, status=201, by=by, answered_at=at))
    first, other = notes.first_after(2.0), notes.first_after(2.0, "a")
    assert first is not None
    assert first.answered_at == 3.0
    assert other is not None
    assert other.answered_at == 3.5
    assert notes.first_after(5.0) is None
