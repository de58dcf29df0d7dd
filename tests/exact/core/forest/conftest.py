"""Says at the end of a run how many histories were compared."""

import pytest

from tests.exact.core.forest.player import TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tally of `tests.exact.core.forest.player`."""
    if not TALLY.histories:
        return
    terminalreporter.section("exactness")
    terminalreporter.line(
        f"{TALLY.histories} random histories of {TALLY.operations} operations: invariants checked after each, "
        f"{TALLY.comparisons} comparisons of digest, trees and predictions with fresh fits and the oracle, bit for bit"
    )
    terminalreporter.line(", ".join(f"{name} {n}" for name, n in sorted(TALLY.seen.items())))
