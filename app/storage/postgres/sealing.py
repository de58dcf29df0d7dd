"""How records are sealed before they go to PostgreSQL.

    sealed      nonce (12 bytes) | AES-256-GCM of length of the body, body, notes
    bound to    segment, seq, epoch, version, at: a record that was moved or renumbered does not open
    checksum    over these and `sealed`

The checksum is never over what is inside: that would confirm guesses.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from oubli.app.storage.segment_keys import SegmentKey

_NONCE_BYTES = 12
_TAG_BYTES = 16
_LENGTH = struct.Struct("<Q")
_FACTS = struct.Struct("<5q")
_DIGEST_BYTES = 16

OVERHEAD = _NONCE_BYTES + _LENGTH.size + _TAG_BYTES
"""Bytes of a sealed record besides its body and notes."""


class Place(NamedTuple):
    """Where a record stands: the columns beside what is sealed.

    Attributes
    ----------
    segment
        Number of the first record of its segment.
    seq, epoch, version
        Of the record.
    at_ms
        When it was written, in milliseconds since 1970.
    """

    segment: int
    seq: int
    epoch: int
    version: int
    at_ms: int


class Sealer:
    """Seals and opens the records of a segment.

    Parameters
    ----------
    key
        Of the segment.
    """

    def __init__(self, key: SegmentKey) -> None:
        self._cipher = AESGCM(key.secret)

    def seal(self, place: Place, body: bytes, notes: bytes) -> bytes:
        """Return what may leave this machine."""
        nonce = os.urandom(_NONCE_BYTES)
        content = b"".join((_LENGTH.pack(len(body)), body, notes))
        return nonce + self._cipher.encrypt(nonce, content, _FACTS.pack(*place))

    def open(self, place: Place, sealed: bytes) -> tuple[bytes, bytes]:
        """Return body and notes.

        Raises
        ------
        ValueError
            When it is not what was sealed there, or with another key.
        """
        try:
            content = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _FACTS.pack(*place))
        except InvalidTag:
            raise ValueError("not what was sealed") from None
        (n_body,) = _LENGTH.unpack_from(content)
        middle = _LENGTH.size + n_body
        return content[_LENGTH.size : middle], content[middle:]


def checksum_of(place: Place, sealed: bytes) -> bytes:
    """Return the checksum of a sealed record."""
    digest = hashlib.sha256(_FACTS.pack(*place))
    digest.update(sealed)
    return digest.digest()[:_DIGEST_BYTES]
