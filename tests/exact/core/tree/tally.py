"""Counts what the histories have checked, for the end of the run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """What has been checked so far; printed at the end of the run."""

    histories: int = 0
    updates: int = 0
    feasible: int = 0  # trees found feasible
    seen: dict[str, int] = field(default_factory=dict)


TALLY = Tally()
