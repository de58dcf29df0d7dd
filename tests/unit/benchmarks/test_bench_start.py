from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import bench_start
from benchmarks.bench_start import Part, Times
from benchmarks.results import at_most


def test_what_has_no_moment_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        bench_start,
        "parts",
        lambda cache: {
            "cold": Part("serve", lambda: Times(12.0, 20.0, 33.0), (at_most(10), None, at_most(80))),
            "all": Part("warm-up", lambda: Times(math.nan, 90.0, 180.0), (None, at_most(360), None)),
            "pip": Part("clone", lambda: pytest.fail("not asked for")),
        },
    )
    bench_start.main(["--only", "all", "cold"])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert lines == [
        "| serve | first prediction | 12 | at most 10 | **no** |",
        "| serve | changes are accepted | 20 |  |  |",
        "| serve | CPU | 33 | at most 80 | yes |",
        "| warm-up | all is done | 90 | at most 360 | yes |",
        "| warm-up | CPU | 180 |  |  |",
    ]


def test_a_command_is_run_to_its_end_or_until_a_server_takes_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = bench_start.measured(["sh", "-c", "exit 0"], tmp_path, {}, None)
    assert math.isnan(times.prediction)
    assert times.changes >= 0
    with pytest.raises(SystemExit, match="why"):
        bench_start.measured(["sh", "-c", "echo why; exit 3"], tmp_path, {}, None)
    asked: list[str] = []

    def answers(port: int, path: str, body: object = None) -> bool:
        asked.append(path)
        return len(asked) > 1

    monkeypatch.setattr(bench_start, "_answers", answers)
    times = bench_start.measured(["sleep", "60"], tmp_path, {}, 1)
    assert asked == ["/predict", "/predict", "/readyz?for=changes"]
    assert times.prediction <= times.changes < 60
