"""The queue of deliveries: states of receipts and requests, by target, in the ledger's file.

    number   target    subject     state       status
      1      webhook   receipt 1   unlearned   settled     it arrived; the row stays until the last state has
      2      webhook   receipt 2   unlearned   dead        given up, and with it what follows of the same receipt
      3      webhook   receipt 1   erased      due         sent next
      4      webhook   receipt 2   erased      dead

Rows come from the notes of the journal, as everything in this file does, and so does what becomes of them: a start
finds the queue as it was left. The states of one subject are sent to a target in the order of their numbers, one after
the other has arrived. A subject is the id of a receipt or of a request, both of them random; a row holds nothing else
but the case number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import NamedTuple

import orjson

from oubli.app.ledger.entries import DeliveryNotes, SubjectRequest
from oubli.app.ledger.file import COLUMNS, checksum, insert

LAST_STATES = ("erased", "completed", "cancelled")


class Delivery(NamedTuple):
    """A state that a target is to be told of.

    Attributes
    ----------
    number
        Its place in the queue.
    target
        A name of `service.deliveries`, or a URL of the settings.
    subject
        The receipt or the request.
    ref
        The case number of the receipt.
    state
        The new one.
    at_ms
        When it was reached, in milliseconds since 1970.
    reason
        Why it was given up; empty when it was not.
    """

    number: int
    target: str
    subject: str
    ref: str | None
    state: str
    at_ms: int
    reason: str


class Counts(NamedTuple):
    """How many states wait and how many were given up, and since when the oldest waits, in milliseconds since 1970."""

    due: int
    dead: int
    oldest_ms: int | None


_SELECT = "SELECT number, target, subject, ref, state, at_ms, reason FROM deliveries"


class DeliveryTable:
    """The table; writes are inside of a transaction of the ledger's database, whose thread it belongs to.

    Parameters
    ----------
    connection
        Of the ledger's file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    # --- writing

    def add(self, targets: Iterable[str], subject: str, ref: str | None, state: str, at_ms: int) -> None:
        """Add a state for each target, unless it has been told of it before."""
        for target in targets:
            dead = self._connection.execute(
                "SELECT reason FROM deliveries WHERE target = ? AND subject = ? AND status = 'dead' LIMIT 1",
                (target, subject),
            ).fetchone()
            status, reason = ("due", "") if dead is None else ("dead", dead[0])
            cells = (target, subject, ref, state, status, reason, at_ms)
            insert(self._connection, "deliveries", cells, instead="OR IGNORE")

    def note(self, notes: DeliveryNotes) -> None:
        """Take in what became of deliveries."""
        for target, subject, state in notes.settled:
            if state in LAST_STATES:
                self._connection.execute("DELETE FROM deliveries WHERE target = ? AND subject = ?", (target, subject))
            else:
                self._set("settled", "", "target = ? AND subject = ? AND state = ?", target, subject, state)
        for target, subject, reason in notes.dead:
            self._set("dead", reason, "target = ? AND subject = ? AND status = 'due'", target, subject)
        for subject in notes.revived:
            # They are given up after a time of waiting, which begins again.
            self._set("due", "", "subject = ? AND status = 'dead'", subject, at_ms=notes.at_ms)
        for request_id, state in notes.ended:
            self._end_request(request_id, state, notes.at_ms)

    def add_request(self, request: SubjectRequest) -> None:
        """Keep a request, and note the callbacks that it names."""
        self._write(request, "OR IGNORE")
        state = "in_progress" if request.state == "open" else request.state
        self.add(request.callbacks, request.id, None, state, request.received_ms)

    def _end_request(self, request_id: str, state: str, at_ms: int) -> None:
        request = self.request(request_id)
        if request is not None and request.state == "open":
            self._write(replace(request, state=state), "OR REPLACE")
            self.add(request.callbacks, request_id, None, state, at_ms)

    def _write(self, request: SubjectRequest, how: str) -> None:
        values = asdict(request) | {"callbacks": orjson.dumps(request.callbacks).decode()}
        cells = tuple(values.values())  # in the order of the columns
        insert(self._connection, "requests", cells, instead=how)

    def _set(self, status: str, reason: str, where: str, *values: str, at_ms: int | None = None) -> None:
        found = self._connection.execute(f"{_SELECT} WHERE {where}", values).fetchall()
        for one in [Delivery(*row) for row in found]:
            cells = (one.target, one.subject, one.ref, one.state, status, reason, one.at_ms if at_ms is None else at_ms)
            self._connection.execute(
                "UPDATE deliveries SET status = ?, reason = ?, at_ms = ?, checksum = ? WHERE number = ?",
                (*cells[4:], checksum(*cells), one.number),
            )

    # --- reading

    def due(self, target: str, after: int, limit: int) -> list[Delivery]:
        """Return what a target is to be told, with higher numbers, in order."""
        return self._found("target = ? AND status = 'due' AND number > ? ORDER BY number LIMIT ?", target, after, limit)

    def due_of(self, target: str, subject: str) -> list[Delivery]:
        """Return what a target is to be told of one subject, in order."""
        return self._found("target = ? AND subject = ? AND status = 'due' ORDER BY number", target, subject)

    def dead(self, after: int, limit: int) -> list[Delivery]:
        """Return what was given up, with higher numbers, in order."""
        return self._found("status = 'dead' AND number > ? ORDER BY number LIMIT ?", after, limit)

    def n_dead_of(self, subject: str) -> int:
        """Return how many states of a subject were given up."""
        return len(self._found("status = 'dead' AND subject = ?", subject))

    def counts(self, target: str) -> Counts:
        """Return how much there is for a target."""
        (due,) = self._connection.execute(
            "SELECT count(*) FROM deliveries WHERE target = ? AND status = 'due'", (target,)
        ).fetchone()
        (dead,) = self._connection.execute(
            "SELECT count(*) FROM deliveries WHERE target = ? AND status = 'dead'", (target,)
        ).fetchone()
        oldest = self.due(target, 0, 1)
        return Counts(due, dead, oldest[0].at_ms if oldest else None)

    def request(self, request_id: str) -> SubjectRequest | None:
        """Return a request; None when there is none."""
        return next(self._requests("id = ?", request_id), None)

    def open_requests(self) -> list[SubjectRequest]:
        """Return the requests whose bundle is neither made nor given up."""
        return list(self._requests("receipt IS NULL AND state = ?", "open"))

    def requests_of(self, receipt: str) -> list[SubjectRequest]:
        """Return the requests that a receipt was made for."""
        return list(self._requests("receipt = ?", receipt))

    def _requests(self, where: str, value: str) -> Iterator[SubjectRequest]:
        rows = self._connection.execute(f"SELECT {COLUMNS['requests']} FROM requests WHERE {where}", (value,))  # noqa: S608
        for id_, kind, regulation, body, received_ms, callbacks, receipt, state in rows.fetchall():
            yield SubjectRequest(id_, kind, regulation, body, received_ms, orjson.loads(callbacks), receipt, state)

    def _found(self, where: str, *values: str | int) -> list[Delivery]:
        return [Delivery(*row) for row in self._connection.execute(f"{_SELECT} WHERE {where}", values)]
