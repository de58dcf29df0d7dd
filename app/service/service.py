"""A service in rooms: one model, and all that may be done with it. No HTTP here.

    model       the live model: state, lock, threads      lifecycle   start, lead, follow, stop
    disk        journal, snapshots, ledger                recovery    restore, and files that come in
    questions   predictions, samples                      jobs        verify, scrub, fit, exports
    changes     additions, deletions, restrictions        evidence    receipts, states, proofs, the log
    erasure     snapshots, erasures, retention            outbox      webhooks, requests of OpenDSR

`build` makes one. Each room gets what it needs in its constructor; only HTTP and tests hold the whole record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oubli.app.ledger.entries import DISCLOSURE_LIMITS
from oubli.app.service.changes.changes import Changes
from oubli.app.service.erasure.checkpoint import Erasing
from oubli.app.service.evidence.states import Evidence
from oubli.app.service.jobs.model_jobs import Jobs
from oubli.app.service.lifecycle import Lifecycle
from oubli.app.service.measurements import Measurements
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.model.questions import Questions
from oubli.app.service.outbox.subject_requests import Outbox
from oubli.app.service.recovery.rebuild import Rebuilder
from oubli.app.times import elapsed
from oubli.core.data.schema import Task


@dataclass(frozen=True, eq=False, repr=False)
class Service:
    """The rooms of a service; see the module."""

    model: LiveModel
    disk: Disk
    questions: Questions
    changes: Changes
    erasure: Erasing
    recovery: Rebuilder
    jobs: Jobs
    evidence: Evidence
    outbox: Outbox
    lifecycle: Lifecycle

    def describe(self) -> dict[str, Any]:
        """Return what is known of the model as a whole; `Model` of `oubli.api` documents the fields."""
        self.model.state.require_started()
        state, model, schema = self.model.state, self.model.state.model, self.model.state.model.schema_
        mode = model.disclosure_
        return {
            "kind": model.kind,
            "guarantee": model.guarantee,
            "disclosure": mode,
            "disclosure_limits": DISCLOSURE_LIMITS[mode],
            "task": str(model.task),
            # A seed that was drawn rather than given is part of what decides the predictions. With low disclosure it
            # is not returned: anyone who knows it can choose near rows whose answers change most.
            "parameters": {**model.parameters_of_model(), "random_state": model.seed_ if mode == "standard" else None},
            "features": [
                {"name": c.name, "type": str(c.type), "dtype": str(c.dtype)}
                | ({} if c.unit is None else {"unit": c.unit})
                for c in schema.columns
            ],
            "understood": self.questions.inspector.understood,
            "label": {"name": schema.label_name, "type": str(schema.label_type)},
            "classes": model.samples_.classes.classes_array().tolist() if model.task == Task.CLASSIFICATION else None,
            "closed_classes": schema.classes,
            "max_classes": schema.max_classes if model.task == Task.CLASSIFICATION else None,
            "extra_columns": schema.extra_columns,
            "missing_columns": schema.missing_columns,
            "n_samples": model.n_samples_,
            "n_restricted": len(model.samples_.restricted),
            "model_version": state.version,
            "lazy_tags": model.n_lazy_tags_,
            "mutations_since_scrub": None if model.guarantee == "exact" else model.n_mutations_since_scrub_,
            "memory_bytes": model.nbytes_,
            "durable": self.disk.is_durable,
            "pending_erasures": len(state.pending),
            "overdue_erasures": self.erasure.erasures.deadline.n_overdue(),
            "expiry_paused": self.erasure.retention.paused,
            "changes": "accepted" if state.stopped is None else "stopped",
            "changes_stopped": state.stopped,
        }

    def measure(self) -> Measurements:
        """Return what the service can be measured by now; short, and answered in every phase."""
        state, model, disk, writer = self.model.state, self.model.state.model, self.disk, self.changes.writer
        erasures, deadline = self.erasure.erasures, self.erasure.erasures.deadline
        is_usable = model.is_usable and elapsed() < self.lifecycle.role.answers_until
        newest, is_current = disk.newest_snapshot, disk.storage.is_current(state.seq)
        counts, now = self.outbox.deliveries.counts, self.model.clock.now_ms()
        return Measurements(
            phase=state.phase,
            kind=model.kind,
            task=str(model.task),
            guarantee=model.guarantee,
            model_version=state.version,
            n_samples=model.n_samples_ if is_usable else 0,
            model_bytes=model.nbytes_ if is_usable else 0,
            lazy_tags=model.n_lazy_tags_ if is_usable else 0,
            resolved_tags=state.n_resolved,
            is_ready=state.phase == "ready" and is_usable,
            is_durable=disk.is_durable,
            is_expiry_paused=self.erasure.retention.paused is not None,
            stopped=state.stopped,
            waiting=writer.n_waiting + self.model.lock.waiting,
            most_waiting=self.model.lock.max_queue,
            journal_records=disk.storage.journal.n_records,
            journal_bytes=disk.storage.journal.n_bytes,
            journal_oldest_at=disk.storage.journal.oldest_at,
            commits=writer.commits.copy(),
            snapshot_at=None if newest is None else newest.created_at.timestamp(),
            snapshot_lag=0 if newest is None or is_current else state.seq - newest.facts.seq,
            ledger_lag=disk.database.n_due,
            pending_erasures=len(state.pending),
            overdue_erasures=deadline.n_overdue(),
            late_erasures=erasures.n_late,
            oldest_erasure=deadline.longest_wait(),
            erasure_deadline=deadline.seconds,
            scrubbed_at=self.erasure.checkpointer.scrubbed_at,
            check=self.jobs.last_check,
            deliveries_due=counts.due,
            deliveries_dead=counts.dead,
            deliveries_oldest=0.0 if counts.oldest_ms is None else max(0, now - counts.oldest_ms) / 1000,
            deliveries_arrived=self.outbox.deliveries.n_delivered,
            deliveries_failed=self.outbox.deliveries.n_failed,
            standing=self.lifecycle.role.measure(state),
        )
