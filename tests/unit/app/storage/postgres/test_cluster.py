import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from oubli.app.errors import JournalUnreachableError
from oubli.app.storage.postgres.database import Cluster, Leader, Member
from tests.postgres import Proxy, Server
from tests.serving import free_port
from tests.unit.app.storage.postgres.support import Place


def known(leader: Leader | None) -> tuple[int, str, str | None, int]:
    assert leader is not None
    return leader.epoch, leader.holder, leader.url, leader.last_seq


def test_the_lease_is_taken_when_it_is_over(place: Place) -> None:
    one, other = place.cluster(), place.cluster()
    assert one.leader() is None
    assert one.take_over("a", "http://a", 0.5) == 1
    assert known(other.leader()) == (1, "a", "http://a", 0)
    assert other.take_over("b", "http://b", 9.0) is None
    time.sleep(0.6)
    leader = other.leader()
    assert leader is not None
    assert leader.seconds_left <= 0
    assert other.take_over("b", "http://b", 9.0) == 2
    assert known(one.leader()) == (2, "b", "http://b", 0)
    assert one.take_over("a", None, 9.0) is None
    assert other.take_over("b", None, 9.0) == 3  # the same name: it has started again


def test_the_lease_is_renewed_and_ended(place: Place) -> None:
    one, other = place.cluster(), place.cluster()
    assert one.take_over("a", None, 1.0) == 1
    assert one.renew(1, 60.0)
    assert one.renew(1, 1.0)  # never shortened
    leader = other.leader()
    assert leader is not None
    assert 50 < leader.seconds_left <= 60
    other.resign(2)  # of somebody else
    assert other.take_over("b", None, 1.0) is None
    one.resign(1)
    assert other.take_over("b", None, 1.0) == 2
    assert not one.renew(1, 60.0)
    one.resign(1)
    assert one.take_over("a", None, 1.0) is None


def test_only_one_of_many_takes_over(place: Place) -> None:
    clusters, ready = [place.cluster() for _ in range(6)], threading.Barrier(6)

    def take(number: int) -> int | None:
        ready.wait()
        return clusters[number].take_over(f"n{number}", None, 9.0)

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(take, range(6)), key=str) == [1, None, None, None, None, None]


def as_reported(member: Member) -> Member:
    """A member without what the database says of its report."""
    return replace(member, seen=None, seen_seconds_ago=0.0)


def test_members_report_and_are_expelled_also_in_tables_of_an_earlier_version(place: Place) -> None:
    place.cluster()
    place.execute("ALTER TABLE oubli_members DROP COLUMN member_timeout")  # which the next one adds
    cluster, epoch = place.cluster(), 1
    assert cluster.take_over("a", None, 9.0) == epoch
    member = Member("b", "http://b", 7, 3, 5, True, 30.0)
    assert not cluster.report(member)  # it has not joined
    assert cluster.members() == []
    cluster.readmit("b", None)
    assert cluster.report(member)
    (found,) = cluster.members()
    assert 0 <= found.seen_seconds_ago < 5
    assert as_reported(found) == member
    assert cluster.report(replace(member, applied_seq=8, digests_equal=None))
    assert [(one.applied_seq, one.digests_equal) for one in cluster.members()] == [(8, None)]
    assert not cluster.expel("b", found.seen, epoch)  # it has reported since
    (found,) = cluster.members()
    assert not cluster.expel("b", found.seen, epoch + 1)  # not the leader
    assert not cluster.expel("c", found.seen, epoch)  # no one
    assert cluster.expel("b", found.seen, epoch)
    assert not cluster.report(replace(member, applied_seq=9))
    assert [(one.applied_seq, one.expelled) for one in cluster.members()] == [(8, True)]
    cluster.readmit("b", "http://new")
    cluster.readmit("c", None)
    found_all = [replace(as_reported(one), member_timeout=None) for one in cluster.members()]
    assert found_all == [Member("b", "http://new"), Member("c", None)]
    assert cluster.report(member)


def test_nobody_leads_while_a_node_has_more_than_the_journal(place: Place) -> None:
    place.led("a", n=5)
    cluster = place.cluster()
    cluster.readmit("b", None)
    assert cluster.report(Member("b", None, applied_seq=5))
    place.set_back(3)
    place.execute("UPDATE oubli_leader SET until = now() - interval '1 second'")
    assert cluster.take_over("c", None, 9.0) is None
    assert cluster.take_over("b", None, 9.0) is None
    assert cluster.report(Member("b", None, applied_seq=3))
    assert cluster.take_over("c", None, 9.0) == 2


def test_only_the_first_member_need_not_join_and_the_leader_removes_who_was_expelled(place: Place) -> None:
    cluster = place.cluster()
    assert cluster.enrol("a", "http://a")
    assert not cluster.enrol("a", "http://other")
    assert not cluster.enrol("b", None)
    assert [as_reported(one) for one in cluster.members()] == [Member("a", "http://a")]
    assert cluster.take_over("a", None, 9.0) == 1
    cluster.readmit("b", None)
    assert not cluster.remove("b", 1)  # it lives
    assert cluster.expel("b", cluster.members()[1].seen, 1)
    for name, epoch, is_removed in (("b", 2, False), ("nobody", 1, False), ("b", 1, True), ("b", 1, False)):
        assert cluster.remove(name, epoch) is is_removed  # the leader's epoch is 1
    assert not cluster.report(Member("b", None, 9))  # it has to join again
    assert [one.name for one in cluster.members()] == ["a"]


def test_a_database_that_is_away(place: Place, postgres: Server) -> None:
    proxy = Proxy(postgres.port)
    cluster = Cluster(postgres.url(place.database, port=proxy.port))
    assert cluster.take_over("a", None, 9.0) == 1
    proxy.is_away = True
    proxy.cut()
    for _ in range(2):
        with pytest.raises(JournalUnreachableError):
            cluster.leader()
    proxy.is_away = False
    assert known(cluster.leader()) == (1, "a", None, 0)
    proxy.lose_answer()
    with pytest.raises(JournalUnreachableError):
        cluster.renew(1, 9.0)
    assert cluster.renew(1, 9.0)
    cluster.close()
    assert cluster.renew(1, 9.0)  # opened again
    cluster.close()
    proxy.close()
    with pytest.raises(JournalUnreachableError) as error:
        Cluster(postgres.url(place.database, port=free_port()))
    assert str(error.value) == "PostgreSQL cannot be reached"  # and nothing of the URL


def test_a_statement_that_hangs_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.storage.postgres.database._PATIENCE_MS", 300)
    import psycopg

    cluster = place.cluster()
    assert cluster.take_over("a", None, 9.0) == 1
    with psycopg.connect(place.url) as other:
        other.execute("SELECT 1 FROM oubli_leader FOR UPDATE")
        started = time.monotonic()
        with pytest.raises(JournalUnreachableError):
            cluster.renew(1, 9.0)
        assert time.monotonic() - started < 5
    assert cluster.renew(1, 9.0)
