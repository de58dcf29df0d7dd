import threading
import time

import numpy as np
import pytest
from numba import config

from oubli.core.jit.crew import is_set
from oubli.core.jit.policy import kernel


@kernel
def looks(signal, most):
    """How often a signal was not set, up to `most` times."""
    n = 0
    while n < most and not is_set(signal):
        n += 1
    return n


def test_it_is_set_when_it_is_not_zero() -> None:
    signal = np.zeros(1, np.int64)
    assert looks(signal, 3) == 3
    for number in (1, -1, 2**40):
        signal[0] = number
        assert looks(signal, 3) == 0


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="interpreted, it would take too long")
def test_a_kernel_sees_what_another_thread_sets() -> None:
    """An ordinary load in a loop that writes nothing is done once, and the loop never ends."""
    signal, most = np.zeros(1, np.int64), 2**40
    looks(signal, 1)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(looks(signal, most)), daemon=True)
    thread.start()
    time.sleep(0.02)
    signal[0] = 1
    thread.join(20)
    assert not thread.is_alive()
    assert found[0] < most
