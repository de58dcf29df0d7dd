"""Measure in a process of its own, whose memory no earlier measurement has fragmented."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

Found = TypeVar("Found")


def in_a_process(work: Callable[[], Found]) -> Found:
    """What a measurement returns, made in a copy of this process; it prints as usual.

    Raises
    ------
    RuntimeError
        When it fails; the reason is on stderr.
    """
    forked = multiprocessing.get_context("fork")
    receiver, sender = forked.Pipe(duplex=False)
    process = forked.Process(target=_send, args=(sender, work))
    process.start()
    sender.close()
    try:
        found: Found = receiver.recv()
    except EOFError:
        raise RuntimeError("the measurement failed") from None
    finally:
        process.join()
    return found


def _send(sender: Connection, work: Callable[[], object]) -> None:
    sender.send(work())
