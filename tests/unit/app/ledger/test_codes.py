"""The code of short keys is HMAC as the standard library has it, and as RFC 4231 has its examples."""

from __future__ import annotations

import hmac
import random

import pytest

from oubli.app.ledger.codes import Hmac


@pytest.mark.parametrize(
    ("key", "content", "code"),
    [
        (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
    ],
)
def test_published_codes(key, content, code):
    assert Hmac(key).code(content).hex() == code


def test_any_content():
    draw = random.Random(3)
    for _ in range(300):
        key, content = draw.randbytes(draw.choice([0, 1, 32, 63, 64])), draw.randbytes(draw.randint(0, 200))
        assert Hmac(key).code(content) == hmac.digest(key, content, "sha256")
