"""A kernel that is called without a look at its arguments does what it does otherwise."""

import numpy as np
import pytest

from oubli.core.data.encoding import CLEAN, LARGE, REFUSED, convert
from oubli.core.jit.policy import Direct
from oubli.core.rng import mix


def test_later_calls_do_what_the_first_did() -> None:
    direct = Direct(convert)
    for value, flags in ((1.5, CLEAN), (-0.0, CLEAN), (np.inf, REFUSED | LARGE), (2.5, CLEAN)):
        narrow = np.ones(2, np.bool_)
        source, cells = np.array([[value, 3.0]]), np.zeros((1, 2), np.float32)
        again = np.zeros((1, 2), np.float32)
        assert direct.call(source, cells, narrow) == convert(source, again, narrow) == flags
        assert cells.tobytes() == again.tobytes()


def test_each_has_the_types_of_its_own_first_call() -> None:
    for dtype in (np.float32, np.float64):
        direct = Direct(convert)
        for value in (1.1, 2.2):
            cells = np.zeros((1, 1), dtype)
            assert direct.call(np.array([[value]]), cells, np.array([dtype is np.float32])) == CLEAN
            assert cells[0, 0] == dtype(value)


def test_what_is_interpreted_is_called_as_it_is() -> None:
    direct = Direct(max)
    assert [direct.call(1, 2), direct.call(3, 2)] == [2, 3]


def test_a_wrong_number_of_arguments_is_refused() -> None:
    direct = Direct(mix)
    direct.call(np.uint64(1))
    with pytest.raises(TypeError):
        direct.call(np.uint64(1), np.uint64(2))
