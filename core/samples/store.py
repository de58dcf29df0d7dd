"""The samples of one model: those that it learns from, and those that are restricted.

slots.py       arrays by slot, ids, the counter behind generated ids
owners.py      subjects, additions, expiries, periods, nonces; indexes.py keeps them by slot
contents.py    features and labels; encoding.py, targets.py, categories.py and labels.py encode them
serialise.py   to arrays and back

Restricted samples are kept and not learned from, because their subject has restricted that. They are in a store of
their own, so that neither their cells nor their categories and classes are in what the trees read. A subject is
restricted as long as something of it is held here, and a mark says since when:

    samples   r-1 (ada)   r-2 (ada)   r-3 (bob)
    marks     ada: since 1700, may expire         bob: since 1650, kept

All of a subject's samples are here, or none. `oubli.core.planning` moves samples here and back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from oubli.core.array_types import Array, Arrays
from oubli.core.concurrency.locks import reads, writes
from oubli.core.data.schema import Schema
from oubli.core.errors import DuplicateIdError, ensure
from oubli.core.samples.contents import Contents
from oubli.core.samples.owners import Mark, Retention
from oubli.core.samples.records import Arrivals, HeldSample, Prepared
from oubli.core.samples.serialise import dump, dump_restricted, fill, fill_restricted


class RestrictedSamples(Contents):
    """The restricted samples of a model.

    Parameters
    ----------
    schema, owner : see `Contents`.

    Attributes
    ----------
    marks : dict of str to Mark
        By subject; empty when no sample is restricted.
    """

    def __init__(self, schema: Schema, owner: str = "the model") -> None:
        super().__init__(schema, owner)
        self.marks: dict[str, Mark] = {}

    @reads
    def get(self, sample_id: object) -> HeldSample:
        """Return a restricted sample as it is held.

        Raises
        ------
        UnknownIdError
            When none is restricted under this id.
        """
        sample = super().get(sample_id)
        mark = None if sample.subject is None else self.marks.get(sample.subject)
        return replace(sample, restricted_ms=None if mark is None else mark.since_ms)

    def refuse(self, names: Sequence[str]) -> None:
        """Refuse ids under which samples are restricted, to be used for other samples.

        Raises
        ------
        DuplicateIdError
            For the first of them.
        """
        for row, name in enumerate(names if len(self) else ()):
            if self.contains(name):
                raise DuplicateIdError(
                    "is held as restricted: release or delete that sample, or use another id",
                    row=row,
                    field="id",
                    value=name,
                )

    def due_unless_kept(self, now_ms: int) -> list[str]:
        """Return the ids of samples that have to be gone by now and are not kept beyond that, the soonest first."""
        kept = {subject for subject, mark in self.marks.items() if mark.keeps}
        return [name for name in self.due(now_ms, len(self)) if self.subject(name) not in kept]

    # Changing -------------------------------------------------------------------------------------

    def stage_held(self, held: Sequence[HeldSample]) -> Arrivals:
        """Make room for samples, of which there is one at least, and say what `hold` will write."""
        prepared = self.prepare(
            [sample.features for sample in held],
            [sample.label for sample in held],
            [sample.id for sample in held],
            [sample.weight for sample in held],
        )
        return self.stage(prepared)

    def discard(self, ids: Sequence[str]) -> None:
        """Let go of samples, and overwrite what is theirs alone; marks stay as they are."""
        self.remove(self.find(ids))

    @writes
    def replace(self, sample_id: str, prepared: Prepared) -> None:
        """Give a sample other features and another label, prepared under its id; what is kept beside it stays.

        Raises
        ------
        UnknownIdError
            When it is not restricted; nothing has changed.
        """
        self.changes.check()
        belongings, slots = self.belongings(sample_id)._replace(nonce=None), self.find([sample_id])
        self.reserve(prepared)
        with self.changes:
            self.remove(slots)
            (slot,) = self.hold(self.stage(prepared)).tolist()
            self.attach(slot, belongings)

    def drop_marks(self, subjects: Iterable[str | None]) -> None:
        """Forget the marks of those subjects of which nothing is restricted any more."""
        for subject in subjects:
            if subject in self.marks and not self.ids_of_subject(subject):
                del self.marks[subject]

    def copy(self) -> Self:
        """Return an independent copy; other threads can read at the same time."""
        other = super().copy()
        other.marks = dict(self.marks)
        return other

    def check_invariants(self) -> None:
        """Walk all of the samples; AssertionError names what is broken."""
        super().check_invariants()
        if set(map(self.subject, self.ids())) != set(self.marks):
            raise AssertionError("restricted samples and the marks of their subjects differ")


class SampleStore(Contents):
    """The samples of one model.

    Parameters
    ----------
    schema, owner : see `Contents`.

    Attributes
    ----------
    restricted : RestrictedSamples
        Samples that are kept beside these and are not learned from; nothing else here counts or shows them.
    """

    def __init__(self, schema: Schema, owner: str = "the model") -> None:
        super().__init__(schema, owner)
        self.restricted = RestrictedSamples(schema, owner)
        self.restricted.changes = self.changes  # one that is broken off makes both unusable

    @property
    def nbytes(self) -> int:
        """Bytes in memory: exact for arrays, an estimate for texts."""
        return super().nbytes + self.restricted.nbytes

    @property
    def has_rights(self) -> bool:
        """Whether some of the samples are restricted, or some subjects have a retention period."""
        return bool(self.periods) or len(self.restricted) > 0

    @property
    def parts(self) -> tuple[Contents, ...]:
        """The samples that are learned from, and those that are restricted where there are any."""
        return (self, self.restricted) if len(self.restricted) else (self,)

    def held_of(self, subject: object) -> list[str]:
        """Return the ids of a subject's samples, restricted or not: all of them are, or none."""
        return self.ids_of_subject(subject) or self.restricted.ids_of_subject(subject)

    def retention_of(self, subject: str) -> Retention | None:
        """Return how long samples of a subject are kept, restricted or not; None without a period."""
        return (self.restricted if subject in self.restricted.marks else self).retention(subject)

    @reads
    def holding(self, sample_id: object) -> Contents | None:
        """Return the store that holds a sample, this one or that of the restricted ones; None when neither does."""
        if self.contains(sample_id):
            return self
        return self.restricted if self.restricted.contains(sample_id) else None

    def _refuse_taken(self, names: Sequence[str]) -> None:
        super()._refuse_taken(names)
        self.restricted.refuse(names)

    def copy(self) -> Self:
        """Return an independent copy; other threads can read at the same time."""
        other = super().copy()
        other.restricted = self.restricted.copy()
        other.restricted.changes = other.changes
        return other

    def aside(self) -> Self:
        """Return a store with the same contents and changes of its own: to be read while this one is changed."""
        other = super().aside()
        other.restricted = self.restricted.aside()
        other.restricted.changes = other.changes
        return other

    def shred(self) -> None:
        """Overwrite the arrays that hold samples: the store is no longer needed, and no thread reads it."""
        super().shred()
        self.restricted.shred()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles and deep copies hold what is held, nothing of unused capacity.
        return type(self).from_state, (self.schema, self.state(), self.owner)

    @reads
    def state(self) -> Arrays:
        """Return everything held as arrays, and nothing else; see `oubli.core.samples.serialise`."""
        self.changes.check()
        return {**dump(self), **dump_restricted(self.restricted, self.restricted.marks)}

    @classmethod
    def from_state(cls, schema: Schema, arrays: Mapping[str, Array], owner: str = "the model") -> "SampleStore":
        """Rebuild a store from `state`; slots stay as they are.

        Raises
        ------
        FileError
            When the arrays do not fit the schema or each other.
        """
        store = cls(schema, owner)
        fill(store, arrays)
        store.restricted.marks = fill_restricted(store.restricted, store, arrays)
        return store

    def check_invariants(self) -> None:
        """Walk all of the store; AssertionError names what is broken."""
        super().check_invariants()
        restricted = self.restricted
        restricted.check_invariants()
        ensure(not any(map(self.contains, restricted.ids())), "a sample is restricted and learned from")
        if any(map(self.ids_of_subject, restricted.marks)):
            raise AssertionError("a restricted subject has a sample that is learned from")
