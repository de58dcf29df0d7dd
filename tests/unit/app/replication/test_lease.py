"""Who leads: one at a time, another one when the lease is over, none that is expelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("psycopg")

from oubli.app.replication.lease import Lease, Node, Progress, View
from oubli.app.storage.postgres.database import Leader, Member, SegmentRow
from oubli.app.times import elapsed
from tests.unit.app.replication.tables import Tables

SECONDS = 0.4


@pytest.fixture
def new_lease() -> Iterator[Callable[..., Lease]]:
    with ExitStack() as ending:

        def make(tables: Tables, name: str, *, may_lead: bool = True, seq: int = 0, timeout: float = 60.0) -> Lease:
            lease = Lease(tables, Node(name, f"http://{name}"), SECONDS, timeout)
            lease.progress = lambda: Progress(applied_seq=seq, may_lead=may_lead)
            lease.start()
            ending.callback(lease.close)
            return lease

        yield make


def until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_one_leads_and_goes_on_leading(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    first = new_lease(tables, "a")
    until(lambda: first.epoch == 1)
    second = new_lease(tables, "b")
    time.sleep(2 * SECONDS)
    assert (first.epoch, second.epoch) == (1, None)
    assert second.view is not None
    assert second.view.leader_url == "http://a"


def test_another_leads_when_one_resigns_or_is_gone(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    first = new_lease(tables, "a")
    until(lambda: first.epoch == 1)
    second = new_lease(tables, "b")
    first.resign()
    until(lambda: second.epoch == 2)
    assert first.epoch is None
    second.close()  # as a process that is killed: the lease is not given back
    third = new_lease(tables, "c")
    asked = time.monotonic()
    until(lambda: third.epoch == 3)
    assert time.monotonic() - asked < 3 * SECONDS


def test_who_was_deposed_knows_it(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    first = new_lease(tables, "a")
    until(lambda: first.epoch == 1)
    tables.until = 0.0
    tables.take_over("b", None, 60)
    until(lambda: first.epoch is None)


def test_who_may_not_lead_does_not_try(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    joining = new_lease(tables, "a", may_lead=False)
    until(lambda: joining.view is not None)
    time.sleep(SECONDS)
    assert "take_over" not in tables.calls
    assert joining.try_now() == 1


def test_who_is_behind_lets_others_try_first(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    tables.epoch, tables.holder, tables.last_seq = 1, "gone", 10_000
    behind = new_lease(tables, "behind", seq=0)
    until(lambda: behind.view is not None)
    in_step = new_lease(tables, "in-step", seq=10_000)
    until(lambda: in_step.epoch == 2)
    assert behind.epoch is None


def test_a_silent_node_is_expelled_and_knows_it_when_it_is_back(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a", timeout=0.5)
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    until(lambda: tables.nodes["b"][0].expelled)
    back = new_lease(tables, "b")
    until(lambda: back.is_expelled)
    leader.resign()
    time.sleep(2 * SECONDS)
    assert back.epoch is None


def test_a_removed_node_knows_it_when_it_is_back(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a")
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    node = new_lease(tables, "b")
    until(lambda: tables.calls.count("report") > 4)
    assert not node.is_expelled
    assert tables.expel("b", tables.nodes["b"][0].seen, 1)
    assert tables.remove("b", 1)
    until(lambda: node.is_expelled)
    assert "b" not in tables.nodes


def test_who_has_not_joined_yet_is_no_member(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    joining = new_lease(tables, "b", may_lead=False)
    until(lambda: tables.calls.count("report") > 2)
    assert not joining.is_expelled
    assert tables.nodes == {}
    tables.readmit("b", None)
    until(lambda: tables.calls.count("report") > 6)
    assert not joining.is_expelled


def test_who_is_expelled_does_not_lead_before_it_knows(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    tables.readmit("b", None)
    tables.expel("b", tables.nodes["b"][0].seen, 0)
    back = new_lease(tables, "b")
    until(lambda: back.is_expelled)
    time.sleep(SECONDS)
    assert "take_over" not in tables.calls


def test_the_lease_is_kept_while_somebody_is_busy_and_after_the_database_was_away(
    new_lease: Callable[..., Lease],
) -> None:
    tables = Tables()
    leader = new_lease(tables, "a")
    until(lambda: leader.epoch == 1)
    tables.is_away = True
    time.sleep(SECONDS)
    tables.is_away = False
    n_renewals = tables.calls.count("renew")
    until(lambda: tables.calls.count("renew") > n_renewals + 1)
    assert leader.epoch == 1


def test_a_question_is_answered_in_the_thread(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    lease = new_lease(tables, "a")
    assert lease.ask(lambda known: known.leader()).result(5) is None or lease.epoch


def test_states_of_nodes() -> None:
    leader = Leader(3, "a", "http://a", 1.0, 100)
    view = View(leader, [], [], in_step_from=90)
    assert view.state_of(Member("b", None, applied_seq=90), 6) == "in-step"
    assert view.state_of(Member("b", None, applied_seq=89), 6) == "behind"
    assert view.state_of(Member("b", None, applied_seq=90, seen_seconds_ago=7), 6) == "silent"
    assert view.state_of(Member("b", None, expelled=True), 6) == "expelled"
    assert View(Leader(3, "a", "http://a", -1.0, 100)).leader_url is None


def test_only_a_cluster_that_has_nothing_is_begun() -> None:
    first, later = SegmentRow(1, "a" * 16, None), SegmentRow(9, "b" * 16, None)
    mine, others = Leader(1, "me", None, 0.0, 3), Leader(1, "other", None, 0.0, 3)
    assert View().is_new("me")
    assert View(Leader(1, "other", None, 9.0, 0), [Member("other", None)]).is_new("me")
    assert View(mine, [Member("me", None)], [first]).is_new("me")  # killed while it began
    assert not View(others, [Member("me", None)], [first]).is_new("me")
    assert not View(mine, [Member("me", None), Member("other", None)], [first]).is_new("me")
    assert not View(mine, [Member("me", None)], [later]).is_new("me")  # records were dropped: a snapshot has them
    assert not View(mine, [Member("me", None)], []).is_new("me")


def test_keys_of_segments_that_the_files_have_outlived() -> None:
    rows = [SegmentRow(first, name * 16, None) for first, name in ((1, "a"), (5, "b"), (9, "c"))]
    view = View(None, [], rows)
    assert view.keys_before(3) == []
    assert view.keys_before(4) == ["a" * 16]
    assert view.keys_before(7) == ["a" * 16]
    assert view.keys_before(8) == ["a" * 16, "b" * 16]
    assert view.keys_before(99) == ["a" * 16, "b" * 16]  # the last one is written


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_who_leads_keeps_the_lease_when_the_database_is_back(new_lease: Callable[..., Lease], times: int) -> None:
    tables = Tables()
    leader = new_lease(tables, "a")
    until(lambda: leader.epoch == 1)
    others = [new_lease(tables, name) for name in "bcd"]
    until(lambda: all(one.view is not None for one in others))
    for _ in range(times):
        tables.is_away = True
        time.sleep(2 * SECONDS)
        tables.is_away = False
        time.sleep(2 * SECONDS)
    assert leader.epoch == 1
    assert tables.epoch == 1


def test_nobody_is_expelled_for_the_silence_of_the_database(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a", timeout=1.0)
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    other = new_lease(tables, "b", timeout=1.0)
    until(lambda: other.view is not None)
    tables.is_away = True
    time.sleep(1.5)
    tables.is_away = False
    time.sleep(1.0)
    assert not other.is_expelled
    other.close()
    until(lambda: tables.nodes["b"][0].expelled)


def test_a_node_answers_for_less_than_the_time_after_which_it_is_expelled(
    new_lease: Callable[..., Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from when the report was sent, however long it takes, and by the node's own clock."""
    now = [100.0]
    monkeypatch.setattr("oubli.app.replication.lease.elapsed", lambda: now[0])
    tables = Tables()
    tables.readmit("b", None)
    plain = tables.report

    def slow(member: Member) -> bool:
        now[0] += 7.0
        return plain(member)

    monkeypatch.setattr(tables, "report", slow)
    lease = new_lease(tables, "b", timeout=20.0)
    until(lambda: tables.calls.count("report") == 1 and lease.answers_until > 0)
    tables.is_away = True
    until(lambda: tables.calls[-1] != "report")
    assert lease.answers_until <= now[0] - 7.0 + 0.9 * 20.0
    held = lease.answers_until
    time.sleep(SECONDS)
    assert lease.answers_until == held
    tables.is_away = False
    until(lambda: lease.answers_until > held)
    tables.expel("b", tables.nodes["b"][0].seen, 0)
    until(lambda: lease.answers_until == float("-inf"))


def test_a_node_has_stopped_answering_when_it_is_expelled(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a", timeout=1.0)
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    node = new_lease(tables, "b", timeout=1.0)
    until(lambda: node.answers_until > elapsed())
    seen: list[float] = []

    def expelled() -> None:
        seen.append(elapsed() - node.answers_until)

    tables.before_expel = expelled
    node._tables = Away()
    until(lambda: tables.nodes["b"][0].expelled)
    assert seen[0] > 0


def test_the_clock_of_the_database_expels_nobody(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a", timeout=1.0)
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    node = new_lease(tables, "b", timeout=1.0)
    time.sleep(1.2)
    tables.set_forward = 3600.0
    time.sleep(3 * SECONDS)
    assert not node.is_expelled
    node.close()
    tables.set_forward = -3600.0
    until(lambda: tables.nodes["b"][0].expelled)


def test_a_node_that_reports_at_the_last_moment_is_not_expelled(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a", timeout=0.5)
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    asked: list[bool] = []

    def report() -> None:
        asked.append(tables.report(Member("b", None)))

    tables.before_expel = report
    until(lambda: len(asked) > 1)
    assert all(asked)
    assert not tables.nodes["b"][0].expelled


def test_a_node_that_answers_for_longer_is_waited_for(new_lease: Callable[..., Lease]) -> None:
    tables = Tables()
    leader = new_lease(tables, "a", timeout=0.5)
    until(lambda: leader.epoch == 1)
    tables.readmit("b", None)
    began = time.monotonic()
    assert tables.report(Member("b", None, member_timeout=2.0))
    until(lambda: tables.nodes["b"][0].expelled)
    assert time.monotonic() - began > 2.0


class Away(Tables):
    """A database that is away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True
