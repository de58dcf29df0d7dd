"""What the journal holds, made again on a model from a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from oubli.app.errors import StartError
from oubli.app.service.plans import attach_details, make_replacement
from oubli.app.service.training import another_estimator, refit
from oubli.app.storage.journal import Record
from oubli.app.storage.models import ServedModel
from oubli.app.storage.records import AddBody, Body, DeleteBody, FitBody, ReplaceBody, decode
from oubli.core.errors import OubliError

EXPORT = "export"  # the type of the ledger's entry of a snapshot that was handed out


@dataclass(slots=True)
class Replayed:
    """A model brought up to the journal's end.

    Attributes
    ----------
    model, version, next_id, exports, seq
        See `oubli.app.service.state.Live`.
    n_records
        How many records were made again.
    """

    model: ServedModel
    version: int
    next_id: int
    exports: int
    seq: int
    n_records: int = 0

    def make(self, records: Iterable[Record]) -> None:
        """Make records again, in their order.

        Raises
        ------
        StartError
            When the model refuses one, or a number is missing.
        """
        for record in records:
            if record.seq != self.seq + 1:
                raise StartError(
                    f"the journal goes on with record {record.seq} after {self.seq}: a segment is missing. Restore "
                    "all files of the data directory from one backup"
                )
            try:
                self._make_one(record)
            except (OubliError, ValueError, KeyError, TypeError):
                # The text could hold what was submitted.
                raise StartError(
                    f"record {record.seq} of the journal does not fit the model: the files of the data directory are "
                    "not of one time. Restore all of them from one backup"
                ) from None
            self.seq, self.version = record.seq, record.version
            self.n_records += 1

    def _make_one(self, record: Record) -> None:
        if record.body:
            self._change(decode(record.body))
        elif record.notes:
            self.exports += _count_exports(record.notes)

    def _change(self, body: Body) -> None:
        model = self.model
        match body:
            case AddBody():
                model.add_prepared(model.samples_.prepare(body.rows, body.labels, body.ids))
                attach_details(model, body, self.exports)
                self.next_id = max(self.next_id, body.next_id)
            case DeleteBody():
                model.delete(body.ids)
            case ReplaceBody():
                store = model.samples_
                relearned = not store.same_content(body.id, store.prepare([body.row], [body.label]), 0)
                make_replacement(model, body, relearned=relearned, origin=self.exports)
            case FitBody():
                self.model = refit(another_estimator(body.kind, body.parameters, model), model.samples_)


def _count_exports(notes: bytes) -> int:
    return sum(entry["type"] == EXPORT for entry in orjson.loads(notes).get("entries", ()))
