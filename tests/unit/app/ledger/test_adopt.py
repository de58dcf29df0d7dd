"""Ledgers that are older than what has been seen: a newer one taken in, or gone on without."""

import shutil
import uuid
from pathlib import Path

import pytest

from oubli.app.errors import StartError
from oubli.app.ledger.database import LedgerGapError
from oubli.app.ledger.downloads import check_ledger, check_receipt, read_lines, read_object
from oubli.app.ledger.entries import make_entry
from oubli.app.ledger.ledger import Ledger
from oubli.app.ledger.log import sign_checkpoint
from tests.unit.app.ledger import support
from tests.unit.app.ledger.support import WholeLedger, begun, held, make_ledger, signed_end, write_lines, write_whole


@pytest.fixture
def outdated(tmp_path: Path) -> tuple[WholeLedger, WholeLedger]:
    """A ledger, and the same as it was some erasures before."""
    (tmp_path / "new").mkdir()
    ledger = begun(tmp_path / "new")
    ledger.erased(ledger.unlearned("a"))
    ledger.store.flush()
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    ref = str(uuid.uuid4())
    ledger.erased(ledger.unlearned("b", ref=ref), ledger.unlearned("c", kind="rectification"))
    ledger.unlearned("d")
    return ledger, make_ledger(tmp_path / "old")


def test_a_newer_ledger_is_taken_in_with_receipts_and_hashes_and_the_journal_goes_on(outdated, tmp_path):
    new, old = outdated
    head = new.store.head()
    assert old.store.relation_to(head.index, head.hash) == "older"
    path = write_whole(tmp_path / "newer.jsonl", new)
    assert old.store.adopt(path) == new.store.head().index - 4
    assert held(old.store) == held(new.store)
    assert old.store.erased_since(list("abcdef"), 1) == {"b": "deletion", "c": "rectification", "d": "deletion"}
    assert old.store.relation_to(head.index, head.hash) == "same or newer"
    last = new.unlearned("late")  # of the journal's records this one alone is not in the downloaded ledger
    old.store.fold_many(new.records)
    assert held(old.store) == held(new.store)
    assert old.now_of(last) == last
    old.reopen()
    assert held(old.store) == held(new.store)
    assert old.store.adopt(path) == 0
    old.unlearned("e")
    check_ledger(old.entries())


@pytest.mark.parametrize(
    "how", ["changed", "gap", "fork", "strange", "free text", "keyed hashes", "no entry", "not JSON"]
)
def test_what_does_not_go_on_from_here_is_refused(how, outdated, tmp_path):
    new, old = outdated
    before, entries = held(old.store), support.as_objects(new.entries())
    head, at = new.store.head(), entries[-1]["at"]
    if how == "changed":
        entries[5]["kind"] = "expiry"
    elif how == "gap":
        entries = entries[5:]
    elif how == "fork":
        other = make_ledger(None)
        other.erased(other.unlearned("x"), other.unlearned("y"))
        entries = other.entries()
    elif how == "strange":
        entries.append(make_entry(head, "unlearned", at, {"receipt": "Ada"}))
    elif how == "free text":
        template = next(entry for entry in entries if entry["type"] == "unlearned")
        entries.append(make_entry(head, "unlearned", at, {**support.fields_of(template), "ref": "Case of Ada"}))
        entries[-1]["keyed"] = template["keyed"]
    elif how == "keyed hashes":  # by which an erased sample would not be known again
        first, *_, last = (entry for entry in entries if "keyed" in entry)
        last["keyed"] = first["keyed"]
    elif how == "no entry":
        entries.append(["x"])
    path = write_lines(tmp_path / "newer.jsonl", [*entries, signed_end(new)])
    if how == "not JSON":
        path.write_bytes(path.read_bytes() + b"{")
    with pytest.raises(StartError, match=r"entry \d|not one of Oubli|line \d+ is not JSON"):
        old.store.adopt(path)
    assert held(old.store) == before, "all or nothing"


def test_what_is_wrong_with_a_downloaded_file_is_said_with_its_line(outdated, tmp_path):
    path, adopt = tmp_path / "ledger.jsonl", outdated[1].store.adopt
    for text, read, why in (
        ('{"index": 1}\n\n{"index": 2}\nno JSON\n', lambda path: list(read_lines(path)), "line 4 is not JSON"),
        ('{"index": 1}\n', adopt, r"\b1\b.*is no entry"),
        ('{"id": \n', read_object, "line 1 is not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(StartError, match=why):
            read(path)
    with pytest.raises(StartError, match="cannot be read"):
        adopt(tmp_path / "none")


@pytest.mark.parametrize(
    "how",
    ["pages cut", "no end", "end of fewer", "end of more", "end of another", "end of no key", "end in the middle"],
)
def test_a_file_that_ends_before_the_ledgers_end_is_refused(how, outdated, tmp_path):
    new, old = outdated
    before, entries, log = held(old.store), new.entries(), new.store.log
    n, origin, signing, note = len(entries), str(log.origin), new.keys.signing, signed_end(new)["checkpoint"]
    first, last = {"entries": entries[:6], "checkpoint": None}, {"entries": entries[6:], "checkpoint": note}
    short, other = sign_checkpoint(origin, 6, log.tree.root(6), signing), sign_checkpoint(origin, n, bytes(32), signing)
    foreign = sign_checkpoint(origin, n, log.tree.root(), make_ledger().keys.signing)
    lines = {
        "pages cut": [first],
        "no end": [first, {**last, "checkpoint": None}],
        "end of fewer": [first, {**last, "checkpoint": short.note}],
        "end of more": [{"entries": entries[:-1], "checkpoint": note}],
        "end of another": [first, {**last, "checkpoint": other.note}],
        "end of no key": [first, {**last, "checkpoint": foreign.note}],
        "end in the middle": [{**first, "checkpoint": note}, {**last, "checkpoint": None}],
    }
    path = write_lines(tmp_path / "newer.jsonl", lines[how])
    with pytest.raises(StartError, match="ends before the ledger's end"):
        old.store.adopt(path)
    assert held(old.store) == before, "all or nothing"
    n_given = sum(len(page["entries"]) for page in lines[how])
    assert old.store.adopt(path, may_be_cut=True) == n_given - 4


def test_a_ledger_that_is_here_already_and_a_journal_that_does_not_follow_are_checked_as_well(outdated, tmp_path):
    new, old = outdated
    assert new.store.adopt(write_whole(tmp_path / "part.jsonl", old)) == 0
    with pytest.raises(StartError, match="ends before"):
        new.store.adopt(write_lines(tmp_path / "cut.jsonl", old.entries()))
    before = held(old.store)
    with pytest.raises(LedgerGapError, match=r"--ledger.*--accept-missing erasures"):
        old.store.fold_many(new.records[-1:])
    assert (held(old.store), old.store.applied_seq()) == (before, 3)


def test_going_on_without_what_is_missing(outdated, tmp_path):
    """Entries between are gone; the journal still has the last erasure, `d`, and one that was finished."""
    new, old = outdated
    lost_head = new.store.head()
    given = new.unlearned("e")
    new.erased(given)
    tail = new.records[-3:]
    old.store.fold_many(tail, across_gap=True)
    auditor = Ledger(old.store, old.keys, lambda: new.now)
    accepted = (tail[-1][0] + 1, auditor.event("accepted-missing-erasures", {"snapshot_index": lost_head.index}))
    old.store.fold_many([accepted])
    # What the journal told is known: who was erased, and the receipts as they were given.
    assert old.store.erased_since(list("abcdef"), 0) == {"a": "deletion", "d": "deletion", "e": "deletion"}
    assert len(old.store.recently_erased(0)) == 3
    assert [one.n_samples for one in old.store.pending()] == [1]
    assert old.now_of(given) == new.now_of(given)
    assert old.store.relation_to(lost_head.index, lost_head.hash) == "same or newer"
    assert old.store.relation_to(lost_head.index + 9, "0" * 64) == "older"
    # Folding again changes nothing, and the ledger that results is a whole chain of its own.
    before = held(old.store)
    old.store.fold_many([*tail, accepted], across_gap=True)
    old.reopen()
    old.store.fold_many([*tail, accepted])
    assert held(old.store) == before
    old.now = new.now
    later = old.unlearned("f")
    ledger = check_ledger(support.as_objects(old.entries()))
    for receipt in (given, old.now_of(given), later):
        check_receipt(receipt.content(), ledger)
    types = [entry["type"] for entry in old.entries()][-5:]
    assert types == [*["carried-over"] * 3, "accepted-missing-erasures", "unlearned"]
