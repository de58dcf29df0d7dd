"""Measure what durability costs.

    python -m benchmarks.bench_durability [--quick] [--rounds 5] [--only rates|recovery|probe] [--write-results]

Servers are processes on one core, the client is on another. In each round the durable server is measured before and
after those whose journal is off (A/B/A); figures are medians of the rounds, ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import higgs_like
from benchmarks.durability import probe, rates, recovery
from benchmarks.problems import SETTINGS
from benchmarks.results import table, write_report
from benchmarks.serving.samples import higgs_parquet
from benchmarks.serving.servers import run_here

RATES_TITLE = "Durability: mutations a second"
RATES_TEXT = (
    "Higgs-like, {rate_rows:,} rows; one sample per request. The durable server answers after its record is flushed "
    "to the disk; requests that wait at the same time share a flush and are applied as one change. `--ephemeral` "
    "has no journal and applies each change by itself. `nothing written` is the durable server without the bytes "
    "and the flush of its journal. Snapshots and erasures run with their default settings. Median of {rounds} rounds."
)
RECOVERY_TITLE = "Durability: time to recover"
RECOVERY_TEXT = (
    "Higgs-like, setting `fast`, from the start of the process until it is ready. After a kill the server reads the "
    "newest snapshot and replays the journal: half of its mutations are deletions, half add the same samples again. "
    "Medians of {rounds} starts."
)
PROBE_TITLE = "Durability: pauses while a snapshot is written"
PROBE_TEXT = (
    "Higgs-like, setting `fast`. The client asks for a prediction every millisecond. The table has the longest time "
    "between two answers while `POST /snapshot` runs, and for as long before and after it. Median of {rounds} rounds."
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rate_rows: int
    rows: int
    rounds: int
    n_mutations: int  # of one measurement of rates
    n_journal: int


def run(cache: Path, sizes: Sizes, only: str | None = None) -> dict[str, tuple[str, str, str]]:
    """Measure everything, or one thing; return title, text and table of each section by its name."""
    small, large = higgs_parquet(cache, sizes.rate_rows), higgs_parquet(cache, sizes.rows)
    run_here()
    sections = {}
    # Not in memory, as temporary directories often are: the disk is what is measured.
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder = Path(name)
        big = folder / "big"
        if only in (None, "rates"):
            rate_rows = [
                row
                for setting in SETTINGS
                for row in rates.run(small, setting, folder / setting, sizes.rounds, sizes.n_mutations)
            ]
            text = RATES_TEXT.format(rate_rows=sizes.rate_rows, rounds=sizes.rounds)
            sections["durability-rates"] = (RATES_TITLE, text, table(rates.HEAD, rate_rows))
        if only in (None, "recovery"):
            starts = min(sizes.rounds, 3)
            recovered = recovery.run(large, sizes.rows, big, starts, sizes.n_journal)
            text = RECOVERY_TEXT.format(rounds=starts)
            sections["durability-recovery"] = (RECOVERY_TITLE, text, table(recovery.HEAD, [recovered]))
        if only in (None, "probe"):
            probed = probe.run(large, sizes.rows, big, sizes.rounds)
            sections["durability-probe"] = (
                PROBE_TITLE,
                PROBE_TEXT.format(rounds=sizes.rounds),
                table(probe.HEAD, [probed]),
            )
    return sections


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and write them when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps generated data; on a real disk")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("rates", "recovery", "probe"), help="measure nothing else")
    parser.add_argument("--quick", action="store_true", help="little data, two rounds: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    if options.quick and options.write_results:
        parser.error("--quick measures too little to be written down: leave out one of --quick and --write-results")
    sizes = Sizes(50_000, higgs_like.N_TRAIN, options.rounds, 2_000, 10_000)
    if options.quick:
        sizes = Sizes(2_000, 3_000, 2, 100, 200)
    write_report(run(options.cache, sizes, options.only), write=options.write_results)


if __name__ == "__main__":
    main()
