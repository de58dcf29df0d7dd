from oubli.core.concurrency import slices
from oubli.core.concurrency.slices import begin_to_rest, cut, lists


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
