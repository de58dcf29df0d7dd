"""The tree over the samples held, kept up to date behind their changes; its root says which samples the model has.

    writer        a change is committed: its names are noted                     on the loop
    catching up   the samples under these names are read, the version with them  in one step of the loop
                  hashes, positions, the tree                                    in a thread
    root, proofs  after catching up: of exactly one state of the model           on the loop

Nothing of it is on the disk but the nonces of samples. At the start, and when another model takes the place of the live
one, the tree is made anew in the background: all samples are read piece by piece, while changes go on, and what has
changed meanwhile is made good like any other change.

Restricted samples are in no tree, in this one neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from oubli.app.errors import StillHeldError, SupersededError, UnavailableError
from oubli.app.ledger.set_leaves import Positions
from oubli.app.service.sample_leaves import Batch, Building, Leaves, SharedPlaceError
from oubli.core.slices import ITEMS

if TYPE_CHECKING:
    from oubli.app.ledger.key_files import PositionsKey
    from oubli.app.service.holders import Holders
    from oubli.app.service.state import ModelState, Names
    from oubli.app.threads import Threads
    from oubli.core.samples.store import HeldSample

log = logging.getLogger("oubli.service")

By = Literal["ids", "subjects"]
_AT_ONCE = 32  # names that are read in one step of the loop
_FEW = 8  # names whose leaves may be made on the loop, when an erasure waits for that
_MOST = 2000  # names that may wait for a moment in which nobody asks anything
_WAIT = 0.02  # seconds between two looks whether nobody asks anything
_RETRY = 1.0  # seconds
_ATTEMPTS = 3


class SetRoot(NamedTuple):
    """The root of the tree in one state of the model.

    Attributes
    ----------
    model_version
        Of the state.
    root
        32 bytes.
    n_samples
        How many samples the model has learned; those that are restricted are not among them.
    """

    model_version: int
    root: bytes
    n_samples: int


class AbsenceProof(NamedTuple):
    """That a name is not in the set.

    Attributes
    ----------
    by, name
        An id or a subject.
    state
        Of which state.
    position
        Of the name.
    others
        By depth, the hashes of the other children on its way, downwards; see `SetTree.prove_absence`.
    """

    by: By
    name: str
    state: SetRoot
    position: int
    others: dict[int, bytes]


@dataclass(slots=True)
class _Due:
    """Names that have changed up to a moment, for `Holders`."""

    _owner: SampleSet
    _number: int

    @property
    def is_over(self) -> bool:
        """Whether the tree has taken them in."""
        return self._owner.n_taken_in >= self._number

    def end(self) -> None:
        """Do nothing: it ends soon by itself."""


class SampleSet:
    """The set tree of the live model. It belongs to the event loop.

    Parameters
    ----------
    state
        Has the live model.
    key
        Says where names are.
    threads
        One is for hashing.
    holders
        Told that names and hashes are kept here.
    is_idle
        Whether nobody asks anything at present.

    Attributes
    ----------
    key
        Says where names are.
    n_taken_in
        Up to which change everything has been taken in.
    """

    def __init__(
        self, state: ModelState, key: PositionsKey, threads: Threads, holders: Holders, is_idle: Callable[[], bool]
    ) -> None:
        self.key = key
        self._state = state
        self._threads = threads
        self._is_idle = is_idle
        self._leaves = Leaves(key.secret)
        self._ids: set[str] = set()
        self._subjects: set[str] = set()
        self._n_touched = self.n_taken_in = 0
        self._is_built = False
        self._is_urgent = False
        self._now = SetRoot(0, b"", 0)
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._wake.set()
        holders.register("set", self._forget, self._in_flight)
        state.listeners.append(self._note_change)

    def _note_change(self, names: Names | None) -> None:
        """Note the names of what has changed; None: the tree has to be made anew."""
        self._n_touched += 1
        if names is None:
            self._is_built = False
        else:
            for kind, text in names:
                (self._ids if kind == "id" else self._subjects).add(text)
        self._wake.set()

    async def root(self) -> SetRoot:
        """Return the root of the state that the model is in, or in which it was since this was called.

        Raises
        ------
        UnavailableError
            When the model is in doubt.
        SupersededError
            When another model has come several times meanwhile.
        """
        if self._is_current():
            return self._now
        state, _ = await self._threads.finish(self._caught_up())
        return state

    def _is_current(self) -> bool:
        """Whether nothing has changed since the tree was brought up to date."""
        self._require_sound()
        is_taken_in = self._is_built and self.n_taken_in == self._n_touched and not self._turn.locked()
        return is_taken_in and self._now.model_version == self._state.version

    async def prove_absence(self, by: By, name: str) -> AbsenceProof:
        """Prove that a name is not in the set.

        Parameters
        ----------
        by, name
            An id or a subject.

        Raises
        ------
        StillHeldError
            When it is, or what it names is restricted: that is in no set, and is kept.
        UnavailableError, SupersededError
            See `root`.
        """
        self._require_gone(by, name)
        position = Positions(self.key.secret).of(("id" if by == "ids" else "subject", name))
        state, others = await self._threads.finish(self._caught_up(position))
        self._require_gone(by, name)  # it may have come, or have been restricted, meanwhile
        if others is None:
            raise StillHeldError(is_restricted=False)
        return AbsenceProof(by, name, state, position, others)

    def _require_gone(self, by: By, name: str) -> None:
        store = self._state.model.samples_
        is_id = by == "ids"
        if store.contains(name) if is_id else store.ids_of_subject(name):
            raise StillHeldError(is_restricted=False)
        if store.restricted.holds(name) if is_id else name in store.restricted.marks:
            raise StillHeldError(is_restricted=True)

    async def run(self) -> None:
        """Take in what has changed, in the background, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not (self._is_idle() or self._is_urgent or len(self._ids) >= _MOST):  # noqa: ASYNC110 - time is awaited
                await asyncio.sleep(_WAIT)
            try:
                await self._threads.finish(self._caught_up())
            except UnavailableError:
                return  # nothing is changed any more
            except Exception as error:
                log.error("the tree over the samples could not be made (%s): it is tried again", type(error).__name__)
                await asyncio.sleep(_RETRY)
                self._wake.set()

    # --- catching up

    async def _caught_up(self, position: int = 0) -> tuple[SetRoot, dict[int, bytes] | None]:
        """Take in everything; return the state, and the tree's proof that a position is not in it then."""
        async with self._turn:
            for attempt in range(_ATTEMPTS):
                try:
                    if await self._catch_up():
                        return self._now, self._leaves.tree.prove_absence(position)
                    # Two names have one position, or another model has come meanwhile.
                    self._is_built = False
                except BaseException as error:
                    self._drop()
                    if not isinstance(error, Exception) or attempt == _ATTEMPTS - 1 or self._state.failed:
                        raise
        raise SupersededError("the samples were replaced meanwhile: ask again")

    async def _catch_up(self) -> bool:
        """Take in everything; false when the tree has to be made anew."""
        if not self._is_built:
            await self._build()
        is_last = False
        while not is_last:
            self._require_sound()
            if not self._is_built:
                return False
            ids, subjects = self._take()
            is_last = not (self._ids or self._subjects)
            number, now = self._n_touched, self._described()
            batch = self._read(ids, subjects)
            n_subjects = self._state.model.samples_.subjects.n_subjects
            if ids or subjects:
                try:
                    await self._threads.hash(partial(self._leaves.take_in, batch))
                except SharedPlaceError:
                    return False
            if is_last:
                if not self._leaves.has(now.n_samples, n_subjects):
                    return False
                self._settle(number, now)
        return True

    def _take(self) -> tuple[list[str], list[str]]:
        """Return the next names; subjects come with all ids that wait, which their leaves are made of."""
        ids = [self._ids.pop() for _ in range(min(_AT_ONCE, len(self._ids)))]
        if self._ids:
            return ids, []
        return ids, [self._subjects.pop() for _ in range(min(_AT_ONCE, len(self._subjects)))]

    def _settle(self, number: int, now: SetRoot) -> None:
        """Note that everything up to a change has been taken in."""
        self.n_taken_in = number
        self._is_urgent = self._is_urgent and number < self._n_touched
        self._now = now._replace(root=self._leaves.tree.root())

    async def _build(self) -> None:
        """Make the tree anew."""
        self._drop()
        self._require_sound()
        self._is_built = True  # until another model comes
        names = await self._all_ids()
        made = Building(self.key.secret, len(names))
        for start in range(0, len(names), _AT_ONCE):
            if not self._is_built:
                return
            batch = self._read(names[start : start + _AT_ONCE], [])
            await self._threads.hash(partial(made.take_in, batch))
        self._leaves = await self._threads.hash(made.finished)

    async def _all_ids(self) -> list[str]:
        """Return the ids of all samples, each once; those that come or go meanwhile are noted as changes."""
        names: dict[str | None, None] = {}
        await self._threads.hash(self._state.model.samples_.build_index)
        slots = self._state.model.samples_.slots()
        for start in range(0, len(slots), ITEMS):
            id_at = self._state.model.samples_.id_at
            names.update(dict.fromkeys(id_at[slot] for slot in slots[start : start + ITEMS].tolist()))
            await asyncio.sleep(0)
            if not self._is_built:
                break  # another model has other slots
        return [name for name in names if name is not None]

    def _drop(self) -> None:
        """Overwrite the tree, and forget all names: nothing is kept then."""
        self._leaves.tree.shred()
        self._leaves = Leaves(self.key.secret)
        self._ids.clear()
        self._subjects.clear()
        self._is_built, self._is_urgent = False, False
        self.n_taken_in = self._n_touched

    def _read(self, ids: Iterable[str], subjects: Iterable[str]) -> Batch:
        """Read samples as they are now; those that are not held have left."""
        store = self._state.model.samples_
        found: list[tuple[str, HeldSample | None, bytes]] = []
        for name in ids:
            if store.contains(name):
                nonce = store.nonce(name)
                if nonce is None:
                    raise RuntimeError("a sample has no nonce")
                found.append((name, store.get(name), nonce))
            else:
                found.append((name, None, b""))
        return Batch(store.schema, found, [(subject, store.ids_of_subject(subject)) for subject in subjects])

    def _described(self) -> SetRoot:
        return SetRoot(self._state.version, b"", self._state.model.n_samples_)

    def _require_sound(self) -> None:
        if self._state.failed or not self._state.model.is_usable:
            raise UnavailableError("failed")

    # --- erasures

    def _in_flight(self) -> list[_Due]:
        """Return what has changed and was not taken in yet."""
        if self.n_taken_in == self._n_touched:
            return []
        self._is_urgent = True
        self._wake.set()
        return [_Due(self, self._n_touched)]

    def _forget(self, period: int) -> None:
        """Take in at once what has changed, where that is short; `period` is no matter."""
        del period
        if self._turn.locked() or self.n_taken_in == self._n_touched:
            return
        if not self._is_built or self._state.failed or not self._state.model.is_usable:
            self._drop()
        elif self._is_short():
            self._take_in_now()

    def _is_short(self) -> bool:
        """Whether what has changed is soon taken in."""
        subjects = self._state.model.samples_.subjects
        if max(len(self._ids), len(self._subjects)) > _FEW:
            return False
        return all(len(subjects.slots(subject)) <= _AT_ONCE for subject in self._subjects)

    def _take_in_now(self) -> None:
        now, n_subjects = self._described(), self._state.model.samples_.subjects.n_subjects
        try:
            self._leaves.take_in(self._read(*self._take()))
            is_whole = self._leaves.has(now.n_samples, n_subjects)
        except Exception as error:
            log.error("the tree over the samples could not be changed (%s): it is made anew", type(error).__name__)
            is_whole = False
        if is_whole:
            self._settle(self._n_touched, now)
        else:
            self._drop()
            self._wake.set()
