"""The fast way to write a sample gives what the slow one does, which follows RFC 8785 step by step."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest

from oubli.verifier.canonical import _text, canonical_sample

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-4, 9.999e-5, 1e-6, 1e-7, 1e15, 1e16, 123456789012345680.0, 1e20, 1e21, 5e-324]
NUMBERS += [2**53, 2**70, -(2**53), 1e16 - 2, 0.5, 1 / 3, 1.7976931348623157e308]
TEXTS = ["", "a", "ä", "€", "\u2028", "😀", '"\\\b\f\n\r\t', "\x00\x1f\x7f", "/"]
NAMES = ["a", "B", "aa", "ä", "\ue000", "😀", "z\x01"]


def any_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(7 if depth < 3 else 5)
    if kind == 0:
        return draw.choice(NUMBERS)
    if kind == 1:
        number = struct.unpack("<d", draw.randbytes(8))[0]
        return number if math.isfinite(number) else None
    if kind == 2:
        return draw.choice(TEXTS)
    if kind == 3:
        return draw.choice([None, True, False])
    if kind == 4:
        return draw.choice([draw.randrange(-(10**6), 10**6), draw.randrange(10**6) / 100])
    if kind == 5:
        return [any_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    names = draw.sample(NAMES if draw.random() < 0.3 else NAMES[:3], 3)
    return {name: any_value(draw, depth + 1) for name in names}


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_give_the_same(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(500):
        value = any_value(draw)
        assert canonical_sample(value) == _text(value).encode()


@pytest.mark.parametrize("value", [math.nan, {"a": math.inf}, {"a": {1, 2}}, object(), ["\ud800"]])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it says nothing
        canonical_sample(value)
