"""The tree's benchmarks run from end to end, on very little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numba import config

from benchmarks import bench_tree, higgs_like, sections
from benchmarks.streams import building, comparison, cost, curves
from benchmarks.streams.prequential import Run, run_ours
from benchmarks.streams.sets import STREAMS, Stream, load_stream
from tests.unit.benchmarks.conftest import Pages

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")

TINY = bench_tree.Sizes(
    n_rows=300,
    n_streams=1,
    rounds=1,
    peer_budget=20.0,
    point_budget=20.0,
    n_build=500,
    build_budget=1.0,
    cost=cost.Sizes((100, 300), (2, 3), (0.1, 0.2), least=0.0, most=20.0),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short stand-in for Electricity and weather."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    price = rng.random(400)
    columns = {"price": price, "day": rng.integers(1, 8, 400), "label": np.where(price > 0.5, "UP", "DOWN")}
    pd.DataFrame(columns).to_csv(folder / "electricity.csv.gz", index=False)
    pd.DataFrame({**columns, "label": (price > 0.5).astype(int)}).to_csv(folder / "weather.csv.gz", index=False)
    return folder


@pytest.mark.long
def test_every_question_has_a_table_and_a_plot(
    tmp_path: Path, data: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "figures"
    monkeypatch.setattr(bench_tree, "FULL", TINY)
    monkeypatch.setattr(sections, "FIGURES", figures)
    monkeypatch.setattr(curves, "EPSILONS", (0.5, 0.1))
    bench_tree.main(["--data", str(data), "--cache", str(tmp_path / "cache"), "--write-results"])
    text = pages.read()
    for name in bench_tree.QUESTIONS:
        body = text.partition(f"<!-- tree-{name}: begin -->")[2].partition("<!--")[0]
        assert body.count("\n|") >= 5, name
        assert "Machine: " in body
        if f"figures/tree-{name}.png" in body:
            assert (figures / f"tree-{name}.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in figures.iterdir()} == {
        f"tree-{name}.png" for name in bench_tree.QUESTIONS if name not in {"electricity", "build"}
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["SEA", "hyperplane"])
def test_made_streams_drift(name: str) -> None:
    """A tree of the last samples beats one of all samples, though it has far fewer."""
    stream = load_stream(name, Path())
    assert len(stream) == 20_000
    assert stream.labels == STREAMS[name](name, Path()).labels
    window, everything = (
        run_ours({"max_depth": 5, "epsilon": 0.2, **more}, stream, 60.0) for more in ({"window": 2_000}, {})
    )
    assert window.accuracy() > everything.accuracy()


def test_scores() -> None:
    """Of five samples the first is learned only; the answers are one hit, one miss, one false alarm, one right no."""
    stream = Stream("s", ["x"], [[0.0]] * 5, [True, True, True, False, False], [])
    found = Run(stream, [True, False, True, False], 4e-6)
    assert found.f1() == pytest.approx(100 * 2 / (2 + 1 + 1))
    assert found.accuracy() == 50.0
    assert found.f1(3) == pytest.approx(100 * 2 / (2 + 1))
    assert found.microseconds == pytest.approx(1.0)
    assert found.is_whole
    assert not Run(stream, [True], 1.0).is_whole


@pytest.mark.long
def test_a_learner_that_takes_too_long_is_stopped_and_compared_there(data: Path) -> None:
    stream = load_stream("electricity", data)
    found = comparison.measure([stream], comparison.Peers(0.0))
    rows = {row.cells[1]: row for row in comparison.rows(found)}
    assert rows["HAT"].cells[2] == "first 251 of 400"
    reference = found[0].runs[comparison.REFERENCE]
    assert rows["HAT"].figure == reference.f1(251)


def test_trees_are_compared_node_by_node() -> None:
    from sklearn.tree import DecisionTreeClassifier

    from oubli.core import DynamicTreeClassifier

    held = higgs_like.generate(3_000, 10)
    ours = DynamicTreeClassifier(max_depth=4).fit(held.X, held.y)
    same = building.compare(ours, DecisionTreeClassifier(max_depth=4, random_state=0).fit(held.X, held.y), held)
    assert same.others == 0
    assert same.same >= 20
    worse = building.compare(ours, DecisionTreeClassifier(max_depth=4, splitter="random").fit(held.X, held.y), held)
    assert worse.others > 0


def test_exponents_and_bounds() -> None:
    curve = cost.Curve("n", cost.KINDS[0])
    for n in (1_000, 10_000, 100_000):
        curve.points[n], curve.walks[n] = 5.0 + 1e-3 * n**0.5, 5.0
    assert curve.exponent_of_rebuilding == pytest.approx(0.5)
    assert curve.bounds()[0] == pytest.approx(1e-3 * 1_000**0.5)
    assert curve.bounds()[2] == pytest.approx(curve.bounds()[0] * (5 / 3) ** 2)  # log^2 n
    assert 0.2 < curve.bound < 0.25
    curve.varied, curve.points, curve.walks = "epsilon", {0.1: 9.0, 0.2: 7.0}, {0.1: 5.0, 0.2: 5.0}
    assert curve.bounds() == pytest.approx([4.0, 2.0])
    assert curve.exponent_of_rebuilding == pytest.approx(-1.0)
