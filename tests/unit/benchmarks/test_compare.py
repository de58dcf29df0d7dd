"""Two commits are compared by what their scripts print."""

from math import comb

import pytest

from benchmarks.compare import figures, interval, verdict
from benchmarks.results import Row, at_most, table

HEAD = ("route:", "connections", "p50", "FastAPI p50", "in FastAPI's p50")
HTTP = f"""
HTTP: how long a request takes

{table(HEAD, [Row(("POST /predict", "1", "1,047", "20.5"), 3)])}
"""
PREDICTING = table(
    ("data:", "system:", "us a row", "times ours"), [Row(("a", "oubli", "9.0"), 1), Row(("a", "LightGBM", "90.0"), 10)]
)
TRAINING = table(("data:", "rounds", "ours s", "ratio"), [Row(("a", "5", "2.00"), 1, at_most(3))])


def test_figures_are_read_from_tables_as_they_are_printed() -> None:
    found = figures(f"{HTTP}\nPredicting one row\n{PREDICTING}\n\nTraining, 30 s\n{TRAINING}")
    assert {(f.table, f.row, f.heading, f.is_peer): value for f, value in found.items()} == {
        ("HTTP: how long a request takes", "POST /predict, 1", "p50", False): 1047.0,
        ("HTTP: how long a request takes", "POST /predict, 1", "FastAPI p50", True): 20.5,
        ("Predicting one row", "a, oubli", "us a row", False): 9.0,
        ("Predicting one row", "a, LightGBM", "us a row", True): 90.0,
        ("Training", "a", "ours s", False): 2.0,
    }


@pytest.mark.parametrize("n", [7, 9, 11, 15, 31])
def test_the_interval_holds_the_median_often_enough_and_is_no_wider_than_needed(n: int) -> None:
    low, high = interval(list(map(float, range(n))))
    first = int(low)
    assert high == n - 1 - first
    outside = [sum(2 * comb(n, k) for k in range(first + more + 1)) / 2**n for more in (0, 1)]
    assert outside[0] <= 0.05 < outside[1]


def test_only_an_interval_above_the_limit_as_a_whole_is_slower() -> None:
    found = [verdict(low, high, 1.03) for low, high in ((1.04, 1.1), (1.02, 1.1), (0.9, 0.99))]
    assert found == ["**slower**", "within", "faster"]
