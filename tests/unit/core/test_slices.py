import numpy as np
import pytest

from oubli.core.concurrency import slices
from oubli.core.concurrency.slices import begin_to_rest, copied_dict, copied_list, cut, integers, lists

SIZES = [0, 1, 3, 4, 5, 8, 9]


@pytest.mark.parametrize("n", SIZES)
def test_all_is_handled_once_and_in_order(n):
    values = list(range(n))
    parts = [values[part] for part in cut(n, 4)]
    assert [value for part in parts for value in part] == values
    assert all(0 < len(part) <= 4 for part in parts)
    assert list(lists(iter(values), 4)) == parts


@pytest.mark.parametrize("n", [*SIZES, 3 * 4096, 3 * 4096 + 1])
def test_copies(n):
    names = [str(i) for i in range(n, 0, -1)]
    values = {name: i for i, name in enumerate(names)}
    assert copied_list(names) == names
    assert copied_list(names) is not names
    assert list(copied_dict(values).items()) == list(values.items())
    array = integers(values.values(), n)
    assert (array.dtype, array.tolist()) == (np.int64, list(range(n)))


def test_others_run_between_two_slices_of_a_process_that_answers(monkeypatch):
    rests = []
    monkeypatch.setattr(slices.time, "sleep", rests.append)
    monkeypatch.setattr(slices, "_rest", [0.0])
    works = (lambda: list(cut(12, 4)), lambda: list(lists(range(12), 4)))
    for work in works:
        work()
    assert rests == []
    begin_to_rest()
    for work in works:
        rests.clear()
        work()
        assert len(rests) >= 2
        assert min(rests) > 0
