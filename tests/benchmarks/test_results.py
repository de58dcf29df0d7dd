from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import Mark, Row, at_least, at_most, shown, table, write_section


@pytest.mark.parametrize(
    ("mark", "figure", "met"),
    [
        (at_most(0.9), 0.9, True),
        (at_most(0.9), 0.9000001, False),
        (at_least(12), 12.0, True),
        (at_least(12), 11.999999, False),
    ],
)
def test_a_mark_is_met_on_the_right_side_of_its_limit(mark: Mark, figure: float, met: bool) -> None:
    assert mark.met(figure) is met


def test_the_verdict_is_of_the_figure_before_rounding() -> None:
    row = Row(("a",), 0.9001, at_most(0.9))
    assert shown(row.figure) == "0.9"
    assert row.verdict == "**no**"


def test_a_table_shows_marks_only_when_there_are_any() -> None:
    plain = table(("what:", "ratio"), [Row(("fit",), 0.5)])
    assert plain == "| what | ratio |\n|---|---:|\n| fit | 0.5 |"
    marked = table(("what:", "ratio"), [Row(("fit",), 0.5, at_most(0.9)), Row(("add",), 1234.0)])
    assert marked.splitlines() == [
        "| what | ratio | mark | met |",
        "|---|---:|---|---|",
        "| fit | 0.5 | at most 0.9 | yes |",
        "| add | 1,234 |  |  |",
    ]


def test_a_section_is_replaced_as_a_whole(results_file: Path) -> None:
    write_section("one", "new")
    assert results_file.read_text() == "# Results\n\n## One\n\n<!-- one: begin -->\nnew\n<!-- one: end -->\n"


def test_a_section_that_is_not_there_is_added_at_the_end(results_file: Path) -> None:
    before = results_file.read_text()
    for _ in range(2):
        write_section("two", "text", "Two")
    added = "\n## Two\n\n<!-- two: begin -->\ntext\n<!-- two: end -->\n"
    assert results_file.read_text() == before + added
