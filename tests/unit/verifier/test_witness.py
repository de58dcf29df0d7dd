"""What the witness of the tests cosigns and refuses, as c2sp.org/tlog-witness says; the checks are the verifier's."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oubli.verifier.checkpoints import read_checkpoint
from oubli.verifier.notes import ED25519, is_signed, key_of
from tests.oracles.merkle import mth, proof
from tests.witness import LocalWitness

ORIGIN = "log.example/1"
ENTRIES = [str(i).encode() for i in range(40)]
OTHER = [b"other", *ENTRIES[1:]]
PRIVATE = Ed25519PrivateKey.generate()
LOG = key_of(ORIGIN, ED25519, PRIVATE.public_key().public_bytes_raw())


def text64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def checkpoint(entries: list[bytes], origin: str = ORIGIN, private: Ed25519PrivateKey = PRIVATE) -> str:
    text = f"{origin}\n{len(entries)}\n{text64(mth(entries))}\n"
    key = key_of(origin, ED25519, private.public_key().public_bytes_raw())
    return f"{text}\n— {origin} {text64(key.id + private.sign(text.encode()))}\n"


def request(old: int, new: int, entries: list[bytes] = ENTRIES, note: str | None = None) -> bytes:
    lines = [f"old {old}", *map(text64, proof(old, entries[:new]))]
    return "\n".join([*lines, "", checkpoint(entries[:new]) if note is None else note]).encode()


def test_checkpoints_of_a_log_that_grows_are_cosigned():
    witness, old = LocalWitness("w.example", LOG), 0
    for new in (0, 1, 1, 7, 8, 40):
        status, line = witness.add_checkpoint(request(old, new))
        assert status == 200, line
        whole = read_checkpoint(checkpoint(ENTRIES[:new]) + line)
        assert is_signed(whole.note, witness.key)
        assert read_checkpoint(witness.seen[ORIGIN]) == whole
        old = new


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (request(7, 20), 409),
        (request(8, 20, OTHER), 422),  # a log that was rewritten
        (request(8, 8, OTHER), 422),  # two logs of one size
        (request(8, 20).replace(b"old 8\n", b"old 8\n" + text64(bytes(32)).encode() + b"\n"), 422),
        (request(8, 20, note=checkpoint(ENTRIES[:20], origin="log.example/2")), 404),
        (request(8, 20, note=checkpoint(ENTRIES[:20], private=Ed25519PrivateKey.generate())), 403),
        (request(8, 20, note=checkpoint(ENTRIES[:20]).replace("\n20\n", "\n19\n")), 403),
        (b"old 8\n\n", 400),
        (b"\xff", 400),
    ],
)
def test_what_is_refused_changes_nothing(body, status):
    witness = LocalWitness("w.example", LOG)
    assert witness.add_checkpoint(request(0, 8))[0] == 200
    before = dict(witness.seen)
    assert witness.add_checkpoint(body)[0] == status
    assert witness.seen == before
