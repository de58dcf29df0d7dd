"""Until when a node may be asked, and what it says then."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from oubli.app.replication.lease import Lease, Node
from oubli.app.replication.replica import Replica
from oubli.app.service.service import Service
from oubli.app.times import elapsed
from tests.unit.app.replication.tables import Tables
from tests.unit.app.support import make_service

UNUSED: Any = None


def node(service: Service, directory: Path) -> tuple[Replica, Lease]:
    """A node whose lease is not looked after."""
    lease = Lease(Tables(), Node("a", "http://a"), 3.0, 30.0)
    replica = Replica(lease, UNUSED, UNUSED, UNUSED, directory)
    replica._host = service.lifecycle
    return replica, lease


@pytest.mark.parametrize("following", [False, True])
def test_a_node_is_cut_off_whether_it_leads_or_follows(following: bool, tmp_path: Path) -> None:
    service = make_service()
    service.model.state.following = following
    replica, lease = node(service, tmp_path)
    assert replica.answers_until == -math.inf  # before its first report
    lease.answers_until = elapsed() + 60
    assert replica.answers_until == lease.answers_until
    assert "PostgreSQL" not in (replica.unready() or "")
    lease.answers_until = elapsed()
    assert "has not reached PostgreSQL" in (replica.unready() or "")


def test_a_node_with_another_model_than_the_leader_is_not_asked_anything(tmp_path: Path) -> None:
    service = make_service()
    replica, lease = node(service, tmp_path)
    lease.answers_until = elapsed() + 60
    service.model.state.is_withdrawn = True
    assert replica.answers_until == -math.inf
    assert "not the leader's" in (replica.unready() or "")


def test_it_is_told_once_that_a_node_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replica, lease = node(make_service(), tmp_path)
    caplog.set_level(logging.WARNING)
    for until, n_told in ((60.0, 0), (-1.0, 1), (-1.0, 1), (60.0, 2), (60.0, 2), (-1.0, 3)):
        lease.answers_until = elapsed() + until
        replica._tell_cut_off()
        assert len(caplog.records) == n_told
