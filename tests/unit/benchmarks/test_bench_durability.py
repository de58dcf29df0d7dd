"""The benchmark of durability runs from end to end, on very little, and says what it should; never how fast."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bench_durability
from benchmarks.durability import probe
from benchmarks.serving.samples import command, higgs_parquet
from tests.serving import ROOT, environment


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of the tables, by their titles."""
    found = {}
    for part in re.split(r"^Durability: ", text, flags=re.MULTILINE)[1:]:
        title, *lines = part.splitlines()
        rows = [line for line in lines if line.startswith("|")][2:]
        found[title] = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return found


@pytest.mark.long
def test_every_question_gets_its_table(tmp_path: Path) -> None:
    # In a process of its own: the client keeps to one core from then on.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_durability", "--quick", "--cache", str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = tables(done.stdout)
    routes = ("DELETE /samples/{id}", "POST /samples")
    expected = {(route, setting, n) for route in routes for setting in ("fast", "defaults") for n in ("1", "32")}
    rates = found["mutations a second"]
    assert {(row[0], row[1], row[2]) for row in rates} == expected
    assert {row[-2] for row in rates if row[2] == "32"} == {"at least 0.7"}
    assert {row[-1] for row in rates if row[2] == "32"} <= {"yes", "**no**"}
    assert {row[-2] for row in rates if row[2] == "1"} == {""}
    ((samples, mutations, *_),) = found["time to recover"]
    assert (samples, mutations) == ("3,000", "200")
    (pauses,) = found["pauses while a snapshot is written"]
    assert pauses[-2] == "at most 10"
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "data directories are left"


def test_a_quick_run_is_not_written_down(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_durability.main(["--quick", "--write-results"])
    assert "--quick" in capsys.readouterr().err


def test_the_longest_gap() -> None:
    assert probe.longest_gap([1.0, 1.5, 4.0, 4.25]) == 2.5


def test_requests_and_commands(tmp_path: Path) -> None:
    samples = higgs_parquet(tmp_path, 300)
    (addition,) = samples.additions([7])
    (sample,) = json.loads(addition.partition(b"\r\n\r\n")[2])["samples"]
    assert sample == {"id": "7", "features": samples.rows[7], "label": samples.labels[7], "readd": True}
    assert samples.deletions([7]) == [b"DELETE /samples/7 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
    durable, without = (command(samples, "defaults", place) for place in (tmp_path / "data", None))
    assert durable[-2:] == ["--data-dir", str(tmp_path / "data")]
    assert without[-1] == "--ephemeral"
