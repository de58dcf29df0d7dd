"""What a witness signs, and what it remembers.

A checkpoint is cosigned when a key of its log has signed it, and a proof shows that it goes on from the last one that
was cosigned. That one is on the disk before the answer, and is compared and replaced in one step: no two checkpoints of
a log that are cosigned ever contradict each other.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oubli.verifier.checkpoints import Checkpoint, check_signature, read_checkpoint
from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.merkle import EMPTY_ROOT, HASH_BYTES, ProofError, check_consistency
from oubli.verifier.notes import COSIGNATURE, VerifierKey, cosigned_message, decode, key_of, read_decimal
from oubli.witness.files import write_whole

_MOST_HASHES = 63
_SIZE_TYPE = "text/x.tlog.size"
_TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class WitnessKey:
    """The key of a witness.

    Attributes
    ----------
    private
        That signs.
    public
        As policies take it.
    """

    private: Ed25519PrivateKey
    public: VerifierKey

    def cosign(self, text: str, at: int) -> str:
        """Return the line of a cosignature."""
        signature = self.private.sign(cosigned_message(text, at))
        encoded = base64.b64encode(self.public.id + at.to_bytes(8, "big") + signature).decode("ascii")
        return f"— {self.public.name} {encoded}\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered over HTTP."""

    status: int
    body: str
    media_type: str = _TEXT_TYPE


class _RefusedError(Exception):
    """A request that is refused, with its answer."""

    def __init__(self, status: int, text: str, media_type: str = _TEXT_TYPE) -> None:
        super().__init__(status)
        self.answer = Answer(status, f"{text}\n", media_type)


def read_or_make_key(path: Path, name: str) -> WitnessKey:
    """Return the key in a file, made when there is none.

    Parameters
    ----------
    path
        PKCS #8, for the owner only.
    name
        Of the witness.

    Raises
    ------
    UncheckableError
        When the file cannot be used.
    """
    try:
        if not path.exists():
            made = Ed25519PrivateKey.generate()
            form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            write_whole(path, made.private_bytes(*form))
        private = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UncheckableError(f"the key file {path} cannot be used: {error.strerror}") from None
    except (TypeError, ValueError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise UncheckableError(f"{path} holds no Ed25519 key in PKCS #8 without a passphrase")
    raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return WitnessKey(private, key_of(name, COSIGNATURE, raw))


class Witness:
    """Cosigns checkpoints of some logs.

    Parameters
    ----------
    key
        That cosigns.
    logs
        Keys of the logs; a log may have several.
    folder
        Where one file a log is kept; made when it is not there.
    now
        The time, in seconds since 1970.
    """

    def __init__(
        self, key: WitnessKey, logs: Iterable[VerifierKey], folder: Path, now: Callable[[], float] = time.time
    ) -> None:
        self.key = key
        self._logs = tuple(logs)
        self._folder = folder
        self._now = now
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer `POST /add-checkpoint`."""
        try:
            old, proof, checkpoint = _read(body)
            signer = self._check_signature(checkpoint)
            if old > checkpoint.size:
                raise _RefusedError(400, "the old size is larger than that of the checkpoint")
            with self._lock:
                self._check_consistency(old, proof, checkpoint)
                line = self.key.cosign(checkpoint.note.text, int(self._now()))
                write_whole(self._place(checkpoint.origin), _kept(checkpoint, signer, line).encode("utf-8"))
        except _RefusedError as refused:
            return refused.answer
        return Answer(200, line)

    def checkpoint(self, origin_hash: str) -> Answer:
        """Answer `GET /<origin hash>/checkpoint`."""
        known = {hashlib.sha256(key.name.encode("utf-8")).hexdigest(): key.name for key in self._logs}
        path = None if origin_hash not in known else self._place(known[origin_hash])
        if path is None or not path.exists():
            return Answer(404, "nothing was cosigned for this log\n")
        return Answer(200, path.read_text(encoding="utf-8"))

    def _check_signature(self, checkpoint: Checkpoint) -> VerifierKey:
        try:
            return check_signature(checkpoint, self._logs)
        except FailedError as error:
            raise _RefusedError(404 if error.rule == "log" else 403, str(error)) from None

    def _check_consistency(self, old: int, proof: list[bytes], checkpoint: Checkpoint) -> None:
        path = self._place(checkpoint.origin)
        last = read_checkpoint(path.read_text(encoding="utf-8")) if path.exists() else None
        size, root = (0, EMPTY_ROOT) if last is None else (last.size, last.root)
        if old != size:
            raise _RefusedError(409, str(size), _SIZE_TYPE)
        try:
            check_consistency(size, checkpoint.size, proof, root, checkpoint.root)
        except ProofError:
            raise _RefusedError(422, "the checkpoint does not go on from the last one") from None
        if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
            raise _RefusedError(422, "the root of an empty log is the hash of nothing")

    def _place(self, origin: str) -> Path:
        return self._folder / f"{hashlib.sha256(origin.encode('utf-8')).hexdigest()}.checkpoint"


def _read(body: bytes) -> tuple[int, list[bytes], Checkpoint]:
    """Return the old size, the proof and the checkpoint of a request."""
    try:
        head, separator, note = body.decode("utf-8").partition("\n\n")
        first, *lines = head.split("\n")
        proof = [decode(line) for line in lines]
        if not first.startswith("old ") or not separator or len(proof) > _MOST_HASHES:
            raise ValueError
        if any(len(one) != HASH_BYTES for one in proof):
            raise ValueError
        return read_decimal(first.removeprefix("old "), "the old size"), proof, read_checkpoint(note)
    except (ValueError, FailedError):
        raise _RefusedError(400, "this is no request of c2sp.org/tlog-witness") from None


def _kept(checkpoint: Checkpoint, signer: VerifierKey, line: str) -> str:
    """Return what is kept: the checkpoint with the signature that was checked, and the cosignature."""
    signatures = [
        f"— {name} {base64.b64encode(known + signature).decode('ascii')}\n"
        for name, known, signature in checkpoint.note.signatures
        if (name, known) == (signer.name, signer.id)
    ]
    return f"{checkpoint.note.text}\n{''.join(signatures)}{line}"
