"""RESULTS.md: one marked section a question, replaced as a whole; its tables; and the machine it was made on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
PACKAGES = ("numpy", "numba", "scikit-learn", "lightgbm", "xgboost", "xgboost-cpu", "catboost", "river", "pandas")


@dataclass(frozen=True)
class Mark:
    """Where a figure should lie."""

    limit: float
    at_most: bool

    def met(self, figure: float) -> bool:
        """Whether the figure lies there."""
        return figure <= self.limit if self.at_most else figure >= self.limit

    def __str__(self) -> str:
        """The mark in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.limit:,g}"


def at_most(limit: float) -> Mark:
    """A figure that should not be above a limit."""
    return Mark(limit, at_most=True)


def at_least(limit: float) -> Mark:
    """A figure that should not be below a limit."""
    return Mark(limit, at_most=False)


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells, and the figure that the mark is about."""

    cells: tuple[str, ...]
    figure: float
    mark: Mark | None = None

    @property
    def verdict(self) -> str:
        """Whether the mark is met, from the figure before rounding; empty without a mark."""
        if self.mark is None:
            return ""
        return "yes" if self.mark.met(self.figure) else "**no**"


def shown(figure: float) -> str:
    """A figure with three significant digits, whole from 100 on."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def table(head: Sequence[str], rows: Sequence[Row]) -> str:
    """Lay out rows in Markdown: their cells, the figure under the last heading, and mark and verdict if any has one.

    Parameters
    ----------
    head
        Headings of the cells and, last, of the figure. A heading that ends in ``:`` is for text, aligned left.
    rows
        The rows, each with a cell less than there are headings.
    """
    marked = any(row.mark is not None for row in rows)
    headings = [heading.removesuffix(":") for heading in head] + (["mark", "met"] if marked else [])
    rules = ["---" if heading.endswith(":") else "---:" for heading in head] + (["---", "---"] if marked else [])
    lines = [f"| {' | '.join(headings)} |", f"|{'|'.join(rules)}|"]
    for row in rows:
        cells = [*row.cells, shown(row.figure)]
        if marked:
            cells += ["" if row.mark is None else str(row.mark), row.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> dict[str, str]:
    """Facts about the machine and the versions that results depend on."""
    facts = {"cpus": str(os.cpu_count()), "processor": processor(), "python": platform.python_version()}
    return facts | {name: found for name in PACKAGES if (found := installed(name))}


def installed(package: str) -> str:
    """The version of a package; empty when it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def machine_line() -> str:
    """The machine in one sentence."""
    return f"Machine: {', '.join(f'{name} {value}' for name, value in machine().items())}."


def processor() -> str:
    """The processor's name, clock included where Linux tells it; else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = [facts[name] for name in ("model name", "cpu MHz", "cache size") if name in facts]
    return f"{platform.machine()} ({' / '.join(parts)})" if parts else platform.machine()


def write_section(name: str, text: str, title: str | None = None) -> None:
    """Put the text between the marks of a section; one that is not there yet is added at the end under its title."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    content = RESULTS.read_text(encoding="utf-8")
    if begin not in content:
        content = f"{content.rstrip()}\n\n## {title or name}\n\n{begin}\n{end}\n"
    before, rest = content.split(begin, 1)
    _, after = rest.split(end, 1)
    RESULTS.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
