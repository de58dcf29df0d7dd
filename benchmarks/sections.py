"""What the scripts with many questions share: their command line, and a section in `results/` for each question."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from benchmarks import higgs_like
from benchmarks.bench_accuracy import DATA
from benchmarks.results import FIGURES, Row, table, write_section


@dataclass(frozen=True)
class Section:
    """What a question found, as it is shown."""

    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Row]
    plot: Path | None = None


@dataclass(frozen=True)
class Bench:
    """What questions are asked of: the folders of the data, of what is generated, and of the plots."""

    group: ClassVar[str]  # first word of the names of sections and plots

    data: Path
    cache: Path
    figures: Path

    def plot(self, name: str) -> Path:
        """Where the plot of a question goes."""
        return self.figures / f"{self.group}-{name}.png"


Asked = TypeVar("Asked", bound=Bench)


def parse(
    description: str | None,
    questions: Sequence[str],
    arguments: Sequence[str] | None,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> argparse.Namespace:
    """Read the command line of a script, given its docstring; `add_options` adds what it has of its own."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
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


def folders(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    """The folders of a `Bench`; plots go beside the results, or into the cache when none are written."""
    return options.data, options.cache, FIGURES if options.write_results else options.cache / "figures"


def ask(questions: Mapping[str, Callable[[Asked], Section]], bench: Asked, options: argparse.Namespace) -> None:
    """Ask the questions that are wanted, print the tables, and write them when asked."""
    for name in options.only:
        started = time.perf_counter()
        section = questions[name](bench)
        rows = table(section.head, section.rows)
        place = "" if section.plot is None else f"\nplot: {section.plot}"
        print(f"\n{section.title}, {time.perf_counter() - started:.0f} s\n{rows}{place}", flush=True)
        if options.write_results:
            write_section(f"{bench.group}-{name}", section.title, section.text, rows, section.plot)
