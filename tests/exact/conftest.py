"""Hypothesis and arithmetic for the tests of `core`; says at the end of a run how many histories were played."""

import pytest

from tests.histories.player import TALLIES
from tests.interpreted import _arithmetic_as_compiled  # noqa: F401


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the player of histories has checked."""
    for name, tally in sorted(TALLIES.items()):
        terminalreporter.section(f"histories: {name}")
        terminalreporter.line(f"{tally.histories} of {tally.operations.total()} operations, {tally.checks} checks")
        for found in filter(None, (tally.operations, tally.outcomes)):
            terminalreporter.line(", ".join(f"{what} {n}" for what, n in sorted(found.items())))
