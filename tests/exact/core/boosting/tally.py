"""Counts what the histories have checked, for the end of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What has been checked so far; printed at the end of the run."""

    histories: int = 0
    operations: int = 0
    checks: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # operations by name
    updates: Counter[str] = field(default_factory=Counter)  # what updates came to


TALLY = Tally()
