"""Compare the speed of this checkout with that of another commit: `python -m benchmarks compare REV`.

    python -m benchmarks compare REV --data DIR [--only operations http] [--rounds 7] [--write-results] [--problems ...]

REV is checked out and installed in a worktree and an environment of its own. Each side runs its own scripts, one after
the other, seven times at least, and the side that goes first changes every time. A ratio is formed within a round, of
the figures that both sides print under the same headings: time after by time before, so above 1 is slower. Shown are
the median of the rounds and its interval, which holds the true median with a probability of at least 95 %. A figure
is missed when the whole interval is above the limit. Figures of peers, which do not change, tell how noisy the
machine is. Options that are not its own go to the scripts.

`--only servers` and `--only library` run no scripts of their sides: the servers of both run at the same time and one
client measures them in turn, or the libraries of both answer the same questions in turn, a process each.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import higgs_like
from benchmarks.bench_accuracy import DATA
from benchmarks.library import pairs as libraries
from benchmarks.results import Row, table, write_section
from benchmarks.serving import pairs
from benchmarks.timing import median

ROOT = Path(__file__).resolve().parent.parent
FEWEST_ROUNDS = 7
CONFIDENCE = 0.95
TITLE = "Against before: {name}"
HEAD = ("table:", "row:", "figure:", "before", "after", "lowest", "highest", "verdict:", "after / before")
TEXT = (
    "This checkout beside commit `{rev}`, in turn, {rounds} rounds, each side with its own scripts (`{command}`). "
    "The ratio is of times, after divided by before, within a round: above 1 is slower. *Lowest* and *highest* are "
    "the interval of its median ({confidence:.0%} or more). *Slower* means that the whole interval is above "
    "{limit:g}. Figures of peers, which are the same on both sides, are controls."
)
# What each name runs. The options are those that every commit since has.
SUITES: dict[str, list[str]] = {
    "operations": [
        "benchmarks.bench_operations",
        *("--problems", "adult-one-hot", "adult-native"),
        *("--settings", "fast"),
        *("--only", "training", "mutations", "prediction", "batches"),
    ],
    "http": ["benchmarks.bench_http", "--rounds", "1"],
    "boosting": ["benchmarks.bench_boosting", "--sets", "adult", "--only", "training", "update", "prediction"],
}
LIBRARY = "library"
SERVERS = "servers"
SERVERS_TEXT = (
    "The servers of this checkout and of commit `{rev}` at the same time on one core, measured in turn by one client "
    "on the other, {rounds} rounds. Times in microseconds. The ratio is after divided by before, within a round. "
    "*Lowest* and *highest* are the interval of its median ({confidence:.0%} or more). *Slower* means that the whole "
    "interval is above {limit:g}."
)
TAKE_DATA = {"operations", "boosting"}
# Headings of figures: whether less is better.
OURS: dict[str, bool] = {
    "ours s": True,
    "ms": True,
    "us a row": True,
    "rows a second": False,
    "delete s": True,
    "ours": False,
    "p50": True,
    "p99": True,
}
PEERS: dict[str, bool] = {"peer s": True, "bare ASGI": False, "FastAPI": False, "FastAPI p50": True}
# Numbers that say what a row is about.
ABOUT = {"connections", "test rows", "deleted", "mean over"}


@dataclass(frozen=True)
class Figure:
    """Where a figure stands: its table, its row, its heading."""

    table: str
    row: str
    heading: str
    less_is_better: bool
    is_peer: bool


def figures(text: str) -> dict[Figure, float]:
    """Read the figures of the Markdown tables that a script has printed."""
    found: dict[Figure, float] = {}
    title, head, rules = "", [], []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            title, head = (re.sub(r", \d+ s$", "", line.strip()) or title), []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not head:
            head, rules = cells, lines[number + 1].strip("|").split("|") if number + 1 < len(lines) else []
            continue
        if set(line) <= set("|-:"):
            continue
        about = [
            cell
            for name, rule, cell in zip(head, rules, cells, strict=False)
            if name in ABOUT or (not rule.endswith(":") and name not in ("met", "mark", *OURS, *PEERS))
        ]
        is_peer_row = any(
            name == "system" and not cell.startswith("oubli") for name, cell in zip(head, cells, strict=False)
        )
        for name, cell in zip(head, cells, strict=False):
            if name in OURS or name in PEERS:
                less = OURS[name] if name in OURS else PEERS[name]
                figure = Figure(title, ", ".join(about), name, less, is_peer_row or name in PEERS)
                found[figure] = float(cell.replace(",", ""))
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The values between which the median of what they are drawn from lies, at `CONFIDENCE` or more.

    Order statistics: the number of values below the median is binomial, whatever the distribution. With fewer than six
    values there is no such interval, and the smallest and the largest value are returned.
    """
    ordered, n = sorted(values), len(values)
    below, outside = 0, 0.0
    while below < n // 2:
        outside += 2 * math.comb(n, below) / 2**n
        if outside > 1 - CONFIDENCE:
            break
        below += 1
    first = max(below - 1, 0)
    return ordered[first], ordered[n - 1 - first]


def ratios(before: Mapping[Figure, float], after: Mapping[Figure, float]) -> dict[Figure, float]:
    """Time after by time before, for the figures that both sides have and that are not zero."""
    shared = [figure for figure in after if before.get(figure) and after[figure]]
    return {
        figure: after[figure] / before[figure] if figure.less_is_better else before[figure] / after[figure]
        for figure in shared
    }


def verdict(low: float, high: float, limit: float) -> str:
    """The verdict on an interval."""
    if low > limit:
        return "**slower**"
    if high < 1:
        return "faster"
    return "within"


def rows(rounds: Sequence[tuple[Mapping[Figure, float], Mapping[Figure, float]]], limit: float) -> list[Row]:
    """One row a figure: the slowest first, controls last."""
    found: dict[Figure, list[float]] = {}
    for before, after in rounds:
        for figure, ratio in ratios(before, after).items():
            found.setdefault(figure, []).append(ratio)
    listed = []
    for figure, values in found.items():
        low, high = interval(values)
        said = "control" if figure.is_peer else verdict(low, high, limit)
        sides = [median(side[figure] for side in sides if figure in side) for sides in zip(*rounds, strict=True)]
        cells = (figure.table, figure.row, figure.heading, *(f"{side:,.4g}" for side in sides))
        listed.append((figure.is_peer, Row((*cells, f"{low:.3f}", f"{high:.3f}", said), median(values))))
    listed.sort(key=lambda entry: (entry[0], -entry[1].figure))
    return [row for _, row in listed]


def installed(rev: str, cache: Path) -> Path:
    """Check a commit out and install it with what its benchmarks need; return the folder."""
    git = ["git", "-C", str(ROOT)]
    sha = subprocess.run(
        [*git, "rev-parse", f"{rev}^{{commit}}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    folder = (cache / "compare" / sha[:12]).resolve()
    if not folder.exists():
        subprocess.run([*git, "worktree", "prune"], check=True)
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(folder), sha], check=True)
    make = ["make", "-C", str(folder), f"PYTHON={sys.executable}", ".venv/.installed-benchmarks"]
    subprocess.run(make, check=True)
    return folder


def run(folder: Path, python: Path, command: Sequence[str]) -> str:
    """Run a script in a checkout and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    done = subprocess.run(
        [str(python), "-m", *command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def compare(rev: str, name: str, options: argparse.Namespace, further: Sequence[str] = ()) -> list[Row]:
    """Run both sides in turn; the first runs, which compile, do not count."""
    other = installed(rev, options.cache)
    command = [*SUITES[name], *further, "--cache", str(options.cache.resolve())]
    if name in TAKE_DATA:
        command += ["--data", str(options.data.resolve())]
    sides = [(other, other / ".venv" / "bin" / "python"), (ROOT, Path(sys.executable))]
    for folder, python in sides:
        run(folder, python, [*command, "--quick"])
    found = []
    for number in range(options.rounds):
        texts = ["", ""]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            texts[side] = run(*sides[side], command)
        found.append((figures(texts[0]), figures(texts[1])))
        print(f"{name}: round {number + 1} of {options.rounds}", flush=True)
    return rows(found, options.limit)


def compare_servers(rev: str, options: argparse.Namespace) -> list[Row]:
    """Measure the servers of both sides in turn; the first run, which compiles, does not count."""
    folders, cache = (installed(rev, options.cache), ROOT), options.cache.resolve()
    for _ in pairs.measure(folders, cache, 1, is_quick=True):
        pass
    found = []
    for route, row, loads in pairs.measure(folders, cache, options.rounds):
        before, after = (
            {Figure(route, row, name, True, False): 1e6 * getattr(one, name) for name in ("p50", "p99")}
            for one in loads
        )
        found.append((before, after))
    return rows(found, options.limit)


def compare_libraries(rev: str, options: argparse.Namespace) -> list[Row]:
    """Ask the libraries of both sides in turn."""
    pythons = installed(rev, options.cache) / ".venv" / "bin" / "python", Path(sys.executable)
    found: list[Row] = []
    for model in options.models:
        for name in libraries.SETS[model]:
            if name in options.sets:
                work = libraries.load_work(model, name, options.data, options.cache)
                found += libraries.measure(pythons, work, options.rounds)
                print(f"{LIBRARY}: {model} on {name}\n{table(libraries.HEAD, found)}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print the tables, and write them when asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("rev", help="the commit to compare with")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps worktrees, environments and data")
    parser.add_argument("--only", nargs="+", choices=[*SUITES, SERVERS, LIBRARY], default=["operations", "http"])
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS)
    parser.add_argument("--limit", type=float, default=1.03, help="the ratio above which a figure is missed")
    parser.add_argument("--write-results", action="store_true", help="replace the sections in results/compare.md")
    sets = sorted({name for names in libraries.SETS.values() for name in names})
    parser.add_argument("--sets", nargs="+", choices=sets, default=sets, help=f"of `--only {LIBRARY}`")
    parser.add_argument("--models", nargs="+", choices=libraries.MODELS, default=libraries.MODELS, help="of the same")
    options, further = parser.parse_known_args(arguments)
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds must be {FEWEST_ROUNDS} or more: fewer say nothing of an interval")
    for name in options.only:
        head: Sequence[str] = HEAD
        command = ""
        if name == SERVERS:
            template, found = SERVERS_TEXT, compare_servers(options.rev, options)
        elif name == LIBRARY:
            template, head, found = libraries.TEXT, libraries.HEAD, compare_libraries(options.rev, options)
        else:
            template, command = TEXT, " ".join([*SUITES[name], *further])
            found = compare(options.rev, name, options, further)
        text = template.format(
            rev=options.rev[:12], rounds=options.rounds, command=command, confidence=CONFIDENCE, limit=options.limit
        )
        title, body = TITLE.format(name=name), table(head, found)
        print(f"\n{title}\n\n{text}\n\n{body}", flush=True)
        if options.write_results:
            write_section(f"compare-{name}", title, text, body)


if __name__ == "__main__":
    main()
