"""The thread that resolves tags while requests are answered.

    event loop                                      thread
    ---------------------------------------------   ------------------------------------------
    lend: the model is not needed now          -->  resolves tags, without the interpreter
    answers what needs no tree
    take_back: a request needs the model       -->  ends the node that it is at
    waits for that                             <--  gives the model back, and sleeps

The model belongs to one of the two at any time. It is lent as it is, without a copy, and the thread uses the model's
own working space: when it is given back nothing of any sample is left here.

The thread has the priority of all others. With a lower one, other processes would keep it from the end of its node
while the loop waits for that.
"""

import asyncio
import os
import threading
import weakref
from contextlib import suppress

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.model import Model

_all: "weakref.WeakSet[TagThread]" = weakref.WeakSet()


class TagThread:
    """A thread that resolves the tags of a model that it is lent; its methods are for the event loop.

    Attributes
    ----------
    is_lent
        Whether the thread has the model.
    error
        What ended its work last; None when nothing did.
    """

    def __init__(self) -> None:
        self.is_lent = False
        self.error: BaseException | None = None
        self._stop: Ints = np.zeros(1, np.int64)
        self._model: Model | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[int] | None = None
        self._n_resolved = 0
        self._is_back = True
        self._has_work = _closed_lock()
        self._bell = _closed_lock()  # opened when the model is given back
        self._thread: threading.Thread | None = None
        _all.add(self)

    def lend(self, model: Model) -> "asyncio.Future[int]":
        """Lend the model; its trees must not be used until `take_back`.

        Returns
        -------
        Future
            How many tags were resolved; it is done when the model is back.

        Raises
        ------
        RuntimeError
            When the system has no more threads.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="oubli-tags", daemon=True)
            thread.start()
            self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._ended = ended = self._loop.create_future()
        self._stop[0] = 0
        self._model, self.error, self._n_resolved, self._is_back = model, None, 0, False
        self.is_lent = True
        self._has_work.release()
        return ended

    def take_back(self) -> None:
        """Have the model back, which takes one node at most; nothing when it is not lent."""
        if not self.is_lent:
            return
        self._stop[0] = 1
        while not self._is_back:
            self._bell.acquire()
        self.is_lent = False
        self._model = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(self._n_resolved)

    def close(self) -> None:
        """Take the model back and end the thread."""
        self.take_back()
        if self._thread is not None:
            self._has_work.release()  # without a model
            self._thread.join()
            self._thread = None

    def forsake(self) -> None:
        """Say that a lent model is unusable: in a forked child, where the thread will not give it back."""
        if self.is_lent and not self._is_back and self._model is not None:
            self._model.samples_.changes.depth += 1

    def _serve(self) -> None:
        while True:
            self._has_work.acquire()
            if self._model is None:
                return
            try:
                self._n_resolved = self._model.resolve_until(self._stop)
            except BaseException as error:  # no memory, for instance: tags that are left stay tags
                self.error = error.with_traceback(None)  # its frames hold the model
            is_early = not self._stop[0]
            self._is_back = True
            with suppress(RuntimeError):  # it is open already
                self._bell.release()
            if is_early and self._loop is not None:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self.take_back)


def _forsake_all() -> None:
    for thread in list(_all):
        thread.forsake()


os.register_at_fork(after_in_child=_forsake_all)


def _closed_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
