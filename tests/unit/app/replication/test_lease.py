"""Who leads: one at a time, another one when the lease is over, none that is expelled."""

import logging
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("psycopg")

from oubli.app.replication import lease as module
from oubli.app.replication.lease import Lease, Node, Progress, View
from oubli.app.storage.postgres.database import Leader, Member, SegmentRow
from tests.closing import closed_at_the_end
from tests.serving import wait_for
from tests.unit.app.replication.tables import Tables

SECONDS = 0.4


class Nodes:
    """Nodes of a cluster that look at its tables when it is time, by a clock that the test holds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tables = Tables(lambda: self.now)
        self._due: dict[Lease, float] = {}

    def new(self, name: str, *, may_lead: bool = True, seq: int = 0, timeout: float = 60.0) -> Lease:
        """Have another node, which looks at once."""
        lease = Lease(self.tables, Node(name, f"http://{name}"), SECONDS, timeout)  # type: ignore[arg-type]
        lease.progress = lambda: Progress(applied_seq=seq, may_lead=may_lead)
        self._due[lease] = self.now
        self.run(0)
        return lease

    def member(self, name: str, timeout: float = 60.0) -> Lease:
        """Have another node that has joined."""
        self.tables.readmit(name, None)
        return self.new(name, timeout=timeout)

    def kill(self, lease: Lease) -> None:
        del self._due[lease]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        for _ in range(10_000):
            due = min(self._due.values(), default=math.inf)
            if due > end:
                self.now = max(self.now, end)
                return
            lease = next(one for one, at in self._due.items() if at == due)
            self.now = max(self.now, due)
            self._due[lease] = self.now + lease.look()
        raise AssertionError("a node looks again and again")

    def be_away(self, seconds: float) -> None:
        """Let time pass in which nobody reaches the database."""
        self.tables.is_away = True
        self.run(seconds)
        self.tables.is_away = False

    def is_expelled(self, name: str) -> bool:
        return self.tables.nodes[name][0].expelled


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes()
    monkeypatch.setattr(module, "elapsed", lambda: nodes.now)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: nodes.now))
    return nodes


def test_one_leads_until_it_is_gone_or_deposed_and_then_another(nodes: Nodes) -> None:
    first, second = nodes.new("a"), nodes.new("b")
    nodes.run(2 * SECONDS)
    assert second.view is not None
    assert (first.epoch, second.epoch, second.view.leader_url) == (1, None, "http://a")
    nodes.kill(first)
    nodes.run(2 * SECONDS)
    assert second.epoch == 2
    nodes.tables.until = 0.0
    nodes.tables.take_over("c", None, 60)
    nodes.run(SECONDS)
    assert second.epoch is None


def test_who_is_behind_lets_others_try_first(nodes: Nodes) -> None:
    nodes.tables.epoch, nodes.tables.holder, nodes.tables.last_seq = 1, "gone", 10_000
    behind = nodes.new("behind", seq=0)
    nodes.run(0.5)
    in_step = nodes.new("in-step", seq=10_000)
    assert (in_step.epoch, behind.epoch) == (2, None)


def test_what_is_asked_is_answered_in_the_thread() -> None:
    """Also the wish to lead at once, and to lead no more."""
    tables = Tables()
    leases = [Lease(tables, Node(name, None), SECONDS, 60.0) for name in "ab"]  # type: ignore[arg-type]
    first, second = map(closed_at_the_end, leases)
    first.progress, second.progress = Progress, lambda: Progress(may_lead=True)
    first.start()
    assert first.try_now() == 1
    leader = first.ask(lambda known: known.leader()).result(5)
    assert leader is not None
    assert (leader.epoch, first.epoch) == (1, 1)
    second.start()
    first.resign()
    assert first.epoch is None
    wait_for(lambda: second.epoch == 2, "the other one to lead", 10)


def test_who_may_not_lead_does_not_try_nor_who_is_expelled_before_it_knows(nodes: Nodes) -> None:
    nodes.new("a", may_lead=False)
    nodes.tables.readmit("b", None)
    nodes.tables.expel("b", nodes.tables.nodes["b"][0].seen, 0)
    back = nodes.new("b")
    nodes.run(3 * SECONDS)
    assert back.is_expelled
    assert "take_over" not in nodes.tables.calls


def test_who_leads_keeps_the_lease_when_the_database_is_back(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    leader = nodes.new("a")
    for name in "bcd":
        nodes.new(name)
    for seconds in (SECONDS, 2 * SECONDS, 7.0):
        nodes.be_away(seconds)
        n_renewals = nodes.tables.calls.count("renew")
        nodes.run(2 * SECONDS)
        assert nodes.tables.calls.count("renew") > n_renewals + 1
    assert (leader.epoch, nodes.tables.epoch) == (1, 1)
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 4, "each node says once that it does not reach the database"


def test_states_of_nodes() -> None:
    leader = Leader(3, "a", "http://a", 1.0, 100)
    view = View(leader, [], [], in_step_from=90)
    in_step, behind = Member("b", None, applied_seq=90), Member("b", None, applied_seq=89)
    members = in_step, behind, replace(in_step, seen_seconds_ago=7), Member("b", None, expelled=True)
    assert [view.state_of(one, 6) for one in members] == ["in-step", "behind", "silent", "expelled"]
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
    one, two = ["a" * 16], ["a" * 16, "b" * 16]
    assert [view.keys_before(seq) for seq in (3, 4, 7, 8, 99)] == [[], one, one, two, two]  # the last one is written


def test_nobody_is_expelled_for_the_silence_of_the_database(nodes: Nodes) -> None:
    leader = nodes.new("a", timeout=1.0)
    other = nodes.member("b", timeout=1.0)
    nodes.run(2.0)
    leader.look()  # it has seen the last report, and looks again before the other one can report
    nodes.be_away(1.5)
    leader.look()
    nodes.run(1.0)
    assert not other.is_expelled
    nodes.kill(other)
    nodes.run(2.0)
    assert nodes.is_expelled("b")


def test_a_node_stops_answering_before_it_is_expelled(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from when the report was sent, however long it takes, and by the node's own clock."""
    report = nodes.tables.report

    def slow(member: Member) -> bool:
        nodes.now += 7.0
        return report(member)

    monkeypatch.setattr(nodes.tables, "report", slow)
    lease = nodes.member("b", timeout=20.0)
    held = lease.answers_until
    assert held == pytest.approx(nodes.now - 7.0 + 0.9 * 20.0)
    nodes.be_away(SECONDS)
    assert lease.answers_until == held
    nodes.run(SECONDS)
    assert lease.answers_until > held
    nodes.tables.expel("b", nodes.tables.nodes["b"][0].seen, 0)
    nodes.run(SECONDS)
    assert lease.answers_until == -math.inf


def test_a_silent_node_has_stopped_answering_when_it_is_expelled_and_knows_it_when_it_is_back(nodes: Nodes) -> None:
    leader = nodes.new("a", timeout=1.0)
    node = nodes.member("b", timeout=1.0)
    seen: list[float] = []
    nodes.tables.before_expel = lambda: seen.append(nodes.now - node.answers_until)
    nodes.run(3.0)
    assert node.answers_until > nodes.now
    nodes.kill(node)
    nodes.run(3.0)
    assert nodes.is_expelled("b")
    assert seen[0] > 0
    back = nodes.new("b")
    assert back.is_expelled
    nodes.kill(leader)
    nodes.run(3 * SECONDS)
    assert back.epoch is None


def test_the_clock_of_the_database_expels_nobody(nodes: Nodes) -> None:
    nodes.new("a", timeout=1.0)
    node = nodes.member("b", timeout=1.0)
    nodes.run(1.2)
    nodes.tables.set_forward = 3600.0
    nodes.run(3 * SECONDS)
    assert not node.is_expelled
    nodes.kill(node)
    nodes.tables.set_forward = -3600.0
    nodes.run(2.0)
    assert nodes.is_expelled("b")


def test_a_node_that_reports_at_the_last_moment_or_answers_for_longer_is_waited_for(nodes: Nodes) -> None:
    nodes.new("a", timeout=0.5)
    nodes.tables.readmit("b", None)
    asked: list[bool] = []
    nodes.tables.before_expel = lambda: asked.append(nodes.tables.report(Member("b", None)))
    nodes.run(3.0)
    assert len(asked) > 1
    assert all(asked)
    assert not nodes.is_expelled("b")
    nodes.tables.before_expel = lambda: None
    assert nodes.tables.report(Member("b", None, member_timeout=2.0))
    nodes.run(2.0)
    assert not nodes.is_expelled("b")
    nodes.run(SECONDS)
    assert nodes.is_expelled("b")
