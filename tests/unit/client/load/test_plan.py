from __future__ import annotations

import json
from collections import Counter

import pytest

from oubli.client.load.plan import LoadTestError, Plan, Step, deck, due_time, read_mix, share_of, steps_of


def test_a_mix_becomes_operations_with_its_shares_in_random_order() -> None:
    cards = deck(read_mix("predict=90, add=5,delete=5"), 0)
    assert Counter(cards) == {"predict": 9000, "add": 500, "delete": 500}
    assert cards == deck({"predict": 90, "add": 5, "delete": 5}, 0)
    assert cards != deck({"predict": 90, "add": 5, "delete": 5}, 1)
    assert "delete" in cards[:500]
    assert Counter(deck(read_mix("predict=2,add=1"), 0)) == {"predict": 6667, "add": 3333}
    assert set(deck(read_mix("predict=1,add=0"), 0)) == {"predict"}


@pytest.mark.parametrize("text", ["", "predict", "predict=x", "predict=-1", "train=5", "predict=inf", "predict=nan"])
def test_what_is_no_mix(text: str) -> None:
    with pytest.raises(LoadTestError, match="cannot be read"):
        read_mix(text)


def test_a_mix_of_nothing() -> None:
    with pytest.raises(LoadTestError, match="share above 0"):
        read_mix("predict=0,add=0")


def test_requests_of_all_workers_are_evenly_spaced() -> None:
    times = sorted(due_time(10.0, 50.0, i, worker, 3) for worker in range(3) for i in range(4))
    assert times == pytest.approx([10.0 + i / 50 for i in range(12)])


@pytest.mark.parametrize(("total", "n"), [(16, 1), (16, 3), (5, 5)])
def test_connections_are_shared_by_all_workers(total: int, n: int) -> None:
    shares = [share_of(total, worker, n) for worker in range(n)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_steps() -> None:
    steps = steps_of([100, 200], [], connections=8, seconds=3, warm_up=1)
    assert [(one.rate, one.connections, one.seconds, one.is_warm_up) for one in steps] == [
        (100, 8, 1, True),
        (100, 8, 3, False),
        (200, 8, 3, False),
    ]
    assert steps_of([], [4], connections=8, seconds=3, warm_up=0) == (Step(None, 4, 3),)
    with pytest.raises(LoadTestError, match="either rates"):
        steps_of([100], [4], connections=8, seconds=3, warm_up=1)


def test_a_plan_goes_over_as_json() -> None:
    plan = Plan(steps_of([100], [], connections=8, seconds=3, warm_up=1), {"predict": 1.0}, 2, 5.0, 7)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_process_needs_a_connection() -> None:
    with pytest.raises(LoadTestError, match="2 connections cannot be shared by 3 processes"):
        Plan((Step(None, 2, 1),), {"predict": 1}, 3)
    with pytest.raises(LoadTestError, match="nothing to do"):
        Plan((), {"predict": 1})
