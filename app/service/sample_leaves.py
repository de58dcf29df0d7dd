"""How the leaves of the set tree follow the samples held; what runs in a thread, see `sample_set`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from oubli.app.ledger.set_leaves import Positions, as_written, content_of, hash_of_sample, in_order
from oubli.app.ledger.set_tree import SetTree
from oubli.app.service.held_values import label_as_held
from oubli.core.data.values import shortest
from oubli.core.set_tree import HASH_BYTES
from oubli.core.slices import cut, lists

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema
    from oubli.core.samples.store import HeldSample


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
                content = hash_of_sample(nonce, name, sample.subject, features, as_written(label))
            yield name, self.positions.of(("id", name)), sample, content


class Leaves(_Hashing):
    """The tree, and how its leaves change.

    Attributes
    ----------
    tree
        The tree.
    shared
        Positions that several names have, with the hashes of samples by id. Nobody has ever seen one; the tree is made
        anew when one of these names changes.
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
            When the tree has to be made anew.
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
    """A tree that is made of all samples at once.

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
