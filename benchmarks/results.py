"""RESULTS.md: one marked section a benchmark, replaced as a whole; and the machine it was made on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
PACKAGES = ("numpy", "numba", "scikit-learn", "pandas")


def machine() -> dict[str, str]:
    """Facts about the machine and the versions that results depend on."""
    facts = {"cpus": str(os.cpu_count()), "processor": platform.machine(), "python": platform.python_version()}
    return facts | {name: version(name) for name in PACKAGES}


def write_section(name: str, text: str) -> None:
    """Put the text between the marks of a section."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    content = RESULTS.read_text(encoding="utf-8")
    before, rest = content.split(begin, 1)
    _, after = rest.split(end, 1)
    RESULTS.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
