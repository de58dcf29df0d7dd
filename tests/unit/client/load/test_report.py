import json
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.client.load.plan import READ, Plan, Step, read_threshold
from oubli.client.load.records import STALE, Effort, Histogram, Measured, Operation, Part, Record, Result
from oubli.client.load.report import failures, limits_of_client, lines, report


def of(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def lags(milliseconds: float) -> Effort:
    lags = [int(milliseconds * 1e6)] * 100
    return Effort(wall=10.0, cpu=4.0, waited=1.0, send_lag=of(lags), loop_lag=of(lags))


def operation(n: int, milliseconds: float, **statuses: int) -> Operation:
    counts = Counter({200: n, **{int(name[1:]): count for name, count in statuses.items()}})
    return Operation(statuses=counts, durations=of([int(milliseconds * 1e6)] * n))


def result(*efforts: Effort) -> Result:
    record = Record()
    record.operations |= {"predict": operation(90, 1.0, s503=4, s500=1), "add": operation(10, 5.0)}
    record.operations[READ] = operation(3, 2.0)
    record.operations["predict"].unanswered = 2
    record.operations["predict"].retry_after.update([3.0, 1.0, 1.0, 0.0])
    record.n_held_up, record.n_compared, record.n_read_back = 7, 100, 3
    steps = [Step(20.0, 8, 2.0, is_warm_up=True), Step(20.0, 8, 10.0)]
    parts = {second: Part(second, second + 1.0, record) for second in range(2)}
    measured = [Measured(step, record, list(efforts), parts, step.seconds) for step in steps]
    model = {"kind": "forest", "n_samples": 60, "task": "classification"}
    return Result("oubli-load-test-1", model, measured, record)


PLAN = Plan((Step(20.0, 8, 10.0),), {"predict": 90.0, "add": 10.0})


def test_a_report_is_json_and_counts_everything_apart() -> None:
    conditions = [read_threshold(text, PLAN.mix) for text in ("predict.p95>0.9ms", "errors>3")]
    found = json.loads(json.dumps(report(result(lags(0.1)), PLAN, conditions, "http://x")))
    warm_up, step = found["steps"]
    assert (warm_up["is_warm_up"], step["is_warm_up"]) == (True, False)
    predict: dict[str, Any] = step["operations"]["predict"]
    counts = {"requests": 97, "rate": 9.0, "errors": 3, "refused": 4, "unanswered": 2}
    assert predict | counts | {"retry_after": {"answers": 4, "longest_s": 3.0}} == predict
    assert 1.0 <= predict["latency_ms"]["p95"] < 1.01
    assert step["operations"]["all"]["requests"] == 107, "what is read back is no part of the mix"
    assert [one["failed"] for one in found["conditions"]] == [True, False]
    assert len(list(failures(found))) == 1
    text = "\n".join(lines(found))
    for part in (
        *("2 never answered", "4 answers said when to come back (at most 3 s)"),
        *("7 requests were due while all 8 connections were busy", "held (100 answers compared, 3 samples read back)."),
    ):
        assert part in text
    assert "1 x 500, 4 x 503" in text or "4 x 503, 1 x 500" in text
    assert "warm-up" not in text


def test_the_client_is_the_limit_when_it_is_busy_or_late() -> None:
    def reasons(*efforts: Effort) -> list[str]:
        return limits_of_client(Measured(PLAN.steps[0], efforts=list(efforts)))

    assert (reasons(lags(0.1), lags(0.9)), reasons(Effort(wall=10.0, cpu=8.9))) == ([], [])
    assert reasons(lags(0.1), Effort(wall=10.0, cpu=9.2)) == ["process 1 was busy 92% of the time"]
    (reason,) = reasons(Effort(wall=10.0, cpu=5.0, waited=4.5))
    assert "busy 95% of the time, 45% of it waiting for a processor" in reason
    assert reasons(lags(2.0)) == ["process 0 sent requests 2.0 ms after they were due (p99)"]
    assert len(reasons(lags(20.0))) == 2
    for effort, words in ((lags(0.1), "is not the limit"), (lags(2.0), "The client is the limit")):
        assert words in "\n".join(lines(report(result(effort), PLAN, [], "http://x")))


def test_broken_promises_and_an_operation_without_a_success_fail_a_test() -> None:
    found = result(lags(0.1))
    found.promises = Record(violations=Counter({STALE: 2}), n_compared=9)
    found.may_read = False
    text = report(found, PLAN, [], "http://x")
    assert list(failures(text)) == [f"{STALE} (2 times)"]
    assert "Read-your-writes was BROKEN 2 times (9 answers compared, no sample read back" in "\n".join(lines(text))

    found = result(lags(0.1))
    refused = {"predict": operation(0, 1.0, s403=5)}
    for operations, said in ((refused, "no predict was answered as it should be"), ({}, "no request was sent")):
        found.steps[1].record = Record()
        found.steps[1].record.operations |= operations
        assert list(failures(report(found, PLAN, [], "http://x"))) == [f"{said} (20 requests/s)"]


# --- histograms


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=200))
def test_percentiles_are_those_of_numpy_within_a_bucket(values: list[int]) -> None:
    histogram = of(values)
    for share in (50, 90, 99, 99.9, 100):
        exact = int(np.percentile(values, share, method="inverted_cdf"))
        assert exact <= histogram.percentile(share) <= exact * (1 + 1 / 128)
    assert (histogram.longest, histogram.mean) == (max(values), pytest.approx(np.mean(values)))


@given(st.lists(st.integers(0, 10**12), max_size=50), st.lists(st.integers(0, 10**12), max_size=50))
def test_histograms_of_two_processes_are_that_of_all(one: list[int], other: list[int]) -> None:
    merged = of(one)
    merged.add(pickle.loads(pickle.dumps(of(other))))  # noqa: S301 - as pipes do
    together = of(one + other)
    assert vars(merged) == vars(together)
    assert (Histogram().percentile(99), Histogram().mean, Histogram().longest) == (0, 0.0, 0)
    assert of([-5]).percentile(100) == 0, "a clock that goes back"
