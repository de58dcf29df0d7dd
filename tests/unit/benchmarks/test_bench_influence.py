"""The influence benchmark runs from end to end, on very little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numba import config

from benchmarks import bench_influence, sections
from benchmarks.influence.proxies import _parts_alike, ndcg
from benchmarks.influence.removal import discounted
from tests.unit.benchmarks.conftest import Pages

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")

TINY = bench_influence.Sizes(250, 1, 1, 2, 10, 8, 8, 2, 2, 8, 2, 10, 1, 1, 4)


@pytest.mark.long
def test_every_question_has_a_table(
    tmp_path: Path, few_adults: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "figures"
    monkeypatch.setattr(bench_influence, "FULL", TINY)
    monkeypatch.setattr(sections, "FIGURES", figures)
    bench_influence.main(["--data", str(few_adults), "--cache", str(tmp_path / "cache"), "--write-results"])
    text = pages.read()
    for name in bench_influence.QUESTIONS:
        body = text.partition(f"<!-- influence-{name}: begin -->")[2].partition("<!--")[0]
        assert body.count("\n|") >= 5, name
    assert "digest unchanged" in text
    assert {path.name for path in figures.iterdir()} == {f"influence-{n}.png" for n in ("times", "noise", "removal")}


def test_ndcg_by_hand() -> None:
    truth = np.array([3.0, 2.0, 1.0])
    assert ndcg(truth, truth) == pytest.approx(1.0)
    gains, discounts = np.array([1 / 3, 1 / 2, 1.0]), 1 / np.log2([2, 3, 4])
    assert ndcg(truth, -truth) == pytest.approx((gains * discounts).sum() / (gains[::-1] * discounts).sum())


def test_gains_are_discounted() -> None:
    assert discounted(np.array([0.5, 0.5, 0.5])) == pytest.approx(0.5)
    assert discounted(np.array([1.0, 0.0])) > 0.5


def test_parts_are_alike_whatever_their_names_are() -> None:
    parts = np.array([0, 0, 1, 2], np.uint8)
    assert _parts_alike(parts, np.array([5, 5, 0, 1], np.uint8))
    assert not _parts_alike(parts, np.array([5, 0, 0, 1], np.uint8))
    assert not _parts_alike(parts, np.array([5, 5, 0, 0], np.uint8))
