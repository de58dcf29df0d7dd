"""`oubli proof check` and `oubli ledger verify --since` against a server that lies: each lie is found and named."""

import base64
import dataclasses
import json
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from oubli.app.errors import StartError
from oubli.app.ledger.entries import EMPTY, Head, Receipt, make_entry
from oubli.app.ledger.log import Checkpoint, sign_checkpoint
from tests.unit.app.cli.auditing import Done, holds, refused
from tests.unit.app.ledger.lying import Log, begun, extra_of, with_entry, with_extra, with_receipt
from tests.unit.app.ledger.support import as_objects, fields_of, write_lines
from tests.witness import LocalWitness


@pytest.fixture
def log() -> Log:
    """A log with some erasures before and after the one that is looked at."""
    log = begun()
    for i in range(5):
        log.ledger.erased(log.ledger.unlearned(f"before-{i}"))
    return log


@pytest.fixture
def finished(log) -> Receipt:
    """The receipt of an erasure, as it was given before it was finished; the log that tells of the end is published."""
    receipt = log.ledger.unlearned("a", "b")
    log.ledger.erased(receipt)
    log.publish()
    return receipt


@pytest.fixture
def check(run, log):
    """Check a proof against a policy, that of the log unless another is given, and maybe a receipt that was kept."""

    def check(proof: str, *more: object, policy: str | None = None, kept: Receipt | None = None) -> Done:
        files = {"it.tlog-proof": proof, "policy": log.policy() if policy is None else policy}
        if kept is not None:
            files["kept.json"] = json.dumps({**kept.content(), "durable": True})
            more += ("--receipt", "kept.json")
        return run("proof", "check", "it.tlog-proof", "--policy", "policy", *more, files=files)

    return check


def cosigned(checkpoint: Checkpoint, *witnesses: LocalWitness) -> Checkpoint:
    lines = [witness.cosign(checkpoint.text, 1_763_700_000).rstrip("\n") for witness in witnesses]
    return checkpoint.with_cosignatures(lines)


def with_note(proof: str, note: str) -> str:
    """A proof with another checkpoint."""
    return proof.partition("\n\n")[0] + "\n\n" + note


# --- what holds


def test_a_proof_of_an_erasure_holds_before_and_after_it_is_finished(check, log):
    receipt = log.ledger.unlearned("a", "b")
    for status in ("unlearned", "erased"):
        log.publish()
        out, told = holds(check(log.proof(receipt)))
        assert f"receipt {receipt.id}: {status}\ndisclosure low: {receipt.disclosure_limits}\n" in out
        assert "Not proved" in told
        log.ledger.erased(receipt)


def test_a_name_that_was_erased_and_one_that_was_named_and_not_held(check, log):
    ids = log.ledger.unlearned("a", targets=("a", "absent"), absent=1)
    subject = log.ledger.unlearned("b", "c", targets=("Ada",), by="subjects")
    log.publish()
    for receipt, by, name, found in (
        (ids, "ids", "a", "targets and the samples"), (ids, "ids", "absent", "targets"),
        (subject, "subjects", "Ada", "targets"), (subject, "ids", "c", "samples"),
    ):  # fmt: skip
        more = ("--name", name, "--opening", log.opening(receipt, by, name))
        out, _ = holds(check(log.proof(receipt), *more))
        assert out.splitlines()[-1] == f"the name is among the {found} of the erasure"


def test_openings_are_made_from_that_of_the_erasure(run, log):
    receipt = log.ledger.unlearned("a")
    secret = log.ledger.auditor.opening_of(receipt.id, log.ledger.keys.hashing[0].id)
    files = {"opening.json": json.dumps({"receipt": receipt.id, "opening": secret.hex()})}
    out, _ = holds(run("proof", "opening", "opening.json", "--name", "a", "--by", "ids", files=files))
    assert out.strip() == log.opening(receipt, "ids", "a")


def test_any_entry_can_be_proved_and_receipts_that_were_kept(check, log, finished):
    for index in range(1, log.ledger.store.head().index + 1):
        assert f"entry {index}: " in holds(check(log.entry_proof(index)))[0]
    for kept in (finished, log.ledger.now_of(finished)):
        holds(check(log.proof(finished), kept=kept))


def test_the_quorum_of_a_policy_and_a_key_that_was_retired_since(check, log):
    receipt, one = log.ledger.unlearned("a"), LocalWitness("one")
    log.ledger.store.publish(cosigned(log.publish(), one, LocalWitness("two")))
    out, _ = holds(check(log.proof(receipt), policy=log.policy(one.key, quorum="one")))
    assert "cosigned by one" in out
    log.ledger.rotate("signing")
    log.publish()
    holds(check(log.proof(receipt)))


def test_an_erasure_that_was_carried_over(check):
    """The operator of a ledger that was behind went on without what was missing: a new log holds it as its content."""
    whole, behind = begun(), begun()
    receipt = whole.ledger.unlearned("a")
    whole.ledger.erased(receipt)
    behind.ledger.keys = behind.ledger.auditor._keys = behind.ledger.store._keys = whole.ledger.keys
    (_, *records) = whole.ledger.records
    behind.ledger.store.fold_many([(seq + 10, notes) for seq, notes in records], across_gap=True)
    assert behind.ledger.store.log.origin is None
    assert behind.ledger.store.sign_checkpoint() is None
    behind.ledger.auditor.head = behind.ledger.store.head()
    behind.ledger.record(behind.ledger.auditor.event("log-begun", behind.ledger.store.log.new_fields()), fold=False)
    behind.ledger.store.fold_many([(99, behind.ledger.records[-1][1])])
    behind.publish()
    out, _ = holds(check(behind.proof(receipt), policy=behind.policy()))
    assert f"receipt {receipt.id}: erased" in out


# --- lies


def test_the_same_log_is_shown_in_two_ways(check, log):
    """Both are signed: without a witness each of them holds, and with one the second does not get a cosignature."""
    witness = LocalWitness("w")
    receipt = log.ledger.unlearned("a")
    log.ledger.store.publish(cosigned(log.publish(), witness))
    policy = log.policy(witness.key, quorum="w")
    proof = log.proof(receipt)
    holds(check(proof, policy=policy))
    store = log.ledger.store
    split = sign_checkpoint(store.log.origin, store.log.tree.size, bytes(32), log.ledger.keys.signing)
    refused(check(with_note(proof, split.note), policy=policy), "quorum")
    lines = cosigned(log.ledger.store.log.signed, witness).note.splitlines()[-1]
    refused(check(with_note(proof, f"{split.note}{lines}\n"), policy=policy), "quorum")
    refused(check(with_note(proof, split.note)), "inclusion")


def test_a_log_that_somebody_else_signs_or_witnesses(check, log):
    other = begun()
    unknown = other.ledger.unlearned("a")
    other.publish()
    refused(check(other.proof(unknown)), "log")  # one that no policy names
    receipt = log.ledger.unlearned("a")
    log.publish()
    refused(check(log.proof(receipt), policy=log.policy(LocalWitness("w").key, quorum="w")), "quorum")
    store, thief = log.ledger.store, begun().ledger.keys.signing
    forged = sign_checkpoint(store.log.origin, store.log.tree.size, store.log.tree.root(), thief)
    refused(check(with_note(log.proof(receipt), forged.note)), "log-signature")


def test_an_erasure_that_is_left_out_of_the_log(check, log):
    """A receipt is signed and never logged: what the log has in its place says so, and the receipt is evidence."""
    lost = log.ledger.unlearned("a", fold=False)
    log.ledger.auditor.rewind(log.ledger.store.head())
    log.ledger.records.pop()
    log.ledger.unlearned("b")
    log.publish()
    assert log.ledger.store.receipt(lost.id, log.ledger.is_overdue) is None
    refused(check(log.entry_proof(lost.ledger_index), kept=lost), "receipt")


def test_the_proof_or_opening_of_another_erasure(check, log):
    mine, other = log.ledger.unlearned("a", "b"), log.ledger.unlearned("b")
    log.publish()
    refused(check(log.proof(other), kept=mine), "receipt")
    for proved, name, opening in (
        (other, "a", log.opening(mine, "ids", "a")), (mine, "a", log.opening(mine, "ids", "b")),
        (mine, "a", log.opening(mine, "subjects", "a")), (mine, "c", log.opening(mine, "ids", "c")),
    ):  # fmt: skip
        refused(check(log.proof(proved), "--name", name, "--opening", opening), "opening")


def test_names_that_are_added_to_the_list_later(check, log):
    receipt, other = log.ledger.unlearned("a"), log.ledger.unlearned("a", "b")
    log.publish()
    leaves = extra_of(log.proof(other))["target_leaves"]
    refused(check(with_extra(log.proof(receipt), lambda extra: extra.update(target_leaves=leaves))), "opening")
    raw = base64.b64decode(leaves)
    swapped = base64.b64encode(raw[32:] + raw[:32]).decode()
    refused(check(with_extra(log.proof(other), lambda extra: extra.update(target_leaves=swapped))), "opening")


def test_a_checkpoint_from_before_the_erasure_and_a_receipt_that_says_more_than_the_log(check, log):
    """An old root is shown again; the server signs a receipt again, with a count that the log does not have."""
    old = log.publish()
    receipt = log.ledger.unlearned("a")
    log.publish()
    refused(check(with_note(log.proof(receipt), old.note)), "inclusion")
    better = receipt._replace(unlearned=100).signed(log.ledger.keys)
    refused(check(with_extra(log.proof(receipt), with_receipt(**better.content()))), "receipt")


LONG_AGO = "2020-01-01T00:00:00.000Z"
CHANGED = {"requested": 7, "ref": "0f5c1d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f", "ledger_index": 1, "erased_at": LONG_AGO}
CHANGED |= {"overdue": True, "status": "unlearned"}
NOT_SIGNED = {"signature": base64.b64encode(bytes(64)).decode(), "key_id": "0000000000000000", "more": 1}
ALTERED: list[tuple[Callable[[Any], Any], str]] = [
    *((with_entry(**fields), "inclusion") for fields in ({"unlearned": 0}, {"at": LONG_AGO})),
    *((with_receipt(**{name: value}), "receipt") for name, value in CHANGED.items()),
    *((with_receipt(**{name: value}), "receipt-signature") for name, value in NOT_SIGNED.items()),
    (lambda extra: extra.pop("erased"), "receipt"),
    (lambda extra: extra["erased"].update(index=0), "inclusion"),
    (lambda extra: extra["erased"].update(entry=extra["entry"], index=extra["erased"]["index"] - 1), "inclusion"),
    (lambda extra: extra["erased"].update(path="x"), "format"),
    (lambda extra: extra.update(entry=extra["entry"].replace(":", ": ", 1)), "inclusion"),
    *((partial(dict.update, **{name: 7}), "format") for name in ("entry", "receipt")),
]


def test_what_is_altered_is_found(check, log, finished):
    proof = log.proof(finished)
    holds(check(proof))
    for change, rule in ALTERED:
        refused(check(with_extra(proof, change)), rule)


def test_a_proof_that_is_altered_in_one_bit_is_refused(check, log, finished):
    proof, draw = log.proof(finished).encode(), random.Random(0)
    for _ in range(20):
        altered = bytearray(proof)
        place = draw.randrange(len(proof))
        altered[place] ^= 1 << draw.randrange(7)
        with suppress(UnicodeDecodeError, StartError):  # it is no text, or could not be checked: exit 2
            # What is not signed is refused too, but for what says nothing: `durable`, and names of other signatures.
            code, _, told = check(altered.decode())
            assert code == 1, (place, told)


def test_what_could_not_be_checked(check, refuses, log, finished):
    proof = log.proof(finished)
    refused(check(""), "format")
    for given, more, error in (
        ("c2sp.org/tlog-proof@v1\n\nx", (), "extra"), ("c2sp.org/tlog-proof@v1\nindex 0\n\nx", (), "extra"),
        (proof, ("--name", "a"), "--opening"), (proof, ("--name", "a", "--opening", "x"), "64 hexadecimal"),
        (log.entry_proof(1), ("--name", "a", "--opening", "00" * 32), "names"),
    ):  # fmt: skip
        with pytest.raises(StartError, match=error):
            check(given, *more)
    for policy, error in (("quorum nobody", "line 1"), ("quorum none", "names no log")):
        with pytest.raises(StartError, match=error):
            check(proof, policy=policy)
    refuses("cannot be read", "proof", "check", "nothing", "--policy", "policy")


# --- a ledger against a checkpoint that was kept


@pytest.fixture
def since(run, log, tmp_path):
    """Check a download of the ledger against a checkpoint."""

    def since(entries: list[Any], checkpoint: Checkpoint) -> Done:
        file, files = write_lines(tmp_path / "ledger.jsonl", entries), {"kept": checkpoint.note, "policy": log.policy()}
        return run("ledger", "verify", file, "--since", "kept", "--policy", "policy", files=files)

    return since


def resealed(entries: list[Any]) -> list[Any]:
    """The chain made again over entries that were altered."""
    head, made = EMPTY, []
    for entry in entries:
        made.append(make_entry(head, entry["type"], entry["at"], fields_of(entry)))
        head = Head.of(made[-1])
    return made


def refused_since(done: Done, rule: str) -> None:
    """What is said of the ledger without a checkpoint is printed all the same."""
    refused((done[0], "", done[2]), rule)


def test_a_ledger_that_goes_on_and_those_that_do_not(since, log):
    kept = log.publish()
    refused_since(since(log.ledger.entries()[:-1], kept), "truncated")
    for i in range(3):
        log.ledger.unlearned(str(i))
    assert "continues the checkpoint" in holds(since(log.ledger.entries(), kept))[0]
    other = dataclasses.replace(kept, note=kept.note.replace(kept.origin, "elsewhere/0"))
    refused_since(since(log.ledger.entries(), other), "log")
    entries = as_objects(log.ledger.entries())
    entries[4]["deadline_ms"] = 7
    refused_since(since(resealed(entries), kept), "rewritten")  # the chain alone says nothing of it
