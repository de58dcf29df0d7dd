"""Figures are of a commit, and what they measure may have changed since."""

from __future__ import annotations

import warnings

import pytest

from benchmarks.commits import MEASURED, all_outdated, outdated
from benchmarks.results import FOLDER, git


def test_it_is_known_what_each_page_measures() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == set(MEASURED)
    for path in {path for paths in MEASURED.values() for path in paths}:
        assert (FOLDER.parents[1] / path).exists(), path


@pytest.mark.filterwarnings("default")  # they are shown, and are no errors
def test_sections_that_are_older_than_what_they_measure_are_shown() -> None:
    for line in all_outdated():
        warnings.warn(line, stacklevel=1)
    if not (head := git("rev-parse", "HEAD")) or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this checkout has no history")
    changed = git("log", "-1", "--format=%h", "--", ":/core/forest")
    assert outdated("operations", f"Commit {head}. Machine: cpus 2") is None
    assert outdated("operations", f"Commit {git('rev-parse', f'{changed}^')}. Machine: cpus 2") == changed
