"""The paper's experiments run from end to end, on very little."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba import config

from benchmarks import bench_paper, sections
from benchmarks.paper import accuracy_after_unlearning, accuracy_by_q, boost, scaling
from tests.unit.benchmarks.conftest import Pages

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")

TINY = bench_paper.Sizes(
    n_rows=400,
    n_higgs_boost=400,
    n_sets=1,
    seeds=1,
    rounds=1,
    batches=(1, 20),
    n_requests=40,
    sizes=(300, 600),
    budget=100.0,
)


@pytest.mark.long
def test_every_experiment_has_a_table_and_a_plot(
    tmp_path: Path, few_adults: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "figures"
    monkeypatch.setattr(bench_paper, "FULL", TINY)
    monkeypatch.setattr(sections, "FIGURES", figures)
    for module in (accuracy_by_q, accuracy_after_unlearning, boost):
        monkeypatch.setattr(module, "SETS", ("adult",))
    bench_paper.main(["--data", str(few_adults), "--cache", str(tmp_path / "cache"), "--write-results"])
    text = pages.read()
    for name in bench_paper.QUESTIONS:
        body = text.partition(f"<!-- paper-{name}: begin -->")[2].partition("<!--")[0]
        assert body.count("\n|") >= 4, name
        assert "Machine: " in body
        assert f"(../figures/paper-{name}.png)" in body
        assert (figures / f"paper-{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_an_unlearned_model_predicts_as_the_retrained_one(few_adults: Path, tmp_path: Path) -> None:
    bench = bench_paper.Bench(few_adults, tmp_path, tmp_path, TINY)
    (found,) = accuracy_after_unlearning.measure(bench.load, ("adult",), 1)
    assert found.accuracies.keys() == set(accuracy_after_unlearning.SHARES)
    assert set(found.different.values()) == {0}


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    found = scaling.Found()
    found.seconds["fit"] = {n: 1e-6 * n**1.5 for n in (1_000, 10_000, 100_000)}
    assert found.exponent("fit") == pytest.approx(1.5)
