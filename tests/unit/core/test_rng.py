"""`oubli.core.rng` against known answers; histories compare all that is drawn with the oracles."""

import numpy as np

from oubli.core import rng
from tests.oracles import common


def test_mix_gives_the_published_sequence() -> None:
    """splitmix64 seeded with 1234567: the widely published first outputs."""
    states = [(1234567 + n * common.GOLDEN) % 2**64 for n in (1, 2, 3)]
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(rng.mix(np.uint64(state))) for state in states] == outputs
    assert [common.mix(state) for state in states] == outputs
