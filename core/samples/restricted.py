"""Samples that are kept and not learned from, because whom they are about has restricted that.

They are in a store of their own, so that neither their cells nor their categories and classes are in what the trees
read. A subject is restricted as long as something of it is held here, and a mark says since when:

    samples   r-1 (ada)   r-2 (ada)   r-3 (bob)
    marks     ada: since 1700, may expire         bob: since 1650, kept

All of a subject's samples are here, or none. `oubli.core.model.Model` moves samples here and back.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from oubli.core.errors import DuplicateIdError, ensure

if TYPE_CHECKING:
    from oubli.core.changes import Changes
    from oubli.core.samples.additions import Belongings
    from oubli.core.samples.records import Arrivals, HeldSample
    from oubli.core.samples.store import SampleStore


class Mark(NamedTuple):
    """What is said of a restricted subject.

    Attributes
    ----------
    since_ms : int
        Since when it is restricted, in milliseconds since 1970 UTC.
    keeps : bool
        Whether its samples are kept beyond the time at which they have to go.
    """

    since_ms: int
    keeps: bool


class RestrictedSamples:
    """The restricted samples of a model.

    Parameters
    ----------
    new_store : callable
        Makes an empty store of the model's schema.
    changes : Changes
        Those of the model's other samples: a change that was broken off makes both unusable.

    Attributes
    ----------
    marks : dict of str to Mark
        By subject; empty when no sample is restricted.
    """

    def __init__(self, new_store: "Callable[[], SampleStore]", changes: "Changes") -> None:
        self.marks: dict[str, Mark] = {}
        self._new_store = new_store
        self._changes = changes
        self._samples: SampleStore | None = None  # most models never have any

    @property
    def samples(self) -> "SampleStore":
        """The store that holds them."""
        if self._samples is None:
            self._samples = self._new_store()
            self._samples.changes = self._changes
        return self._samples

    def __len__(self) -> int:
        return 0 if self._samples is None else len(self._samples)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, roughly."""
        return 0 if self._samples is None else self._samples.nbytes

    def holds(self, sample_id: object) -> bool:
        """Tell whether a sample is restricted."""
        return self._samples is not None and self._samples.contains(sample_id)

    def get(self, sample_id: object) -> "HeldSample":
        """Return a restricted sample as it is held.

        Raises
        ------
        UnknownIdError
            When none is restricted under this id.
        """
        sample = self.samples.get(sample_id)
        mark = None if sample.subject is None else self.marks.get(sample.subject)
        return replace(sample, restricted_ms=None if mark is None else mark.since_ms)

    def ids_of_subject(self, subject: object) -> list[str]:
        """Return the ids of a subject's restricted samples, in the order in which they were linked."""
        return [] if self._samples is None else self._samples.ids_of_subject(subject)

    def refuse_held(self, names: Sequence[str]) -> None:
        """Refuse ids under which samples are restricted.

        Raises
        ------
        DuplicateIdError
            For the first of them.
        """
        if not len(self):
            return
        for row, name in enumerate(names):
            if self.holds(name):
                raise DuplicateIdError(
                    "is held as restricted: release or delete that sample, or use another id",
                    row=row,
                    field="id",
                    value=name,
                )

    def due(self, now_ms: int) -> list[str]:
        """Return the ids of samples that have to be gone by now and are not kept beyond that, the soonest first."""
        samples = self._samples
        if samples is None:
            return []
        return [name for name in samples.due(now_ms, len(samples)) if not self._is_kept(samples.subject(name))]

    def _is_kept(self, subject: str | None) -> bool:
        return subject is not None and subject in self.marks and self.marks[subject].keeps

    # Changing -------------------------------------------------------------------------------------

    def stage(self, held: "Sequence[HeldSample]") -> "Arrivals":
        """Make room for samples, of which there is one at least, and say what `hold` will write."""
        samples = self.samples
        prepared = samples.prepare(
            [sample.features for sample in held], [sample.label for sample in held], [sample.id for sample in held]
        )
        return samples.stage(prepared)

    def attach(self, arrivals: "Arrivals", belongings: "Sequence[Belongings]") -> None:
        """Give samples that were just held what is kept beside them; in a critical section."""
        for slot, one in zip(arrivals.slots.tolist(), belongings, strict=True):
            self.samples.attach(slot, one)

    def let_go(self, ids: Iterable[object]) -> None:
        """Let go of samples, and overwrite what is theirs alone; marks stay as they are."""
        samples = self.samples
        samples.remove(samples.find(list(ids)))

    def remove(self, ids: Sequence[str]) -> None:
        """Let go of samples for good: the mark of a subject goes with its last one.

        Raises
        ------
        UnknownIdError
            When one is not restricted; nothing has changed.
        """
        self._changes.check()
        subjects = set(map(self.samples.subject, ids))
        with self._changes:
            self.let_go(ids)
            self.drop_marks(subjects)

    def replace(self, sample_id: str, row: Any, label: Any) -> None:
        """Give a sample other features and another label; what is kept beside it stays.

        Raises
        ------
        UnknownIdError, InputError
            When it is not restricted, or the content is refused; nothing has changed.
        """
        self._changes.check()
        samples = self.samples
        belongings, slots = samples.belongings(sample_id)._replace(nonce=None), samples.find([sample_id])
        prepared = samples.prepare([row], [label], [sample_id], allow_held=True)
        samples.reserve(prepared)
        with self._changes:
            samples.remove(slots)
            (slot,) = samples.hold(samples.stage(prepared)).tolist()
            samples.attach(slot, belongings)

    def drop_marks(self, subjects: Iterable[str | None]) -> None:
        """Forget the marks of those subjects of which nothing is restricted any more."""
        for subject in subjects:
            if subject in self.marks and not self.ids_of_subject(subject):
                del self.marks[subject]

    # Copies ---------------------------------------------------------------------------------------

    def copy(self, changes: "Changes") -> "RestrictedSamples":
        """Return an independent copy, for a store with these changes."""
        other = RestrictedSamples(self._new_store, changes)
        if len(self):
            samples = self.samples.copy()
            samples.changes = changes
            other.__dict__.update(marks=dict(self.marks), _samples=samples)
        return other

    def shred(self) -> None:
        """Overwrite the arrays that hold samples."""
        if self._samples is not None:
            self._samples.shred()

    def check_invariants(self, others: "SampleStore") -> None:
        """Check against the samples that are not restricted; AssertionError names what is broken."""
        if self._samples is None:
            ensure(not self.marks, "a restricted subject has no sample")
            return
        samples = self._samples
        samples.check_invariants()
        ensure(not any(others.contains(name) for name in samples.ids()), "a sample is restricted and learned from")
        if {samples.subject(name) for name in samples.ids()} != set(self.marks):
            raise AssertionError("restricted samples and the marks of their subjects differ")
        if any(others.ids_of_subject(subject) for subject in self.marks):
            raise AssertionError("a restricted subject has a sample that is learned from")
