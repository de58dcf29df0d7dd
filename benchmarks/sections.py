"""What the scripts with many questions share: their command line, and a section in `results/` for each question."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks import higgs_like
from benchmarks.bench_accuracy import DATA
from benchmarks.results import FIGURES, Row, table, write_section

Bench = TypeVar("Bench")


@dataclass(frozen=True)
class Section:
    """What a question found, as it is shown."""

    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Row]
    plot: Path | None = None


def parse(
    description: str,
    questions: Sequence[str],
    arguments: Sequence[str] | None,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> argparse.Namespace:
    """Read the command line; `add_options` adds what a script has of its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=higgs_like.CACHE, help="keeps the data that are generated")
    parser.add_argument("--only", nargs="+", choices=questions, default=questions, help="questions to ask")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: does everything run?")
    parser.add_argument("--write-results", action="store_true", help="replace the sections in results/ and their plots")
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.quick and options.write_results:
        parser.error("a --quick run measures too little to be written down: leave out --write-results")
    return options


def figures_of(options: argparse.Namespace) -> Path:
    """Where plots go: beside the results, or aside when none are written."""
    return FIGURES if options.write_results else options.cache / "figures"


def ask(
    questions: Mapping[str, Callable[[Bench], Section]], bench: Bench, options: argparse.Namespace, group: str
) -> None:
    """Ask what is wanted, print the tables, and write them when asked.

    Parameters
    ----------
    questions
        By name.
    bench
        What they are asked of.
    options
        What `parse` has read.
    group
        First word of the sections' names.
    """
    for name in options.only:
        started = time.perf_counter()
        section = questions[name](bench)
        rows = table(section.head, section.rows)
        place = "" if section.plot is None else f"\nplot: {section.plot}"
        print(f"\n{section.title}, {time.perf_counter() - started:.0f} s\n{rows}{place}", flush=True)
        if options.write_results:
            write_section(f"{group}-{name}", section.title, section.text, rows, section.plot)
