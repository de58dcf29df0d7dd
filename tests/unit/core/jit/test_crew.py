"""Threads that share work inside kernels: every piece is done once, by whichever thread, and all leave."""

import threading
import time
from functools import partial

import numpy as np
import pytest
from numba import config

from oubli.core.concurrency import threads
from oubli.core.jit import crew as crews
from oubli.core.jit.policy import inner, kernel

compiled = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="interpreted, nobody helps")


@inner
def do(crew, piece, done):
    for _ in range(1000):  # not one addition, so that it takes a while
        done[crew[crews.ARGUMENTS], piece] += crew[crews.WHAT]


@kernel
def lead(crew, done):
    for turn in range(done.shape[0]):
        crew[crews.ARGUMENTS] = turn
        crews.announce(crew, turn % 3 + 1, done.shape[1])
        piece = crews.take(crew)
        while piece >= 0:
            do(crew, piece, done)
            crews.end_piece(crew)
            piece = crews.take(crew)
        crews.await_pieces(crew)
        for i in range(done.shape[1]):
            done[turn, i] += 1  # after the pieces


@kernel
def help_out(crew, done):
    n_pieces = 0
    piece = crews.wait_for_piece(crew)
    while piece >= 0:
        do(crew, piece, done)
        crews.end_piece(crew)
        n_pieces += 1
        piece = crews.wait_for_piece(crew)
    return n_pieces


def expected(n_turns, n_pieces):
    return np.repeat((np.arange(n_turns) % 3 + 1)[:, np.newaxis] * 1000 + 1, n_pieces, axis=1)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n_pieces", [1, 2, 7])
def test_every_piece_is_done_once_in_its_turn(n_threads, n_pieces):
    crew = crews.make_crew(n_threads)
    for _ in range(3):
        done = np.zeros((200 if not config.DISABLE_JIT else 2, n_pieces), np.int64)
        crews.call_in(crew)
        threads.lead(partial(lead, crew, done), partial(help_out, crew, done), partial(crews.dismiss, crew), n_threads)
        assert np.array_equal(done, expected(*done.shape))


@compiled
def test_helpers_take_pieces_while_the_leader_is_away():
    crew, done = crews.make_crew(2), np.zeros((1, 3), np.int64)
    found = []
    helper = threading.Thread(target=lambda: found.append(help_out(crew, done)))
    helper.start()

    @kernel
    def announce_and_wait(crew):
        crew[crews.ARGUMENTS] = 0
        crews.announce(crew, 5, 3)
        crews.await_pieces(crew)

    announce_and_wait(crew)
    crews.dismiss(crew)
    helper.join()
    assert found == [3]
    assert done.tolist() == [[5000] * 3]


@compiled
def test_a_helper_that_comes_after_the_end_leaves_at_once():
    crew, done = crews.make_crew(2), np.zeros((1, 1), np.int64)
    crews.dismiss(crew)
    assert help_out(crew, done) == 0


@kernel
def looks(signal, most):
    """How often a signal was not set, up to `most` times."""
    n = 0
    while n < most and not crews.is_set(signal):
        n += 1
    return n


@compiled
def test_a_kernel_sees_what_another_thread_sets():
    """An ordinary load in a loop that writes nothing is done once, and the loop never ends."""
    signal, most = np.zeros(1, np.int64), 2**40
    looks(signal, 1)
    found = []
    thread = threading.Thread(target=lambda: found.append(looks(signal, most)), daemon=True)
    thread.start()
    time.sleep(0.02)
    signal[0] = 1
    thread.join(20)
    assert not thread.is_alive()
    assert found[0] < most
