"""Changes that are made completely or not at all; or else the model says that it is unusable.

A change of a model writes to many arrays and containers. Whatever can fail comes before the first write. What is left
is a critical section:

    with changes:                       no thread reads, the flag goes up, Ctrl-C waits
        store.hold(arrivals)
        changes.undo = [...]            from here on the change can be taken back
        room for the trees
        changes.undo = None             from here on it cannot
        the trees learn
                                        the flag goes down, other threads read, Ctrl-C comes

An exception that leaves the section takes the change back if it can be taken back. Otherwise the flag stays up, and
every later call is refused until `fit`, `start` or `load`. Nothing has to be caught for this: there is no line at
which an exception could go unnoticed.

KeyboardInterrupt is held back until the end of the outermost section, as PostgreSQL holds back interrupts in its
critical sections: in the main thread, where signals are handled, and if Ctrl-C would raise it: the handler is Python's
own, or a function. Handlers of event loops and servers are left alone; they raise nothing in the middle. A second
Ctrl-C is not held back: it comes at once, and the model is unusable.
"""

import os
import signal
import threading
import time

# Without the enumerations of `signal`, whose look-ups take eight times as long as what is looked up.
from _signal import getsignal as _get_handler  # type: ignore[import-not-found]
from _signal import signal as _set_handler
from _thread import get_ident
from collections.abc import Callable
from types import FrameType, FunctionType, TracebackType
from typing import Any

from oubli.core.array_types import Array
from oubli.core.concurrency.locks import ModelLock
from oubli.core.errors import UnusableModelError
from oubli.core.jit.aligned import shred

_SIGINT = int(signal.SIGINT)
_DEFAULT = signal.default_int_handler


class Changes:
    """The flag of a model and its samples, raised while they are changed.

    Attributes
    ----------
    depth : int
        Sections that are open, or were left by an exception; 0 when everything is whole.
    undo : list of (function, argument), or None
        What takes the open change back, the last one first; None when nothing does.
    lock : ModelLock
        Keeps readers out while a section is open; that of the model, once the samples belong to one.
    derived : dict of arrays by name
        What readers have computed of all samples, for other readers. The next change overwrites it: such numbers tell
        which samples were held.
    last : float
        When the last section began, in seconds since 1970; 0 when there was none.
    """

    __slots__ = ("_owner", "depth", "derived", "handler", "last", "lock", "undo")

    def __init__(self, lock: ModelLock | None = None) -> None:
        self.depth = 0
        self._owner = 0  # the thread whose section is open
        self.lock = lock or ModelLock()
        self.undo: list[tuple[Callable[[Any], Any], Any]] | None = None
        self.handler: Any = None  # that of Ctrl-C, while this section holds it back
        self.derived: dict[str, Array] = {}
        self.last = 0.0

    def __enter__(self) -> "Changes":
        me = get_ident()
        if self._owner != me or self.depth == 0:
            self.lock.close()
            self.undo = None
            self.last = time.time()
            if self.derived:
                self.forget_derived()
            if me == _MAIN_THREAD[0]:
                handler = _get_handler(_SIGINT)
                if handler is _wait and _HOLDING[0].depth == 0:
                    # An exception came between the end of that section and the handler's return.
                    handler = _HOLDING[0].handler or _DEFAULT
                if handler is _DEFAULT or (type(handler) is FunctionType and handler is not _wait):
                    self.handler = handler
                    _HOLDING[:] = (self,)
                    _PENDING.clear()
                    _set_handler(_SIGINT, _wait)
            self._owner = me
        self.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.depth -= 1
            if self.depth == 0:
                self._end()
        elif self.undo is not None and self.depth == 1:
            try:
                self._take_back()
            finally:
                self._end()
        else:
            self._end()

    def _end(self) -> None:
        self._owner = 0
        self.lock.open()
        if self.handler is not None:
            self.release()

    def _take_back(self) -> None:
        steps, self.undo = self.undo or [], None
        for function, argument in reversed(steps):
            function(argument)
        self.depth = 0

    def forget_derived(self) -> None:
        """Overwrite what readers have computed; no reader is inside."""
        kept, self.derived = self.derived, {}
        shred(kept.values())

    @property
    def is_broken(self) -> bool:
        """Whether a change was broken off; waits for the end of those that other threads make."""
        return self.depth > 0 and self.lock.ask_alone(lambda: self.depth > 0)

    def check(self) -> None:
        """Refuse to work after a change that was broken off.

        Raises
        ------
        UnusableModelError
        """
        if self.is_broken:
            raise UnusableModelError

    # -- Ctrl-C ---------------------------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Whether this section holds back a Ctrl-C: work that can be stopped should stop."""
        return self.handler is not None and len(_PENDING) > 0

    def release(self) -> None:
        """Give Ctrl-C its handler back, and pass on the one that waits."""
        handler = self.handler
        if handler is None:
            return
        if _get_handler(_SIGINT) is _wait:
            _set_handler(_SIGINT, handler)
        self.handler = None
        if _PENDING:
            frame = _PENDING.pop()
            handler(_SIGINT, frame)


_HOLDING: list[Changes] = []  # the section that Ctrl-C waits for; looked at by the main thread alone
_PENDING: list[FrameType | None] = []  # where Ctrl-C was pressed during the section
_MAIN_THREAD = [threading.main_thread().ident]
os.register_at_fork(after_in_child=lambda: _MAIN_THREAD.__setitem__(0, threading.main_thread().ident))


def _wait(signum: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C in a critical section: later, but the second time, and between two sections, now."""
    section = _HOLDING[0]
    is_now = section.depth == 0 or len(_PENDING) > 0
    _PENDING[:] = (frame,)
    if is_now:
        section.release()
