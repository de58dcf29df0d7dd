"""ARCHITECTURE.md follows a deletion through the files: the list is what a trace of one finds."""

import re
import sys

from tests.serving import ROOT, output_of

TITLE = "## One deletion, from the socket to the leaf"


def described() -> list[str]:
    """The files that the section is about, in its order."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition(TITLE)[2].partition("\n## ")[0]
    return re.findall(r"^\| `((?:app|core)/[a-z_/]+\.py)`", section, re.MULTILINE)


def traced() -> list[str]:
    """The files that a deletion on the fast path enters, in the order in which it does."""
    told = output_of(sys.executable, "benchmarks/trace_write.py", "--files")
    part = told.partition("DELETE, fast path")[2].partition("POST, ordinary path")[0]
    return re.findall(r"^ {4}(\S+)", part, re.MULTILINE)


def test_the_list_is_what_a_trace_finds() -> None:
    assert described() == traced()
    assert len(described()) > 10
