"""Says at the end of a run how many histories were checked."""

import pytest

from tests.exact.core.tree.tally import TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tally of `tally.py`."""
    if not TALLY.histories:
        return
    terminalreporter.section("the fully dynamic tree")
    terminalreporter.line(
        f"{TALLY.histories} random histories: after each of {TALLY.updates} updates and queries the oracle's tree, "
        f"node by node, and sizes within 1 +- epsilon; {TALLY.feasible} trees feasible by Definition 3.1"
    )
    terminalreporter.line(", ".join(f"{name} {n}" for name, n in sorted(TALLY.seen.items())))
