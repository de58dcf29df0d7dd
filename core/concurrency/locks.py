"""The lock of a model: any number of threads read it, one at a time changes it.

    read         @reads           predictions, and whatever else is short
    long read    @reads_long      verify, digest, copies, files
    change       @writes          one after the other; what a change prepares is read beside the readers
      section    `Changes`        writes: no reader is inside
    resolve      lock.resolve     writes trees and no samples: readers that meet tags do it, one after the other

Readers do not wait for each other. A section closes the gates and waits until all readers are out, those that read for
long first: until these are done, short reads continue. A reader that finds a gate closed waits for that change.

What threads tell each other are single operations on built-in objects. A lock that is held is given back by `with`, and
a reader leaves in a `finally` that calls nothing: Ctrl-C leaves none behind. A gate that it leaves closed is opened by
the next reader, once no change is being made.
"""

import inspect
import os
import threading
import time
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from oubli.core.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")

_SHORTEST, _LONGEST = 2e-5, 1e-3  # seconds between two looks at a gate


class Gate:
    """Where readers come in.

    Attributes
    ----------
    is_closed : whether a change keeps readers out, or waits for those inside.
    inside : the threads that read.
    """

    __slots__ = ("inside", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False
        self.inside: dict[int, None] = {}

    def close(self) -> None:
        """Let no other thread in, and wait until all others are out."""
        self.is_closed = True
        if self.inside:
            me, pause = get_ident(), _SHORTEST
            while any(thread != me for thread in list(self.inside)):
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)


class ModelLock:
    """The lock of one model; see the top of this file.

    Attributes
    ----------
    short, long : the gates.
    changing : held by the thread that changes the model.
    changer : that thread; 0: none.
    shape : held while trees are resolved, and while they are copied.
    room : held while trees are resolved, and while their working space is used to look through tags.
    resolver : the thread that resolves; 0: none.
    """

    __slots__ = ("__weakref__", "changer", "changing", "long", "resolver", "room", "shape", "short")

    def __init__(self) -> None:
        self.short, self.long = Gate(), Gate()
        self.changing, self.shape, self.room = threading.RLock(), threading.RLock(), threading.RLock()
        self.changer = self.resolver = 0
        _all[id(self)] = self

    @property
    def is_read_here(self) -> bool:
        """Whether this thread reads the model."""
        me = get_ident()
        return me in self.short.inside or me in self.long.inside

    def close(self) -> None:
        """Keep readers out; the thread that resolves has the trees to itself already."""
        if self.resolver != get_ident():
            self.long.close()
            self.short.close()

    def open(self) -> None:
        """Let readers in again; the thread that resolves keeps none out, and a change may wait for its end."""
        if self.resolver != get_ident():
            self.short.is_closed = self.long.is_closed = False

    def await_gate(self, gate: Gate) -> None:
        """Wait until a gate is open."""
        while gate.is_closed:
            if self.changing.acquire(timeout=_LONGEST):
                self.open()  # an exception has left it closed: no change is being made
                self.changing.release()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Be the thread that changes the model, also between the steps of a generator."""
        with self.changing:
            self.changer = get_ident()
            try:
                yield
            finally:
                self.changer = 0

    def ask_alone(self, question: Callable[[], T]) -> T:
        """Ask something while no other thread changes or resolves the model."""
        if self.is_read_here:
            with self.shape, self.room:
                return question()
        with self.changing, self.shape, self.room:
            return question()

    def resolve(self, work: Callable[[], T]) -> T:
        """Call what writes trees, or their working space; other threads that need these wait."""
        with self.shape, self.room:
            before, self.resolver = self.resolver, get_ident()
            try:
                return work()
            finally:
                self.resolver = before

    # -- fork -----------------------------------------------------------------------------------

    def guards(self) -> list[Any]:
        """The locks that keep every section closed: a thread that reads keeps changes out already."""
        own = [self.shape, self.room]
        return own if self.is_read_here else [self.changing, *own]

    def forget_threads(self) -> None:
        """Forget all threads but this one: they do not exist in a child process."""
        me = get_ident()
        for gate in (self.short, self.long):
            gate.is_closed = False
            for thread in list(gate.inside):
                if thread != me:
                    del gate.inside[thread]
        self.changing, self.shape, self.room = threading.RLock(), threading.RLock(), threading.RLock()


_all: "weakref.WeakValueDictionary[int, ModelLock]" = weakref.WeakValueDictionary()
_forking = threading.RLock()
_held: list[Any] = []  # the locks that a fork holds


def _all_locks() -> list[ModelLock]:
    return [lock for reference in _all.valuerefs() if (lock := reference()) is not None]


def _before_fork() -> None:
    """Wait until every model is whole: the child gets its arrays as they are, and no thread that ends a change."""
    _forking.acquire()
    for lock in _all_locks():
        for guard in lock.guards():
            guard.acquire()
            _held.append(guard)


def _after_fork() -> None:
    while _held:
        _held.pop().release()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.RLock()
    _held.clear()
    for lock in _all_locks():
        lock.forget_threads()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


# -- methods ------------------------------------------------------------------------------------------


class Locked(Protocol):
    """What has the lock of a model."""

    @property
    def lock(self) -> ModelLock:
        """The lock."""


L = TypeVar("L", bound=Locked)


def _reading(gate_of: Callable[[ModelLock], Gate]) -> Callable[..., Any]:
    def decorate(method: Callable[..., T]) -> Callable[..., T]:
        @wraps(method)
        def read(self: Any, /, *args: Any, **kwargs: Any) -> T:
            lock, me = self.lock, get_ident()
            gate = gate_of(lock)
            if me in lock.short.inside or me in lock.long.inside:
                return method(self, *args, **kwargs)
            while True:
                try:
                    gate.inside[me] = None
                    if not gate.is_closed or lock.changer == me:
                        return method(self, *args, **kwargs)
                finally:
                    gate.inside.pop(me, None)
                lock.await_gate(gate)

        return read

    return decorate


def reads(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Let a method that is short see the model between two changes."""
    read: Callable[Concatenate[L, P], T] = _reading(attrgetter("short"))(method)
    return read


def reads_long(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Let a method that may take long see the model between two changes: short reads do not wait for it."""
    read: Callable[Concatenate[L, P], T] = _reading(attrgetter("long"))(method)
    return read


def reads_rows(method: Callable[[L, Any], T]) -> Callable[[L, Any], T]:
    """Do what `reads` does, in less time, for a method that takes rows and nothing else."""

    @wraps(method)
    def read(self: L, X: Any) -> T:
        lock, me = self.lock, get_ident()
        gate = lock.short
        inside = gate.inside
        if me in inside or me in lock.long.inside:
            return method(self, X)
        while True:
            try:
                inside[me] = None
                if not gate.is_closed or lock.changer == me:
                    return method(self, X)
            finally:
                inside.pop(me, None)
            lock.await_gate(gate)

    return read


def _reads_now(lock: ModelLock) -> bool:
    """Whether this thread is in a read of a model: looked up in its stack, which only a refusal has to do."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "read" and frame.f_locals.get("lock") is lock:
            return True
        frame = frame.f_back
    return False


def writes(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Let a method change the model while no other one does; what it writes, it writes in a section of `Changes`."""

    @wraps(method)
    def change(self: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        lock, me = self.lock, get_ident()
        if lock.changer == me:
            return method(self, *args, **kwargs)
        if me in lock.short.inside or me in lock.long.inside:
            if _reads_now(lock):
                raise InputError("this thread reads the model: change it after that has returned")
            for gate in (lock.short, lock.long):  # an exception at the very end of a read has left the mark
                gate.inside.pop(me, None)
        with lock.changing:
            lock.changer = me
            try:
                return method(self, *args, **kwargs)
            finally:
                lock.changer = 0

    return change
