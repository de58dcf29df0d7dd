"""ARCHITECTURE.md follows a deletion through the files: the list is what a trace of one finds."""

import re
import sys

from tests.serving import ROOT, output_of

TITLE = "## One deletion, from the socket to the leaf"


def test_the_list_is_what_a_trace_finds() -> None:
    """The files that a deletion on the fast path enters, in the order in which it does."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition(TITLE)[2].partition("\n## ")[0]
    described = re.findall(r"^\| `((?:app|core)/[a-z_/]+\.py)`", section, re.MULTILINE)
    told = output_of(sys.executable, "benchmarks/trace_write.py", "--files")
    part = told.partition("DELETE, fast path")[2].partition("POST, ordinary path")[0]
    assert described == re.findall(r"^ {4}(\S+)", part, re.MULTILINE)
    assert len(described) > 10
