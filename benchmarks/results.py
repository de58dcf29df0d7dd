"""The pages of results: tables, marks, the machine, and one marked section a question in the page of its topic.

A page in `results/` begins with prose that people write. The sections follow, which the scripts replace as a whole, and
below them what was tried. `RESULTS.md` is written by hand; its plots are drawn from the tables (`plots.py`).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent / "figures"
TRIED = "## What was tried"  # the last part of a page; sections stand above it
# The pages of the sections, by name or first word; the others are in the page named after their first word.
TOPICS = {
    "boosting-backdoor": "forgetting",
    "boosting-deletion": "incremental-boosting",
    "boosting-exact": "incremental-boosting",
    "boosting-exact-touched": "incremental-boosting",
    "boosting-leaf-scores": "online-boosting",
    "boosting-membership": "forgetting",
    "boosting-presorted": "presorted-boosting",
    "boosting-similarity": "online-boosting",
    "boosting-stream": "online-boosting",
    "boosting-update": "online-boosting",
    "boosting-update-error": "online-boosting",
    "dynfrs": "paper",
    "igbdt": "presorted-boosting",
    "operations-memory": "memory",
    "operations-stream": "streams",
    "paper-online": "streams",
    "shap-boosting": "explanations",
    "shap-forest": "explanations",
    "tags": "streams",
}
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


def git(*arguments: str) -> str | None:
    """What git prints in this checkout; None when it cannot say."""
    command = shutil.which("git")
    if command is None:
        return None
    done = subprocess.run([command, "-C", str(FOLDER), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def machine_line() -> str:
    """The commit that is checked out, and the machine."""
    commit = git("rev-parse", "--short=9", "HEAD") or "unknown"
    return f"Commit {commit}. Machine: {', '.join(f'{name} {value}' for name, value in machine().items())}."


def processor() -> str:
    """The processor's name, clock included where Linux tells it; else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = [facts[name] for name in ("model name", "cpu MHz", "cache size") if name in facts]
    return f"{platform.machine()} ({' / '.join(parts)})" if parts else platform.machine()


def page_of(name: str) -> Path:
    """The page that a section belongs to."""
    word = name.partition("-")[0]
    return FOLDER / f"{TOPICS.get(name) or TOPICS.get(word, word)}.md"


def write_section(name: str, title: str, text: str, rows: str = "", plot: Path | None = None) -> None:
    """Write what a question found: the text, the table, the plot and the machine."""
    picture = "" if plot is None else f"![{title}](../figures/{plot.name})"
    replace_section(name, title, "\n\n".join(part for part in (text, rows, picture, machine_line()) if part))


def write_report(found: Mapping[str, tuple[str, str, str]], *, write: bool) -> None:
    """Print title, text and table of sections, by name, and write them when asked."""
    for name, (title, text, rows) in found.items():
        print(f"\n{title}\n\n{rows}")
        if write:
            write_section(name, title, text, rows)


def replace_section(name: str, title: str, body: str) -> None:
    """Put text between the marks of a section; a section that is new gets a title and stands above what was tried."""
    page, begin, end = page_of(name), f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    content = page.read_text(encoding="utf-8") if page.exists() else f"# {page.stem.replace('-', ' ').capitalize()}\n"
    if begin not in content:
        above, tried, below = content.partition(TRIED)
        title = title[:1].upper() + title[1:]
        content = f"{above.rstrip()}\n\n## {title}\n\n{begin}\n{end}\n{tried and chr(10)}{tried}{below}"
    before, rest = content.split(begin, 1)
    _, after = rest.split(end, 1)
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"{before}{begin}\n\n{body}\n\n{end}{after}", encoding="utf-8")


def sections_in(page: Path) -> dict[str, tuple[str, str]]:
    """Title and body of the marked sections of a page, by name."""
    pattern = r"## ([^\n]*)\n+<!-- (\S+): begin -->\n(.*?)\n<!-- \2: end -->"
    found = re.findall(pattern, page.read_text(encoding="utf-8"), re.DOTALL)
    return {name: (title, body.strip()) for title, name, body in found}


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a section's table, cells by heading."""
    _, body = sections_in(page_of(name))[name]
    head, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in body.splitlines() if line[:1] == "|")
    return [dict(zip(head, row, strict=True)) for row in rows]


def copy_sections(page: Path, names: Sequence[str]) -> None:
    """Copy sections from a page that another checkout has written to their pages here.

    Raises
    ------
    SystemExit
        When the page lacks one of them.
    """
    found = sections_in(page)
    if missing := [name for name in names if name not in found]:
        raise SystemExit(f"{page} has no section {', '.join(missing)}: it has {', '.join(found)}")
    for name in names:
        title, body = found[name]
        replace_section(name, title, body.replace("](figures/", "](../figures/"))
