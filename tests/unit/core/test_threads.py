"""Pieces of work in threads: all results in order, errors, Ctrl-C, forks."""

import os
import threading
import time
import weakref
from contextlib import suppress

import pytest

from oubli.core.concurrency import threads
from oubli.core.errors import InputError
from tests.lines import failing_line


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
def test_results_come_in_the_order_of_the_pieces(n_threads):
    def piece(number):
        def work():
            time.sleep(0.001 * (5 - number % 5))
            return number

        return work

    assert threads.run([piece(number) for number in range(20)], n_threads) == list(range(20))


def test_one_thread_is_the_callers_own_and_several_run_side_by_side():
    me = threading.get_ident()
    assert threads.run([threading.get_ident] * 3, 1) == [me] * 3
    assert threads.run([threading.get_ident], 4) == [me]
    meeting = threading.Barrier(3, timeout=30)
    threads.run([meeting.wait] * 3, 3)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_first_error_is_raised_after_all_that_were_begun(error):
    ended, begun = [], threading.Barrier(2, timeout=30)

    def fails():
        begun.wait()
        raise error("the first")

    def ends():
        begun.wait()
        time.sleep(0.02)
        ended.append(True)

    with pytest.raises(error, match="the first"):
        threads.run([fails, ends, *[lambda: time.sleep(0.01)] * 20], 2)
    assert ended == [True]


def test_a_forked_child_has_threads_of_its_own():
    meeting = threading.Barrier(2, timeout=30)
    threads.run([meeting.wait] * 2, 2)
    child = os.fork()
    if child == 0:
        again = threading.Barrier(2, timeout=30)
        threads.run([again.wait] * 2, 2)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_how_many_threads_are_asked_for(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    asked = {None: 1, 1: 1, 3: 3, 100: 4, -1: 4, -2: 3, -100: 1}
    assert {n_jobs: threads.threads_of(n_jobs) for n_jobs in asked} == asked
    for wrong in (0, True, 1.5, "all"):
        with pytest.raises(InputError, match="n_jobs"):
            threads.threads_of(wrong)


def test_an_error_between_any_two_lines_leaves_no_piece_at_work():
    def attempt(fault):
        begun, ended = [], []

        def piece():
            begun.append(1)
            time.sleep(0.002)
            ended.append(1)

        with fault as count, suppress(KeyboardInterrupt):
            threads.run([piece] * 6, 3)
        n = len(begun)
        assert len(ended) == n
        time.sleep(0.005)
        assert len(begun) == n
        return count.n

    n_lines = attempt(failing_line(None, below=threads.__file__))
    assert n_lines > 20
    for line in range(n_lines):
        attempt(failing_line(line, below=threads.__file__))


def test_work_is_done_without_threads_when_the_system_has_none(monkeypatch):
    def no_thread():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_take_helper", no_thread)
    assert threads.run([lambda: 1, lambda: 2], 2) == [1, 2]
    assert threads.lead(lambda: 3, lambda: 4, lambda: None, 2) == 3
    done = []
    assert threads.beside(lambda: done.append("work"), lambda: done.append("aside"), 2) == (None, None)
    assert done == ["work", "aside"]


def test_pieces_are_let_go_of():
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    meeting = threading.Barrier(2, timeout=30)
    threads.run([lambda held=thing: (meeting.wait(), held)[0] and None] * 2, 2)
    del thing
    deadline = time.monotonic() + 30
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert gone() is None


@pytest.mark.parametrize("n_threads", [2, 3, 7])
def test_helpers_work_until_they_are_dismissed(n_threads):
    is_over = threading.Event()
    came = threading.Barrier(n_threads, timeout=30)

    def help_out():
        came.wait()
        assert is_over.wait(30)

    assert threads.lead(lambda: came.wait() >= 0, help_out, is_over.set, n_threads)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("who", ["leader", "dismissal"])
def test_helpers_have_left_when_an_error_is_raised(error, who):
    is_over, came, left, calls = threading.Event(), threading.Event(), [], []

    def help_out():
        came.set()
        assert is_over.wait(30)
        time.sleep(0.02)
        left.append(True)

    def lead():
        assert came.wait(30)
        if who == "leader":
            raise error("on purpose")

    def dismiss():
        calls.append(True)
        if who == "dismissal" and len(calls) == 1:
            raise error("on purpose")
        is_over.set()

    with pytest.raises(error, match="on purpose"):
        threads.lead(lead, help_out, dismiss, 2)
    assert left == [True]


def test_an_error_of_a_helper_is_raised_when_the_work_is_done():
    came = threading.Event()

    def help_out():
        came.set()
        raise ValueError("of the helper")

    with pytest.raises(ValueError, match="of the helper"):
        threads.lead(lambda: came.wait(30), help_out, lambda: None, 2)


def test_what_is_done_beside_work_meets_it_where_there_are_threads():
    meeting = threading.Barrier(2, timeout=30)
    assert sorted(threads.beside(meeting.wait, meeting.wait, 2)) == [0, 1]
    me = threading.get_ident()
    assert threads.beside(threading.get_ident, threading.get_ident, 1) == (me, me)
    assert threads.beside(threading.get_ident, lambda: "aside", 3) == (me, "aside")


@pytest.mark.parametrize("n_threads", [1, 2])
def test_errors_beside_work_are_raised(n_threads):
    def fail(error):
        raise error

    with pytest.raises(ValueError, match="aside"):
        threads.beside(lambda: None, lambda: fail(ValueError("aside")), n_threads)
    with pytest.raises(KeyError, match="work"):
        threads.beside(lambda: fail(KeyError("work")), lambda: None, n_threads)
