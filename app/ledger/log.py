"""The log over the entries: its Merkle tree, its signed checkpoints with the cosignatures of witnesses, its proofs.

    entries 1 2 3 ...  -->  leaves 0 1 2 ...     leaf = SHA-256(0x00 | the bytes that the entry's hash is of)

Everything is in the ledger's file and belongs to its thread. It came from the journal after its flush, so nothing is
signed that a crash could take back. An entry with `log_id` begins a log: an operator who continues without missing
entries begins another one, so no two checkpoints of a log ever contradict each other.

The tree is that of RFC 6962, in tiles of 256 hashes:

    tile of level 1:   |  hashes of the whole tiles below  |  ...
    tile of level 0:   |  256 hashes of entries            |  ...      one whole tile is one row of the ledger's file

A whole tile never changes. It is kept with the nodes between its hashes and its root, so that a proof reads nodes and
computes none. The last tile of each level is not whole, and in memory.

Checkpoints, cosignatures and proofs are texts (c2sp.org):

    oubli.example/1f0c33...          origin: name of the server, and a random id of the log
    42                               size
    qINS1GRFHWHwdkUeqLEoP4yEMkTBBzxB root, base64
                                     an empty line
    — oubli.example/1f0c33... Xk4... signature of the log, then those of witnesses

Signatures, of witnesses and of this server, are checked by `oubli.verifier.notes`. What is signed here is written by
code of its own, which that verifier does not share.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson

from oubli.app.ledger.entries import (
    CARRIED_OVER,
    EMPTY_ROOT,
    HASH_BYTES,
    ChainError,
    Entry,
    body_of,
    hash_leaf,
    hash_node,
)
from oubli.app.ledger.file import COLUMNS, damaged, replace_only
from oubli.app.ledger.keys import SigningKey
from oubli.verifier.notes import (
    COSIGNATURE,
    ED25519,
    FailedError,
    VerifierKey,
    decode,
    is_signed,
    key_of,
    read_key,
    read_note,
)

TILE = 256
_HEIGHT = 8  # of a tile
_KEPT = 64  # tiles in memory
_ID_BYTES = 8
_ORIGIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}/[0-9a-f]{16}")
_KEY_ID_BYTES = 4
_LOG_KEY = b"\x01"

Mark = tuple[int, list[list[list[bytes]]]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of the log, signed.

    Attributes
    ----------
    origin
        Which log.
    size
        How many entries it has.
    note
        The text with its signatures.
    """

    origin: str
    size: int
    note: str

    @property
    def text(self) -> str:
        """What is signed."""
        return self.note.rpartition("\n\n")[0] + "\n"

    @property
    def root(self) -> bytes:
        """Of the tree."""
        return decode(self.text.split("\n")[2])

    def cosignatures(self, key: VerifierKey, lines: str) -> list[str]:
        """Return those of some lines that are a valid cosignature by a key."""
        return [line for line in lines.split("\n") if _has_signed(key, f"{self.text}\n{line}\n")]

    def with_cosignatures(self, lines: Sequence[str]) -> Checkpoint:
        """Return the checkpoint with further signatures."""
        return replace(self, note=self.note + "".join(f"{line}\n" for line in lines))


def sign_checkpoint(origin: str, size: int, root: bytes, key: SigningKey) -> Checkpoint:
    """Return a signed checkpoint; the same head has the same bytes whenever it is signed. `ValueError`: key retired."""
    if key.private is None:
        raise ValueError("a retired key signs nothing")
    text = f"{origin}\n{size}\n{_base64(root)}\n"
    signature = _key_id(origin, key.public) + key.private.sign(text.encode("utf-8"))
    return Checkpoint(origin, size, f"{text}\n— {origin} {_base64(signature)}\n")


def read_checkpoint(note: str) -> Checkpoint:
    """Return a checkpoint that was signed here. `ValueError` when it is none."""
    origin, size, *_ = note.split("\n", 2)
    return Checkpoint(origin, int(size), note)


def is_own(note: str, keys: Sequence[bytes]) -> bool:
    """Whether one of our keys, given by their public halves, has signed a checkpoint of the log that it names."""
    origin = note.partition("\n")[0]
    return any(_has_signed(key_of(origin, ED25519, public), note) for public in keys)


def log_key(origin: str, public: bytes) -> str:
    """Return a key of the log as policies and witnesses take it."""
    return f"{origin}+{_key_id(origin, public).hex()}+{_base64(_LOG_KEY + public)}"


def read_witness_key(text: str) -> VerifierKey:
    """Return the key that is written as `name+id+base64`. `ValueError` when it is not a key of a witness."""
    key = read_key(text)
    if key.type != COSIGNATURE:
        raise ValueError
    return key


def hash_lines(hashes: Sequence[bytes]) -> list[str]:
    """Return hashes as texts in base64."""
    return [_base64(one) for one in hashes]


def _has_signed(key: VerifierKey, note: str) -> bool:
    with contextlib.suppress(FailedError):
        return is_signed(read_note(note), key)
    return False


def _key_id(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode("utf-8") + b"\n" + _LOG_KEY + public).digest()[:_KEY_ID_BYTES]


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


class Tree:
    """A tree that grows at its right edge.

    Parameters
    ----------
    store
        Keeps a whole tile: its level, its number in the level, and its hashes with the nodes above them.
    load
        Returns what was kept.

    Attributes
    ----------
    size
        How many leaves there are.
    """

    def __init__(self, store: Callable[[int, int, bytes], None], load: Callable[[int, int], bytes]) -> None:
        self.size = 0
        self._store = store
        self._load = lru_cache(_KEPT)(load)
        # The tiles that are not whole: by level, by height in the tile, their nodes.
        self._edge: list[list[list[bytes]]] = []

    def append(self, leaf: bytes) -> None:
        """Take in the hash of the next leaf."""
        self._push(0, leaf)
        self.size += 1

    def mark(self) -> Mark:
        """Return what `rewind` needs to come back to this size."""
        return self.size, [[list(row) for row in rows] for rows in self._edge]

    def rewind(self, mark: Mark) -> None:
        """Forget the leaves since a mark; tiles that were stored since are not there any more."""
        self.size, self._edge = mark

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first leaves; None: of all."""
        return self._root_of(0, self.size if size is None else size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the path from a leaf to the root of the first leaves (RFC 6962, 2.1.1)."""
        first, n, path = 0, size, []
        while n > 1:
            left = 1 << (n - 1).bit_length() - 1
            if index - first < left:
                path.append(self._root_of(first + left, n - left))
                n = left
            else:
                path.append(self._root_of(first, left))
                first, n = first + left, n - left
        return path[::-1]

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Return the proof that the first `new` leaves begin with the first `old` ones (RFC 6962, 2.1.2)."""
        if old == 0:
            return []
        first, path, is_whole = 0, [], True
        while old != new:
            left = 1 << (new - 1).bit_length() - 1
            if old <= left:
                path.append(self._root_of(first + left, new - left))
                new = left
            else:
                path.append(self._root_of(first, left))
                first, old, new, is_whole = first + left, old - left, new - left, False
        if not is_whole:
            path.append(self._root_of(first, old))
        return path[::-1]

    def tile(self, level: int, number: int, width: int) -> bytes | None:
        """Return the first hashes of a tile; None when the tree has not so many there."""
        n_hashes = self.size >> _HEIGHT * level
        if not 0 < width <= TILE or number * TILE + width > n_hashes:
            return None
        if number < n_hashes >> _HEIGHT:
            return self._load(level, number)[: width * HASH_BYTES]
        return b"".join(self._edge[level][0][:width])

    def _push(self, level: int, node: bytes) -> None:
        if level == len(self._edge):
            self._edge.append(_empty_tile())
        rows, height = self._edge[level], 0
        rows[0].append(node)
        while height < _HEIGHT - 1 and len(rows[height]) % 2 == 0:
            rows[height + 1].append(hash_node(*rows[height][-2:]))
            height += 1
        if len(rows[0]) == TILE:
            self._store(level, self.size >> _HEIGHT * (level + 1), b"".join(b"".join(row) for row in rows))
            self._edge[level] = _empty_tile()
            self._push(level + 1, hash_node(*rows[-1]))

    def _root_of(self, first: int, n: int) -> bytes:
        """Return the root of some leaves that are a subtree, or at the right edge of one."""
        if n == 0:
            return EMPTY_ROOT
        peaks = []
        while n:
            height = n.bit_length() - 1
            peaks.append(self._node(height, first >> height))
            first, n = first + (1 << height), n - (1 << height)
        found = peaks.pop()
        while peaks:
            found = hash_node(peaks.pop(), found)
        return found

    def _node(self, height: int, index: int) -> bytes:
        """Return the root of a whole subtree."""
        level, row = divmod(height, _HEIGHT)
        number, place = divmod(index, TILE >> row)
        if number == self.size >> _HEIGHT * (level + 1):
            return self._edge[level][row][place]
        start = (2 * TILE - (2 * TILE >> row) + place) * HASH_BYTES
        return self._load(level, number)[start : start + HASH_BYTES]


def _empty_tile() -> list[list[bytes]]:
    return [[] for _ in range(_HEIGHT)]


@dataclass(frozen=True, slots=True)
class NotPublished:
    """What is asked for is not below a published checkpoint yet.

    Attributes
    ----------
    size
        That the log must be published with.
    """

    size: int


@dataclass(frozen=True, slots=True)
class _State:
    origin: str | None = None
    signed: str | None = None
    published: str | None = None


class LogTable:
    """The log; writes are inside of a transaction of the ledger's database, whose thread it belongs to.

    Parameters
    ----------
    connection
        Of the ledger's file.
    name
        Of the logs that begin here; the first part of their origins.

    Attributes
    ----------
    tree
        Over all entries.

    Raises
    ------
    LedgerDamagedError
        When the file holds other hashes than those of its entries.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self.tree = Tree(self._store, self._load)
        (row,) = connection.execute(f"SELECT {COLUMNS['log']} FROM log").fetchall()  # noqa: S608 - ours
        self._state = _State(*row)
        self._build()
        self._check_signed()

    # --- writing

    def append(self, entry: Mapping[str, Any], body: bytes) -> None:
        """Take in the next entry."""
        self.tree.append(hash_leaf(body))
        if "log_id" in entry:
            origin = f"{entry['log_name']}/{entry['log_id']}"
            if not _ORIGIN.fullmatch(origin):
                raise ChainError(entry["index"], "has an invalid name of a log")
            self._write(_State(origin))
        elif entry["type"] == CARRIED_OVER:
            # Entries before it are missing, so that what was signed over them cannot be signed again.
            self._write(replace(self._state, origin=None))

    def sign(self, key: SigningKey) -> Checkpoint | None:
        """Return the signed head of the log; None before there is one. The same head has the same bytes again."""
        if self._state.origin is None:
            return None
        made = sign_checkpoint(self._state.origin, self.tree.size, self.tree.root(), key)
        if made.note != self._state.signed:
            self._write(replace(self._state, signed=made.note))
        return made

    def publish(self, checkpoint: Checkpoint) -> None:
        """Answer a checkpoint from now on, unless another log was begun or a newer one is there."""
        known = self.published
        if checkpoint.origin == self._state.origin and (known is None or known.size <= checkpoint.size):
            self._write(replace(self._state, published=checkpoint.note))

    def new_fields(self) -> dict[str, str | int]:
        """Return the fields of an entry that begins another log, and names the last checkpoint of the one before."""
        fields: dict[str, str | int] = {"log_name": self._name, "log_id": secrets.token_hex(_ID_BYTES)}
        if self._state.signed is not None:
            last = read_checkpoint(self._state.signed)
            name, _, log_id = last.origin.rpartition("/")
            fields |= {"previous_log_name": name, "previous_log_id": log_id}
            fields |= {"previous_size": last.size, "previous_root": last.root.hex()}
        return fields

    def mark(self) -> tuple[Mark, _State]:
        """Return what `rewind` needs."""
        return self.tree.mark(), self._state

    def rewind(self, mark: tuple[Mark, _State]) -> None:
        """Forget the entries since a mark, with the transaction."""
        self.tree.rewind(mark[0])
        self._state = mark[1]

    # --- reading

    @property
    def origin(self) -> str | None:
        """The name of the log; None before one has begun."""
        return self._state.origin

    @property
    def signed(self) -> Checkpoint | None:
        """The last checkpoint that was signed."""
        return self._checkpoint(self._state.signed)

    @property
    def published(self) -> Checkpoint | None:
        """The last checkpoint that was published, with the cosignatures that witnesses gave."""
        return self._checkpoint(self._state.published)

    def _checkpoint(self, note: str | None) -> Checkpoint | None:
        return None if self._state.origin is None or note is None else read_checkpoint(note)

    def consistency(self, old: int, new: int | None) -> dict[str, Any] | NotPublished:
        """Return what shows that the log of `new` entries continues that of `old`; None: the published one."""
        size = 0 if self.published is None else self.published.size
        new = max(old, size) if new is None else new
        if new > size:
            return NotPublished(new)
        return {"from": old, "to": new, "proof": hash_lines(self.tree.consistency(old, new))}

    def proof(self, entry: Entry, finished: Sequence[Entry], extra: Mapping[str, Any]) -> str | NotPublished:
        """Return a proof that entries are in the published log (c2sp.org/tlog-proof).

        Parameters
        ----------
        entry
            What the proof is of.
        finished
            The entry that has finished the erasure, if any.
        extra
            What the proof says besides.
        """
        published, last = self.published, max(one["index"] for one in (entry, *finished))
        if published is None or published.size < last:
            return NotPublished(last)
        said = dict(extra)
        for one in finished:
            path = hash_lines(self.tree.inclusion(one["index"] - 1, published.size))
            said["erased"] = {"entry": body_of(one).decode(), "index": one["index"] - 1, "path": path}
        said["entry"] = body_of(entry).decode()
        index = entry["index"] - 1
        path = hash_lines(self.tree.inclusion(index, published.size))
        lines = ["c2sp.org/tlog-proof@v1", f"extra {_base64(orjson.dumps(said))}", f"index {index}", *path]
        return "\n".join([*lines, "", published.note])

    def _write(self, state: _State) -> None:
        self._state = state
        replace_only(self._connection, "log", (state.origin, state.signed, state.published))

    def _store(self, level: int, number: int, hashes: bytes) -> None:
        self._connection.execute("INSERT INTO tiles (level, number, hashes) VALUES (?, ?, ?)", (level, number, hashes))

    def _load(self, level: int, number: int) -> bytes:
        query = "SELECT hashes FROM tiles WHERE level = ? AND number = ?"
        row = self._connection.execute(query, (level, number)).fetchone()
        return b"" if row is None else bytes(row[0])

    def _build(self) -> None:
        """Make the tree from the entries, and compare what is kept of it; an older file has nothing of it yet."""
        ((n_left,),) = self._connection.execute("SELECT count(*) FROM tiles").fetchall()
        is_new = n_left == 0

        def compare(level: int, number: int, hashes: bytes) -> None:
            nonlocal n_left
            if is_new:
                self._store(level, number, hashes)
                return
            n_left -= 1
            if n_left < 0 or self._load(level, number) != hashes:
                raise damaged("is damaged: its tree is not that of its entries")

        tree = Tree(compare, self._load)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for (body,) in self._connection.execute("SELECT content FROM entries ORDER BY idx"):
                tree.append(hash_leaf(body))
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        if n_left and not is_new:
            raise damaged("is damaged: its tree is not that of its entries")
        self.tree.rewind(tree.mark())

    def _check_signed(self) -> None:
        """Compare the tree with the last checkpoint that was signed."""
        for checkpoint in (self.signed, self.published):
            if checkpoint is None:
                continue
            has_origin = checkpoint.origin == self._state.origin and checkpoint.size <= self.tree.size
            if not has_origin or checkpoint.root != self.tree.root(checkpoint.size):
                raise damaged(f"ends before entry {checkpoint.size}, or its entries differ from those that were signed")
