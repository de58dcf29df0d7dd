"""Pages of results: how they are written and read, and of which commits their figures are."""

import re
import warnings
from pathlib import Path

import pytest

from benchmarks import plots, results
from benchmarks.commits import MEASURED, all_outdated, outdated
from benchmarks.results import Row, at_most, git, rows_of, sections_in, shown, table, write_section

HOME = Path(results.__file__).parent
PAGES = [HOME / "RESULTS.md", *sorted((HOME / "results").glob("*.md"))]


def test_the_verdict_is_of_the_figure_before_rounding() -> None:
    row = Row(("a",), 0.9001, at_most(0.9))
    assert (shown(row.figure), row.verdict) == ("0.9", "**no**")


def test_what_is_written_can_be_read(pages: Path) -> None:
    rows = table(("what:", "ratio"), [Row(("fit",), 0.5, at_most(0.9))])
    for text in ("Before.", "About it."):  # a section is replaced as a whole
        write_section("boosting-update", "updates", text, rows, Path("plot.png"))
    assert rows_of("boosting-update") == [{"what": "fit", "ratio": "0.5", "mark": "at most 0.9", "met": "yes"}]
    ((title, body),) = sections_in(pages / "online-boosting.md").values()
    assert title == "Updates"
    assert body.startswith(f"About it.\n\n{rows}\n\n![updates](../figures/plot.png)\n\nCommit ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_whole(page: Path) -> None:
    """Sections stand in the page of their topic, what is linked is there, and what is missed is told."""
    text = page.read_text(encoding="utf-8")
    assert text.count(": begin -->") == len(sections_in(page))
    assert {results.page_of(name) for name in sections_in(page)} <= {page}
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).is_file(), target
    front = PAGES[0].read_text(encoding="utf-8")
    assert page == PAGES[0] or f"(results/{page.name})" in front.partition("## Topics")[2]
    missed = front.partition("## What is still missed")[2].partition("## Machine")[0]
    assert "**no**" not in text or f"(results/{page.name})" in missed


@pytest.mark.parametrize("name", plots.PLOTS)
def test_plots_are_drawn_from_the_tables_as_they_are(name: str, tmp_path: Path) -> None:
    plot, path = plots.PLOTS[name], tmp_path / "plot.svg"
    source = plots.source_of(plot)
    plots.draw(plot.make(), path, source)
    assert source in path.read_text(encoding="utf-8")
    drawn = (results.FIGURES / f"{name}.svg").read_text(encoding="utf-8")
    assert source in drawn, "draw it: python -m benchmarks plots"
    assert any(f"figures/{name}.svg" in page.read_text(encoding="utf-8") for page in PAGES)


def test_it_is_known_what_each_page_measures() -> None:
    assert {page.stem for page in PAGES[1:]} == set(MEASURED)
    for path in {path for paths in MEASURED.values() for path in paths}:
        assert (HOME.parent / path).exists(), path


@pytest.mark.filterwarnings("default")  # they are shown, and are no errors
def test_sections_that_are_older_than_what_they_measure_are_shown() -> None:
    for line in all_outdated():
        warnings.warn(line, stacklevel=1)
    if not (head := git("rev-parse", "HEAD")) or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this checkout has no history")
    changed = git("log", "-1", "--format=%h", "--", *(f":/{path}" for path in MEASURED["operations"]))
    assert outdated("operations", f"Commit {head}. Machine: cpus 2") is None
    assert outdated("operations", f"Commit {git('rev-parse', f'{changed}^')}. Machine: cpus 2") == changed
