"""What confirms a guess about an erased sample to anyone who has all other samples: digests, bare, hashed or salted."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator

_HEX = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def forms(digest: str) -> Iterator[bytes]:
    """A digest in the encodings and unkeyed hashes that it could be found by."""
    raw = bytes.fromhex(digest)
    for content in (raw, hashlib.sha256(raw).digest(), hashlib.sha256(digest.encode()).digest()):
        yield content
        yield content.hex().encode()
        yield base64.b64encode(content).rstrip(b"=")[:-1]


def hex_in(contents: Iterable[bytes]) -> set[str]:
    """All that could be a digest or a salt: 64 hexadecimal digits that stand alone."""
    return {found.decode() for text in contents for found in _HEX.findall(text)}


def is_in(digest: str, everything: bytes) -> bool:
    return any(form in everything for form in forms(digest))


def is_salted(digest: str, known: set[str]) -> bool:
    """Whether the hash of a digest with some salt is known, and the salt too."""
    raw = bytes.fromhex(digest)
    return any(hashlib.sha256(bytes.fromhex(salt) + raw).hexdigest() in known for salt in known)
