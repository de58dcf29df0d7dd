"""The tree over the samples held, kept up to date behind their changes; its root says which samples the model has.

    writer        a change is committed: its names are noted                     on the loop
    catching up   the samples under these names are read, the version with them  in one step of the loop
                  hashes, positions, the tree                                    in a thread
    root, proofs  after catching up: of exactly one state of the model           on the loop

Nothing of it is on the disk but the nonces of samples. At the start, and when another model takes the place of the live
one, the tree is rebuilt in the background: all samples are read piece by piece, while changes continue. They are taken
in like all other changes.

Restricted samples are in no tree, in this one neither.

How the leaves of the set tree follow the samples held; what runs in a thread, see `sample_set`.

The values of samples as answers show them, and as they are hashed.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from oubli.app.errors import StillHeldError, SupersededError, UnavailableError
from oubli.app.ledger.keys import PositionsKey
from oubli.app.ledger.set_tree import Positions, SetTree, as_written, content_of, hash_of_sample, in_order
from oubli.app.logs import cause_of
from oubli.app.service.erasure.holders import Holders
from oubli.app.service.model.state import ModelState
from oubli.app.threads import Threads
from oubli.core.concurrency.slices import ITEMS, cut, lists
from oubli.core.data.schema import Schema
from oubli.core.data.values import LabelType, shortest
from oubli.core.samples.records import HeldSample
from oubli.core.samples.set_tree import HASH_BYTES


def values_as_held(sample: HeldSample, schema: Schema) -> tuple[list[Any], Any]:
    """Return features and label with every number in the shortest form that reads back as the one held."""
    columns = zip(sample.features, schema.columns, strict=True)
    features = [shortest(cell, column.dtype) if type(cell) is float else cell for cell, column in columns]
    return features, label_as_held(sample.label, schema)


def label_as_held(label: Any, schema: Schema) -> Any:
    """Return a label in the shortest form that reads back as the one held."""
    # Among scalars 1, 1.0 and true are three labels: there a float stays one.
    if schema.label_type is LabelType.NUMBER and type(label) is float:
        return shortest(label, "float64")
    return label


class Batch(NamedTuple):
    """Samples as they are in one step of the loop.

    Attributes
    ----------
    schema
        Of the samples.
    ids
        Each id with its sample and nonce; None is not held.
    subjects
        Each subject with the ids that it has.
    """

    schema: Schema
    ids: list[tuple[str, HeldSample | None, bytes]]
    subjects: list[tuple[str, list[str]]]


class SharedPlaceError(Exception):
    """A name has changed whose position is another's too."""


class _Hashing:
    """Makes hashes and positions.

    Parameters
    ----------
    secret
        The key of positions.
    """

    def __init__(self, secret: bytes) -> None:
        self.positions = Positions(secret)
        self._schema: Schema | None = None
        self._columns: list[tuple[str, int, str]] = []  # name, place and dtype, in the order of the JSON

    def hashes(self, batch: Batch) -> Iterator[tuple[str, int, HeldSample | None, bytes]]:
        """Yield id, position, sample and hash; what is not held has none."""
        if batch.schema is not self._schema:
            self._schema, names = batch.schema, batch.schema.names
            places = [(name, names.index(name)) for name in in_order(names)]
            self._columns = [(name, j, batch.schema.columns[j].dtype) for name, j in places]
        for name, sample, nonce in batch.ids:
            content = b""
            if sample is not None:
                cells, label = sample.features, label_as_held(sample.label, batch.schema)
                features = {
                    column: as_written(shortest(cell, dtype)) if isinstance(cell := cells[j], float) else cell
                    for column, j, dtype in self._columns
                }
                content = hash_of_sample(nonce, name, sample.subject, features, as_written(label), sample.weight)
            yield name, self.positions.of(("id", name)), sample, content


class Leaves(_Hashing):
    """The tree, and how its leaves change.

    Attributes
    ----------
    tree
        The tree.
    shared
        Positions that several names share, with the hashes of samples by id. None was ever seen; the tree is rebuilt
        when one of these names changes.
    """

    def __init__(self, secret: bytes, tree: SetTree | None = None) -> None:
        super().__init__(secret)
        self.tree = SetTree() if tree is None else tree
        self.shared: dict[int, dict[str, bytes]] = {}
        self.n_ids = self.n_subjects = 0  # names, as far as each has a leaf or shares one

    def take_in(self, batch: Batch) -> None:
        """Change the leaves of names.

        Raises
        ------
        SharedPlaceError
            When the tree has to be rebuilt.
        """
        tree, puts = self.tree, []
        for _, position, sample, content in self.hashes(batch):
            if position in self.shared:
                raise SharedPlaceError
            if sample is None:
                self.n_ids -= tree.remove(position)
            else:
                puts.append((position, content))
        for position, content in puts:
            self.n_ids += tree.put(position, content)
        for subject, ids in batch.subjects:
            position = self.positions.of(("subject", subject))
            if position in self.shared:
                raise SharedPlaceError
            if ids:
                self.n_subjects += tree.put(position, content_of([self._hash_of(name) for name in ids]))
            else:
                self.n_subjects -= tree.remove(position)

    def has(self, n_ids: int, n_subjects: int) -> bool:
        """Whether there are leaves of so many names: when two have come to one position, there are fewer."""
        return (self.n_ids, self.n_subjects) == (n_ids, n_subjects)

    def _hash_of(self, name: str) -> bytes:
        position = self.positions.of(("id", name))
        content = self.shared[position][name] if position in self.shared else self.tree.get(position)
        if content is None:
            raise RuntimeError("a sample of a subject has no leaf")
        return content


@dataclass(eq=False, repr=False)
class Building:
    """A tree over all samples, built at once.

    Parameters
    ----------
    secret
        The key of positions.
    n_expected
        How many samples there will be, roughly.
    """

    _secret: bytes
    _n_expected: int
    _hashing: _Hashing = field(init=False)
    _names: list[str] = field(default_factory=list, init=False)
    _positions: array[int] = field(default_factory=lambda: array("Q"), init=False)
    _contents: bytearray = field(default_factory=bytearray, init=False)
    _rows: dict[str, list[int]] = field(default_factory=dict, init=False)  # of each subject

    def __post_init__(self) -> None:
        self._hashing = _Hashing(self._secret)

    def take_in(self, batch: Batch) -> None:
        """Take in samples."""
        for name, position, sample, content in self._hashing.hashes(batch):
            if sample is not None:
                if sample.subject is not None:
                    self._rows.setdefault(sample.subject, []).append(len(self._names))
                self._names.append(name)
                self._positions.append(position)
                self._contents += content

    def finished(self) -> Leaves:
        """Return the tree."""
        leaves = Leaves(self._secret, SetTree(self._n_expected + len(self._rows)))
        positions, contents = array("Q"), bytearray()
        order = np.argsort(np.array(self._positions, np.uint64))
        last: list[int] = []

        def end() -> None:
            """Give the rows with one position their leaf."""
            if last:
                hashes = [self._hash(row) for row in last]
                positions.append(self._positions[last[0]])
                contents.extend(hashes[0] if len(last) == 1 else content_of(hashes))
                if len(last) > 1:
                    leaves.shared[positions[-1]] = {self._names[row]: self._hash(row) for row in last}

        for part in cut(len(order)):
            for row in map(int, order[part]):
                if last and self._positions[row] != self._positions[last[0]]:
                    end()
                    last.clear()
                last.append(row)
        end()
        subjects: dict[int, list[str]] = {}
        places = self._hashing.positions
        for subject in chain.from_iterable(lists(self._rows)):
            subjects.setdefault(places.of(("subject", subject)), []).append(subject)
        for position in chain.from_iterable(lists(sorted(subjects))):
            rows = [row for subject in subjects[position] for row in self._rows[subject]]
            positions.append(position)
            contents += content_of([self._hash(row) for row in rows])
            if len(subjects[position]) > 1:
                leaves.shared[position] = {}
        leaves.tree.fill(positions, contents)
        leaves.n_ids, leaves.n_subjects = len(self._names), len(self._rows)
        self._contents[:] = bytes(len(self._contents))
        contents[:] = bytes(len(contents))
        return leaves

    def _hash(self, row: int) -> bytes:
        return bytes(self._contents[row * HASH_BYTES : (row + 1) * HASH_BYTES])


log = logging.getLogger("oubli.service")

By = Literal["ids", "subjects"]
_AT_ONCE = 32  # names that are read in one step of the loop
_FEW = 8  # names whose leaves may be made on the loop, when an erasure waits for that
_MOST = 2000  # names that may wait for a moment without requests
_WAIT = 0.02  # seconds between two looks whether there are no requests
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
        The registry, which lists that names and hashes are kept here.
    is_idle
        Whether there are no requests at present.

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
        self._touched = state.touched
        self.n_taken_in = 0
        self._built_for: int | None = None  # see `_is_built`
        self._is_urgent = False
        self._now = SetRoot(0, b"", 0)
        self._turn = asyncio.Lock()
        self._touched.event.set()
        holders.register("set", self._forget, self._in_flight)

    @property
    def _is_built(self) -> bool:
        """Whether the tree is that of the live model, but for changes that it has not taken in."""
        return self._built_for == self._touched.n_models

    async def root(self) -> SetRoot:
        """Return the root of the state that the model is in, or in which it was since this was called.

        Raises
        ------
        UnavailableError
            When the model is in doubt.
        SupersededError
            When another model has taken the place of the live one several times.
        """
        if self._is_current():
            return self._now
        state, _ = await self._threads.finish(self._caught_up())
        return state

    def _is_current(self) -> bool:
        """Whether nothing has changed since the tree was brought up to date."""
        self._require_sound()
        is_taken_in = self._is_built and self.n_taken_in == self._touched.n and not self._turn.locked()
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
        self._require_gone(by, name)  # it may have come, or have been restricted, since
        if others is None:
            raise StillHeldError(is_restricted=False)
        return AbsenceProof(by, name, state, position, others)

    def _require_gone(self, by: By, name: str) -> None:
        store = self._state.model.samples_
        is_id = by == "ids"
        if store.contains(name) if is_id else store.ids_of_subject(name):
            raise StillHeldError(is_restricted=False)
        if store.restricted.contains(name) if is_id else name in store.restricted.marks:
            raise StillHeldError(is_restricted=True)

    async def run(self) -> None:
        """Take in what has changed, in the background, until cancelled."""
        while True:
            await self._touched.event.wait()
            self._touched.event.clear()
            while not (self._is_idle() or self._is_urgent or len(self._touched.ids) >= _MOST):  # noqa: ASYNC110 - a pause
                await asyncio.sleep(_WAIT)
            try:
                await self._threads.finish(self._caught_up())
            except UnavailableError:
                return  # nothing is changed any more
            except Exception as error:
                log.error("the tree over the samples could not be made, and it is tried again: %s", cause_of(error))
                await asyncio.sleep(_RETRY)
                self._touched.event.set()

    # --- catching up

    async def _caught_up(self, position: int = 0) -> tuple[SetRoot, dict[int, bytes] | None]:
        """Take in everything; return the state, and the tree's proof that a position is not in it then."""
        async with self._turn:
            for attempt in range(_ATTEMPTS):
                try:
                    if await self._catch_up():
                        return self._now, self._leaves.tree.prove_absence(position)
                    # Two names have one position, or another model has come.
                    self._built_for = None
                except BaseException as error:
                    self._drop()
                    if not isinstance(error, Exception) or attempt == _ATTEMPTS - 1 or self._state.failed:
                        raise
        raise SupersededError("the samples were replaced meanwhile: ask again")

    async def _catch_up(self) -> bool:
        """Take in everything; false when the tree has to be rebuilt."""
        if not self._is_built:
            await self._build()
        is_last = False
        while not is_last:
            self._require_sound()
            if not self._is_built:
                return False
            ids, subjects = self._take()
            is_last = not (self._touched.ids or self._touched.subjects)
            number, now = self._touched.n, self._described()
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
        """Return the next names; subjects come after all ids: their leaves hash those of their ids."""
        ids = [self._touched.ids.pop() for _ in range(min(_AT_ONCE, len(self._touched.ids)))]
        if self._touched.ids:
            return ids, []
        return ids, [self._touched.subjects.pop() for _ in range(min(_AT_ONCE, len(self._touched.subjects)))]

    def _settle(self, number: int, now: SetRoot) -> None:
        """Note that everything up to a change has been taken in."""
        self.n_taken_in = number
        self._is_urgent = self._is_urgent and number < self._touched.n
        self._now = now._replace(root=self._leaves.tree.root())

    async def _build(self) -> None:
        """Rebuild the tree."""
        self._drop()
        self._require_sound()
        self._built_for = self._touched.n_models
        names = await self._all_ids()
        made = Building(self.key.secret, len(names))
        for start in range(0, len(names), _AT_ONCE):
            if not self._is_built:
                return
            batch = self._read(names[start : start + _AT_ONCE], [])
            await self._threads.hash(partial(made.take_in, batch))
        self._leaves = await self._threads.hash(made.finished)

    async def _all_ids(self) -> list[str]:
        """Return the ids of all samples, each once; those that come or go in between are noted as changes."""
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
        self._touched.ids.clear()
        self._touched.subjects.clear()
        self._built_for, self._is_urgent = None, False
        self.n_taken_in = self._touched.n

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
        if self.n_taken_in == self._touched.n:
            return []
        self._is_urgent = True
        self._touched.event.set()
        return [_Due(self, self._touched.n)]

    def _forget(self, period: int) -> None:
        """Take in at once what has changed, where that is short; `period` is no matter."""
        del period
        if self._turn.locked() or self.n_taken_in == self._touched.n:
            return
        if not self._is_built or self._state.failed or not self._state.model.is_usable:
            self._drop()
        elif self._is_short():
            self._take_in_now()

    def _is_short(self) -> bool:
        """Whether what has changed is soon taken in."""
        subjects = self._state.model.samples_.subjects
        if max(len(self._touched.ids), len(self._touched.subjects)) > _FEW:
            return False
        return all(len(subjects.slots(subject)) <= _AT_ONCE for subject in self._touched.subjects)

    def _take_in_now(self) -> None:
        now, n_subjects = self._described(), self._state.model.samples_.subjects.n_subjects
        try:
            self._leaves.take_in(self._read(*self._take()))
            is_whole = self._leaves.has(now.n_samples, n_subjects)
        except Exception as error:
            log.error("the tree over the samples could not be changed, and is built again: %s", cause_of(error))
            is_whole = False
        if is_whole:
            self._settle(self._touched.n, now)
        else:
            self._drop()
            self._touched.event.set()
