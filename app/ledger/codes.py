"""HMAC-SHA256 (RFC 2104) for short keys: two hashes. That of the standard library takes four times as long to begin."""

from hashlib import sha256

_BLOCK_BYTES = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def hmac_sha256(key: bytes, content: bytes) -> bytes:
    """Return the code of a content under a key of at most 64 bytes."""
    block = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(block.translate(_INNER) + content).digest()
    return sha256(block.translate(_OUTER) + inner).digest()
