from __future__ import annotations

from typing import Any

import pytest

from oubli.client.load.plan import LoadTestError
from oubli.client.load.thresholds import percents, read_threshold

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
