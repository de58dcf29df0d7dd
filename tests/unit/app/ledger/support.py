"""A ledger with its two sides, and a time that tests set."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.entries import Receipt, entry_notes, make_entry
from oubli.app.ledger.keys import LedgerKeys
from oubli.app.ledger.ledger import Ledger
from tests.closing import closed_at_the_end

START = 1_763_700_000_000  # in November 2025
DEADLINE = 60_000


@dataclass
class WholeLedger:
    """Makes and folds in one step, as a service does in two; keeps what a journal would."""

    path: Path | None
    keys: LedgerKeys
    now: int = START
    version: int = 0
    records: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = closed_at_the_end(LedgerDatabase(self.path, self.keys))
        self.auditor = Ledger(self.store, self.keys, lambda: self.now)

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def rotate(self, kind: Literal["signing", "hashing"]) -> None:
        """Make a new key current, which is done while no server runs."""
        self.keys.rotate(kind)
        self.auditor = Ledger(self.store, self.keys, lambda: self.now)

    def record(self, notes: bytes, *, fold: bool = True) -> None:
        last = self.records[-1][0] if self.records else self.store.applied_seq()
        self.records.append((last + 1, notes))
        if fold:
            self.store.fold_many(self.records[-1:])

    def unlearned(self, *ids: str, fold: bool = True, targets: Sequence[str] | None = None, **more: Any) -> Receipt:
        self.now += 10
        self.version += bool(ids)
        times = {"received_at": self.now - 1, "unlearned_at": self.now, "deadline_ms": DEADLINE}
        numbers = {"requested": len(ids), "absent": 0, "exported": 0, "model_version": self.version}
        said = {"kind": "deletion", "guarantee": "exact", "disclosure": "low", "by": "ids", "ref": None}
        asked: dict[str, Any] = {"unlearned_ids": ids, "targets": ids if targets is None else targets, **said}
        receipt, notes, _ = self.auditor.unlearned(**{**asked, **numbers, **times, **more})
        self.record(notes, fold=fold)
        return receipt

    def unlearned_before(self, *ids: str, lacking: Collection[str]) -> Receipt:
        """Fold the entry that an earlier version would have made, which lacked some fields."""
        self.event("restore")  # the key is told before
        newer = self.unlearned(*ids, fold=False)
        (entry,) = orjson.loads(self.records.pop()[1])["entries"]
        older = make_entry(self.store.head(), "unlearned", entry["at"], fields_of(entry, lacking))
        self.record(entry_notes([{**older, "keyed": entry["keyed"]}]))
        self.auditor.rewind(self.store.head())
        return self.now_of(newer)

    def erased(self, *receipts: Receipt, fold: bool = True) -> None:
        self.now += 10
        names = [receipt.id for receipt in receipts]
        late = [name for name in names if self.is_overdue(name)]
        self.record(self.auditor.erased(names, erased_at=self.now, deadline_ms=DEADLINE, overdue=late), fold=fold)

    def event(self, kind: str, /, *, fold: bool = True, **fields: Any) -> None:
        self.now += 10
        self.record(self.auditor.event(kind, fields), fold=fold)

    def now_of(self, receipt: Receipt) -> Receipt:
        found = self.store.receipt(receipt.id, self.is_overdue)
        assert found is not None
        return found

    def is_overdue(self, receipt_id: str) -> bool:
        """Whether it waits too long, by a clock that no one sets."""
        waiting = {one.receipt_id: one.acknowledged_ms for one in self.store.pending()}
        return self.now > waiting.get(receipt_id, self.now) + DEADLINE

    def entries(self) -> list[dict[str, Any]]:
        return self.store.entries(0, 10**6)


def fields_of(entry: dict[str, Any], lacking: Collection[str] = ()) -> dict[str, Any]:
    """What an entry says, without its place in a chain, and what is beside it."""
    own = {"index", "previous", "type", "at", "hash", "keyed"}.union(lacking)
    return {name: value for name, value in entry.items() if name not in own}


def in_time(receipt_id: str) -> bool:
    """What is asked whether a receipt is overdue where none is."""
    del receipt_id
    return False


def held(store: LedgerDatabase) -> tuple[Any, ...]:
    """All that a ledger knows of its entries, numbers of the journal aside."""
    entries = store.entries(0, 10**6)
    receipts = [entry["receipt"] for entry in entries if entry["type"] == "unlearned"]
    waiting = [(one.receipt_id, one.acknowledged_ms, one.n_samples) for one in store.pending()]
    erased = store.recently_erased(0), store.erased_since(list("abcdef"), 1)
    return entries, [store.receipt(name, in_time) for name in receipts], waiting, erased


def make_ledger(folder: Path | None = None, **more: Any) -> WholeLedger:
    if folder is None:
        return WholeLedger(None, LedgerKeys(None, lambda: START), **more)
    return WholeLedger(folder / "ledger.sqlite", LedgerKeys(folder / "keys", lambda: START), **more)


def begun(folder: Path | None = None, **more: Any) -> WholeLedger:
    """A ledger whose log has begun."""
    ledger = make_ledger(folder, **more)
    ledger.event("begin", **ledger.store.log.new_fields())
    return ledger


def signed_end(ledger: WholeLedger) -> dict[str, Any]:
    """The end of the last page of a download."""
    return ledger.store.page(ledger.store.head().index, 1, signs=True)


def write_whole(path: Path, ledger: WholeLedger) -> Path:
    return write_lines(path, [*ledger.entries(), signed_end(ledger)])


def write_lines(path: Path, entries: Sequence[Any]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in entries))
    return path


def as_objects(entries: Sequence[Any]) -> list[Any]:
    """A copy that shares nothing."""
    copied: list[Any] = orjson.loads(orjson.dumps(list(entries)))
    return copied
