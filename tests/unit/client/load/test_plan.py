from collections import Counter
from typing import Any

import pytest

from oubli.client.load import plan
from oubli.client.load.plan import LoadTestError, Plan, Step, deck, percents, read_mix, read_threshold, steps_of


def test_a_mix_becomes_operations_with_its_shares_in_random_order() -> None:
    cards = deck(read_mix("predict=90, add=5,delete=5"), 0)
    assert Counter(cards) == {"predict": 9000, "add": 500, "delete": 500}
    assert [deck({"predict": 90, "add": 5, "delete": 5}, seed) == cards for seed in (0, 1)] == [True, False]
    assert "delete" in cards[:500]
    assert Counter(deck(read_mix("predict=2,add=1,delete=0"), 0)) == {"predict": 6667, "add": 3333}


def test_workers_share_requests_evenly_and_connections_as_far_as_they_go() -> None:
    times = sorted(plan.due_time(10.0, 50.0, i, worker, 3) for worker in range(3) for i in range(4))
    assert times == pytest.approx([10.0 + i / 50 for i in range(12)])
    assert [plan.share_of(16, worker, 3) for worker in range(3)] == [6, 5, 5]
    steps = steps_of([100, 200], [], connections=8, seconds=3, warm_up=1)
    found = [(one.rate, one.connections, one.seconds, one.is_warm_up) for one in steps]
    assert found == [(100, 8, 1, True), (100, 8, 3, False), (200, 8, 3, False)]
    assert steps_of([], [4], connections=8, seconds=3, warm_up=0) == (Step(None, 4, 3),)


def test_what_cannot_be_planned() -> None:
    for text in ("", "predict", "predict=x", "predict=-1", "train=5", "predict=inf", "predict=nan"):
        with pytest.raises(LoadTestError, match="cannot be read"):
            read_mix(text)
    for make, part in (
        (lambda: read_mix("predict=0,add=0"), "share above 0"),
        (lambda: steps_of([100], [4], connections=8, seconds=3, warm_up=1), "either rates"),
        (lambda: Plan((Step(None, 2, 1),), {"predict": 1}, 3), "2 connections cannot be shared by 3 processes"),
        (lambda: Plan((), {"predict": 1}), "nothing to do"),
    ):
        with pytest.raises(LoadTestError, match=part):
            make()


MIX = ("predict", "add")
ONE = {"requests": 200, "rate": 50.0, "errors": 3, "refused": 2}
OPERATIONS: dict[str, Any] = {
    "predict": {**ONE, "latency_ms": {"p50": 1.0, "p99": 5.0, "p99.9": 7.0, "mean": 2.0, "max": 9.0}},
    "add": {"requests": 0, "rate": 0.0, "errors": 0, "refused": 0, "latency_ms": None},
    "all": {**ONE, "latency_ms": {"p99": 5.0}},
}
MET = [
    "predict.p99>=5ms", "predict.p99 > 4999us", "predict.p99.9>0.006s", "predict.max<10ms", "p99>4ms", "errors>0",
    "predict.errors>1.4%", "rate<51", "add.p99>1s",  # the last one: nothing was measured that could meet it
]  # fmt: skip
NOT_MET = ["predict.p99>5ms", "predict.mean>2.1ms", "predict.errors>3", "refused>1%", "predict.rate<50", "add.errors>0"]


def test_conditions() -> None:
    for texts, fails in ((MET, True), (NOT_MET, False)):
        for text in texts:
            assert read_threshold(text, MIX).fails({"operations": OPERATIONS}) is fails, text
    assert percents([read_threshold(text, MIX) for text in ("p95>1ms", "errors>0", "add.p99.99>1s")]) == [95, 99.99]


def test_what_is_no_condition() -> None:
    for texts, part in (
        (["predict.p99", "predict.p99=5ms", "train.p99>5ms"], "cannot be read"),
        (["delete.p99>5ms"], "the mix does not have"), (["predict.p99>5", "predict.p99>5%"], "takes us, ms or s"),
        (["rate<5ms", "rate<5%"], "takes no unit"), (["errors>5ms"], "takes %, or no unit"),
        (["p0>5ms", "p101>5ms"], "percentile"),
    ):  # fmt: skip
        for text in texts:
            with pytest.raises(LoadTestError, match=part):
                read_threshold(text, MIX)
