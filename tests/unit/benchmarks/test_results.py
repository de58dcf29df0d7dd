from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import plots, results
from benchmarks.results import (
    TRIED,
    Row,
    at_most,
    copy_sections,
    replace_section,
    rows_of,
    sections_in,
    shown,
    table,
    write_section,
)
from tests.unit.benchmarks.conftest import Pages

HOME = Path(results.__file__).parent
PAGES = [HOME / "RESULTS.md", *sorted((HOME / "results").glob("*.md"))]


def test_the_verdict_is_of_the_figure_before_rounding() -> None:
    row = Row(("a",), 0.9001, at_most(0.9))
    assert shown(row.figure) == "0.9"
    assert row.verdict == "**no**"


def test_a_section_is_replaced_as_a_whole(pages: Pages) -> None:
    replace_section("one", "one thing", "old")
    replace_section("one", "another title", "new")
    assert pages.read() == "# One\n\n## One thing\n\n<!-- one: begin -->\n\nnew\n\n<!-- one: end -->\n"


def test_a_new_section_stands_above_what_was_tried(pages: Pages) -> None:
    pages.folder.mkdir()
    page = pages.folder / "one.md"
    page.write_text(f"# One\n\nFirst.\n\n{TRIED}\n\nThis.\n", encoding="utf-8")
    for _ in range(2):
        replace_section("one-two", "two", "text")
    marked = "## Two\n\n<!-- one-two: begin -->\n\ntext\n\n<!-- one-two: end -->"
    assert page.read_text() == f"# One\n\nFirst.\n\n{marked}\n\n{TRIED}\n\nThis.\n"


def test_what_is_written_can_be_read(pages: Pages) -> None:
    rows = table(("what:", "ratio"), [Row(("fit",), 0.5, at_most(0.9))])
    write_section("boosting-update", "updates", "About it.", rows, Path("plot.png"))
    assert rows_of("boosting-update") == [{"what": "fit", "ratio": "0.5", "mark": "at most 0.9", "met": "yes"}]
    ((title, body),) = sections_in(pages.folder / "online-boosting.md").values()
    assert title == "Updates"
    assert body.startswith(f"About it.\n\n{rows}\n\n![updates](../figures/plot.png)\n\nCommit ")


def test_sections_are_copied_from_a_page_of_another_checkout(pages: Pages, tmp_path: Path) -> None:
    other = tmp_path / "RESULTS.md"
    other.write_text(
        "# Results\n\n## Against before: http\n\n"
        "<!-- compare-http: begin -->\n\n![a](figures/a.png)\n\n<!-- compare-http: end -->\n\n"
        "## Memory: what a server keeps\n\n<!-- memory: begin -->\ntext\n<!-- memory: end -->\n",
        encoding="utf-8",
    )
    copy_sections(other, ["compare-http", "memory"])
    assert sections_in(pages.folder / "compare.md") == {
        "compare-http": ("Against before: http", "![a](../figures/a.png)")
    }
    assert sections_in(pages.folder / "memory.md") == {"memory": ("Memory: what a server keeps", "text")}
    with pytest.raises(SystemExit, match="no section other"):
        copy_sections(other, ["other"])


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
    assert source in (results.FIGURES / f"{name}.svg").read_text(encoding="utf-8"), (
        "draw it: python -m benchmarks plots"
    )
    assert any(f"figures/{name}.svg" in page.read_text(encoding="utf-8") for page in PAGES)
