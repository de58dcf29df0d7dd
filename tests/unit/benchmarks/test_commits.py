from __future__ import annotations

import warnings

import pytest

from benchmarks.commits import MEASURED, all_outdated, outdated
from benchmarks.results import FOLDER, git


def test_it_is_known_what_each_page_measures() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} <= set(MEASURED)
    for path in {path for paths in MEASURED.values() for path in paths}:
        assert (FOLDER.parents[1] / path).exists(), path


def test_a_section_is_outdated_when_what_it_measures_has_changed() -> None:
    if not (head := git("rev-parse", "HEAD")) or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this checkout has no history")
    changed = git("log", "-1", "--format=%h", "--", ":/core/forest")
    before = git("rev-parse", f"{changed}^")
    assert outdated("operations", f"Commit {head}. Machine: cpus 2") is None
    assert outdated("operations", f"Commit {before}. Machine: cpus 2") == changed
    assert outdated("operations", "Commit 123456789. Machine: cpus 2") is None
    assert outdated("operations", "Machine: cpus 2") is not None


@pytest.mark.filterwarnings("default")  # they are shown, and are no errors
def test_sections_that_are_outdated_are_shown() -> None:
    lines = list(all_outdated())
    assert [line for line in lines if line.endswith("the beginning")] == [
        "compare.md: compare-servers is older than the beginning"  # written before sections named their commits
    ]
    for line in lines:
        warnings.warn(line, stacklevel=1)
