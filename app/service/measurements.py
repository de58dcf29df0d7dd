"""What a running service can be measured by, at one instant: numbers and words of this program, nothing of a sample."""

from __future__ import annotations

from typing import NamedTuple

from oubli.app.errors import StopReason
from oubli.app.service.model.state import Phase
from oubli.app.service.roles import Standing
from oubli.app.times import Histogram


class Check(NamedTuple):
    """The last comparison with a fresh fit: when it ended, in seconds since 1970, its version, and what it said."""

    at: float
    model_version: int
    is_ok: bool


class Measurements(NamedTuple):
    """A service at one instant. Times are in seconds since 1970; None where there is nothing to tell.

    Attributes
    ----------
    phase
        Of the server.
    kind, task, guarantee
        Of the model.
    model_version, n_samples
        See `Service.describe`.
    model_bytes
        Bytes of trees and samples.
    lazy_tags, resolved_tags
        Tags that wait, and those that were resolved since the start.
    is_ready, is_durable
        Whether requests are welcome, and whether what is answered survives the process.
    is_expiry_paused
        Whether samples that are due do not expire until it is confirmed.
    stopped
        Why nothing is changed at present.
    waiting, most_waiting
        Requests that wait for the model, and how many may.
    journal_records, journal_bytes, journal_oldest_at
        What the journal holds since it was last divided, and since when.
    commits
        How long records took until they were on the disk.
    snapshot_at, snapshot_lag
        When the newest snapshot was written, and how many records are newer.
    ledger_lag
        Records of the journal that are not in the ledger's database.
    pending_erasures, overdue_erasures, late_erasures
        Erasures that are not finished, those of them that should be, and those that were finished too late.
    oldest_erasure
        How many seconds the oldest of them has waited; 0 when there is none.
    erasure_deadline
        How many seconds an erasure may take.
    scrubbed_at
        When all files were last rewritten without anything of what was unlearned.
    check
        The last comparison with a fresh fit.
    deliveries_due, deliveries_dead
        States that wait to be sent, and those that were given up.
    deliveries_oldest
        How many seconds the oldest of those that are to be told has waited; 0 when there is none.
    deliveries_arrived, deliveries_failed
        Attempts since the start.
    standing
        How the server stands to other nodes; None when it is alone.
    """

    # Many fields: each is a series of `GET /metrics`.
    phase: Phase
    kind: str
    task: str
    guarantee: str
    model_version: int
    n_samples: int
    model_bytes: int
    lazy_tags: int
    resolved_tags: int
    is_ready: bool
    is_durable: bool
    is_expiry_paused: bool
    stopped: StopReason | None
    waiting: int
    most_waiting: int
    journal_records: int
    journal_bytes: int
    journal_oldest_at: float | None
    commits: Histogram
    snapshot_at: float | None
    snapshot_lag: int
    ledger_lag: int
    pending_erasures: int
    overdue_erasures: int
    late_erasures: int
    oldest_erasure: float
    erasure_deadline: float
    scrubbed_at: float | None
    check: Check | None
    deliveries_due: int
    deliveries_dead: int
    deliveries_oldest: float
    deliveries_arrived: int
    deliveries_failed: int
    standing: Standing | None = None
