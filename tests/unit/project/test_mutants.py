"""Faults are drawn alike each time, and put where they were found."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.faults import Fault, faults_of, make, put, read

SOURCE = '''"""Text."""


def above(x: int, y: int = 1) -> bool:
    """Whether x > y + 1."""
    if not (x > y):
        raise ValueError(f"{x + 1}")
    return x > y + 1 and done(True)
'''


def test_what_can_be_changed_and_is_python(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(SOURCE)
    faults = list(faults_of(tmp_path / "code.py", "kernels", tmp_path))
    assert {fault.instead for fault in faults} == {
        "if not (x >= y):",
        "return x >= y + 1 and done(True)",
        "return x > y - 1 and done(True)",
        "return x > y + 2 and done(True)",
        "return x > y + 1 or done(True)",
        "return x > y + 1 and done(False)",
    }
    for fault in faults:
        ast.parse(SOURCE.replace(fault.line, fault.instead))


def test_a_fault_is_put_where_its_function_is(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "elsewhere.py").write_text(SOURCE)
    fault = Fault("kernels", "core/code.py", "Other.above", "return x > y + 1 and done(True)", "return False")
    assert put(fault, tmp_path) == tmp_path / "core" / "elsewhere.py"
    assert (tmp_path / "core" / "elsewhere.py").read_text() == SOURCE.replace(fault.line, fault.instead)
    assert put(fault, tmp_path) is None


@pytest.mark.long
def test_the_list_is_drawn_from_its_seed_and_is_python() -> None:
    faults = make(1, 20, 5, 2)
    assert faults == make(1, 20, 5, 2)
    assert sum(fault.is_drawn for fault in faults) == 5
    drawn = [fault.area for fault in faults if fault.is_drawn]
    assert max(map(drawn.count, drawn)) <= 2
    kept = read()
    assert len(kept) == 200
    assert sum(fault.is_drawn for fault in kept) == 20
