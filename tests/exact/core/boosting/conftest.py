"""Says at the end of a run how many histories were checked."""

import pytest

from tests.exact.core.boosting.tally import TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tally of `tally.py`."""
    if not TALLY.histories:
        return
    terminalreporter.section("boosted trees")
    terminalreporter.line(
        f"{TALLY.histories} random histories: after each of {TALLY.operations} operations a fresh fit's digest and "
        f"answers (exact kind), or all sums counted anew (online); {TALLY.checks} checks"
    )
    terminalreporter.line(", ".join(f"{name} {n}" for name, n in sorted(TALLY.seen.items())))
    terminalreporter.line("updates: " + ", ".join(f"{name} {n}" for name, n in sorted(TALLY.updates.items())))
