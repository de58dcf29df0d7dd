"""What the crash tests told is put in a table, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_crashes

PRINTED = """\
tests/process/durability/test_crash.py .                                         [ 50%]
killed early, before anything
================================= durability ==================================
killed at random: kills 200, operations 80,012, lost 0, resurrected 0
power loss: 100 cuts survived, 400 operations checked, lost 0, resurrected 0
======================= 2 passed in 100.00s (0:01:40) ========================
"""


def test_what_was_told_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "printed.txt"
    log.write_text(PRINTED, encoding="utf-8")
    bench_crashes.main(["--log", str(log)])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| killed at random | kills 200, operations 80,012, lost 0, resurrected 0 |",
        "| power loss | 100 cuts survived, 400 operations checked, lost 0, resurrected 0 |",
    ]


def test_a_run_that_told_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "printed.txt"
    log.write_text("1 failed in 3.00s\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        bench_crashes.main(["--log", str(log)])
    assert "no crash is reported there" in capsys.readouterr().err
