"""What the scripts with many questions share: their command line, and a section of RESULTS.md for each question."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import higgs_like
from benchmarks.bench_accuracy import DATA
from benchmarks.results import Row, machine_line, table, write_section

FIGURES = Path(__file__).parent / "figures"


@dataclass(frozen=True)
class Section:
    """What a question found, as it is shown; with a plot unless it says otherwise."""

    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Row]
    has_plot: bool = True


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
    parser.add_argument("--write-results", action="store_true", help="replace the sections in RESULTS.md and the plots")
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.quick and options.write_results:
        parser.error("RESULTS.md is not written from --quick")
    return options


def figures_of(options: argparse.Namespace) -> Path:
    """Where plots go: beside the results, or aside when none are written."""
    return FIGURES if options.write_results else options.cache / "figures"


def ask(
    questions: Mapping[str, Callable[[], Section]],
    options: argparse.Namespace,
    *,
    group: str,
    plot: Callable[[str], Path],
) -> None:
    """Ask what is wanted, print the tables, and write them when asked.

    Parameters
    ----------
    questions
        By name.
    options
        What `parse` has read.
    group
        First word of the sections' names and titles.
    plot
        Where the plot of a question is.
    """
    for name in options.only:
        started = time.perf_counter()
        section = questions[name]()
        text = table(section.head, section.rows)
        place = f"\nplot: {plot(name)}" if section.has_plot else ""
        print(f"\n{section.title}, {time.perf_counter() - started:.0f} s\n{text}{place}", flush=True)
        if options.write_results:
            picture = [f"![{section.title}](figures/{plot(name).name})"] if section.has_plot else []
            body = "\n\n".join([section.text, text, *picture, machine_line()])
            write_section(f"{group}-{name}", f"\n{body}\n", f"{group.capitalize()}: {section.title}")
