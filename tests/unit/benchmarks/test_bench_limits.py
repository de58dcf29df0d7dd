"""The benchmark of large forests runs from end to end on small ones, and says what it should; never how fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba import config

from benchmarks import bench_limits
from benchmarks.bench_limits import RESERVE, Step, forget_peak, most_rows, resident, step
from tests.unit.benchmarks.conftest import Pages

GIB = 2**30


def test_a_step_tells_its_own_peak() -> None:
    before = bytearray(64 * 2**20)
    peak = step("large", lambda: bytearray(200 * 2**20))
    assert peak.peak - peak.after > 150 * 2**20
    del before
    small = step("small", lambda: None)
    assert small.peak < peak.peak
    forget_peak()
    assert resident("VmHWM") >= resident() > 0


def test_the_largest_model_leaves_room_for_others() -> None:
    n, base = 300_000, resident()
    steps = [Step("fit", 1.0, 1.0, base, base + 1000 * n), Step("saved", 1.0, 1.0, base, base + 500 * n)]
    rows = most_rows(steps, n, 20 * GIB)
    assert rows % 100_000 == 0
    assert 0.8 * (16 * GIB - base) < 1000 * rows < 16 * GIB - base
    assert most_rows(steps, n, RESERVE) == n


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")
def test_every_question_gets_its_table(tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_limits, "SMALL", 500)
    monkeypatch.setattr(bench_limits, "LARGE", 1_000)
    bench_limits.main(["--cache", str(tmp_path), "--rows", "800", "--write-results"])
    text = (pages.folder / "limits.md").read_text(encoding="utf-8")
    assert "| 1,000 |" in text
    assert "| at most 650 |" in text
    assert "| at most 1.3 |" in text
    for name in ("fit", "25 deleted and added, resolved", "saved", "recovered"):
        assert f"| 500 | {name} |" in text
    assert "| 800 | recovered |" in text
    assert not list(tmp_path.glob("**/*.oubli"))
