from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oubli.client.load.plan import (
    LoadTestError,
    Plan,
    Step,
    deck,
    due_time,
    percents,
    read_mix,
    read_threshold,
    share_of,
    steps_of,
)


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


def test_a_process_needs_a_connection() -> None:
    with pytest.raises(LoadTestError, match="2 connections cannot be shared by 3 processes"):
        Plan((Step(None, 2, 1),), {"predict": 1}, 3)
    with pytest.raises(LoadTestError, match="nothing to do"):
        Plan((), {"predict": 1})


MIX = ("predict", "add")
ONE = {"requests": 200, "rate": 50.0, "errors": 3, "refused": 2}
STEP: dict[str, Any] = {
    "operations": {
        "predict": {**ONE, "latency_ms": {"p50": 1.0, "p99": 5.0, "p99.9": 7.0, "mean": 2.0, "max": 9.0}},
        "add": {**ONE, "requests": 0, "rate": 0.0, "errors": 0, "refused": 0, "latency_ms": None},
        "all": {**ONE, "latency_ms": {"p99": 5.0}},
    }
}


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("predict.p99>5ms", False),
        ("predict.p99>=5ms", True),
        ("predict.p99 > 4999us", True),
        ("predict.p99.9>0.006s", True),
        ("predict.max<10ms", True),
        ("predict.mean>2.1ms", False),
        ("p99>4ms", True),
        ("errors>0", True),
        ("predict.errors>3", False),
        ("predict.errors>1.4%", True),
        ("refused>1%", False),
        ("rate<51", True),
        ("predict.rate<50", False),
        ("add.errors>0", False),
        ("add.p99>1s", True),  # nothing was measured that could meet it
    ],
)
def test_conditions(text: str, fails: bool) -> None:
    assert read_threshold(text, MIX).fails({"operations": STEP["operations"]}) is fails


def test_percentiles_that_are_asked_for() -> None:
    assert percents([read_threshold(text, MIX) for text in ("p95>1ms", "errors>0", "add.p99.99>1s")]) == [95, 99.99]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("predict.p99", "cannot be read"),
        ("predict.p99=5ms", "cannot be read"),
        ("train.p99>5ms", "cannot be read"),
        ("delete.p99>5ms", "the mix does not have"),
        ("predict.p99>5", "takes us, ms or s"),
        ("predict.p99>5%", "takes us, ms or s"),
        ("rate<5ms", "takes no unit"),
        ("rate<5%", "takes no unit"),
        ("errors>5ms", "takes %, or no unit"),
        ("p0>5ms", "percentile"),
        ("p101>5ms", "percentile"),
    ],
)
def test_what_is_no_condition(text: str, part: str) -> None:
    with pytest.raises(LoadTestError, match=part):
        read_threshold(text, MIX)
