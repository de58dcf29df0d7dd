"""Failures of a cluster: what the tables say of them, and that two leaders at once would be seen."""

from __future__ import annotations

from typing import Any

from benchmarks.bench_failover import Outcome, ids_of, report
from benchmarks.failover.clients import Change, Notes, wrong_answers, wrong_versions


def test_each_failure_has_a_row_and_losses_miss_their_mark() -> None:
    outcome = Outcome(n_changes=12_345, lost=1)
    outcome.waits["leader", "kill"] += [3.0, 4.0, 20.0]
    outcome.waits["primary", "stop"] += [6.0]
    outcome.waits["standby", "cut"] += [7.0]
    found = report(outcome)
    text, waits = found["failover-waits"][1:]
    assert "12,345 in all" in text
    assert "5 failures" in text
    assert "| kill leader | 3 | 4 | 20 |" in waits
    assert "| stop primary | 1 | 6 | 6 |" in waits
    assert "| cut standby | 1 | 7 | 7 |" in waits
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


def test_changes_made_while_a_database_is_away_are_counted() -> None:
    notes = Notes()
    for sent, answered, status in ((0.5, 1.5, 201), (1.1, 1.9, 201), (1.2, 1.3, 404), (1.2, None, 0), (1.8, 2.1, 201)):
        notes.changes.append(Change("add", str(sent), sent, answered_at=answered, status=status))
    assert notes.n_made_between(1.0, 2.0) == 1


def test_changes_that_are_refused_as_impossible_are_counted() -> None:
    notes = Notes()
    for kind, status in (("add", 201), ("add", 409), ("delete", 200), ("delete", 404), ("add", 0)):
        notes.changes.append(Change(kind, f"{kind}-{status}", 0.0, status=status))
    assert wrong_answers(notes) == 2


def test_the_first_answer_after_a_failure_is_that_of_another_node() -> None:
    notes = Notes()
    for by, asked, at in (("a", 0.9, 1.0), ("a", 1.9, 2.5), ("a", 2.9, 3.0), ("b", 3.9, 4.0), ("c", 2.1, 3.5)):
        notes.changes.append(Change("add", by, 0.0, asked_at=asked, status=201, by=by, answered_at=at))
    first, other = notes.first_after(2.0), notes.first_after(2.0, "a")
    assert first is not None
    assert first.answered_at == 3.0
    assert other is not None
    assert other.answered_at == 3.5
    assert notes.first_after(5.0) is None


def test_all_pages_of_samples_are_read() -> None:
    class Paging:
        def ask(self, _: str, path: str, **__: Any) -> tuple[int, Any, dict[str, str]]:
            last = path.endswith("&cursor=1000")
            ids = range(1000, 1024) if last else range(1000)
            return 200, {"samples": [{"id": str(i)} for i in ids], "next": None if last else "1000"}, {}

    assert len(ids_of(Paging())) == 1024  # type: ignore[arg-type]
