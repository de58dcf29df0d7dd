"""Changes of a model: a plan that has passed every check, and what applies it.

    plan_add, plan_delete, plan_replace     check everything and change nothing
    apply                                   makes the change, which cannot be refused any more

A plan answers all that a caller asks before it writes a journal: what is held, how many samples, whose, which are
restricted. It holds ids and no slots, so it is good for a copy of the model as well.
"""

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any, Final, NamedTuple, Self

from oubli.core.array_types import Array, Hashes, Slots
from oubli.core.base import Keepable
from oubli.core.concurrency.locks import reads, writes
from oubli.core.data.values import normalise_id
from oubli.core.errors import DuplicateIdError, InputError, UnknownIdError
from oubli.core.samples.contents import Contents
from oubli.core.samples.identity import WAYS_OUT, check_rows, read_targets
from oubli.core.samples.indexes import checked_moment
from oubli.core.samples.owners import Belongings, Mark, check_nonces, check_origin
from oubli.core.samples.records import Prepared, Rows
from oubli.core.samples.slots import IdSource, with_generated

SMALL_MODEL = 2**22  # bytes; twice as many are always there
_SLICED_FROM = 0.02  # seconds beyond those of a single sample that a change takes in one piece, if slices are possible


class Keep(Enum):
    """Says that a field was left out and stays as it is; None would clear it."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class Turn(NamedTuple):
    """The changes that are applied before a plan, and how long the plan may take.

    Attributes
    ----------
    n_more : how many samples more the model holds after them.
    n_items : how many samples they are about.
    next_id : the smallest number that may be generated as an id after them.
    longest_pause : seconds that a change may take before it `takes_long`; infinite: it never does.
    """

    n_more: int = 0
    n_items: int = 0
    next_id: int = 0
    longest_pause: float = math.inf


FIRST = Turn()
"""Nothing is applied before, and no request waits."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """A change that has passed every check.

    Attributes
    ----------
    ids, subjects : what it is about: while no other change touches one of these, it stays good. What leaves by itself,
        out of a window, and the subjects of all these samples are among them.
    n_more : how many samples more the model holds afterwards.
    n_classes : how many classes it adds to those held.
    guarantee : that of the model.
    takes_long : whether it takes longer than a pause may be, so that it should be made in slices, or on a copy.
    """

    ids: Collection[str] = ()
    subjects: Collection[str] = ()
    n_more: int = 0
    n_classes: int = 0
    guarantee: str
    takes_long: bool = False


@dataclass(slots=True, kw_only=True)
class DeletePlan(Plan):
    """Samples that leave.

    Attributes
    ----------
    targets : the ids or subjects that were named.
    counts : how many samples are held of each target of which some are.
    held : the ids of the samples, restricted ones included.
    learned, restricted : those that are learned from, and those that are restricted.
    origin : the smallest of the numbers that the caller keeps with them.
    """

    targets: Sequence[str]
    counts: Mapping[str, int]
    held: Sequence[str]
    learned: Sequence[str]
    restricted: Sequence[str]
    origin: int

    @property
    def absent(self) -> list[str]:
        """The targets of which nothing is held."""
        return [name for name in self.targets if name not in self.counts]


@dataclass(slots=True, kw_only=True)
class AddPlan(Plan):
    """Samples that come.

    A plan that names conflicts or restrictions is no more than that answer, and cannot be applied.

    Attributes
    ----------
    sent : the ids of all rows that were sent, those that are generated included; None when the store generates them.
    new : the positions of rows that are not held yet.
    rows, prepared : those rows, as they will be held.
    next_id : the first number that is free as an id afterwards.
    conflicts : the positions of rows that are held with other content.
    restricted_ids, restricted_subjects : the positions of rows whose id, or whose subject, is restricted.
    """

    sent: list[str] | None
    new: Sequence[int] = ()
    rows: Rows
    prepared: Prepared | None = None
    next_id: int
    conflicts: Sequence[int] = ()
    restricted_ids: Sequence[int] = ()
    restricted_subjects: Sequence[int] = ()

    @property
    def is_sound(self) -> bool:
        """Whether it can be applied."""
        return not (self.conflicts or self.restricted_ids or self.restricted_subjects)


@dataclass(slots=True, kw_only=True)
class ReplacePlan(Plan):
    """New content of one sample.

    Attributes
    ----------
    id : which.
    prepared : its features and label; None when they stay as they are.
    subject, expires_ms, weight : of the new content.
    origin : a number of the caller's that is kept with new content.
    nonce : of the new content; None when none is kept.
    changes : whether anything changes.
    is_ownerless : whether it would leave a restricted sample without a subject, by which it could be released.
    old_origin : the number that was kept with the old content.
    """

    id: str
    prepared: Prepared | None
    subject: str | None
    expires_ms: int | None
    weight: float
    origin: int | None
    nonce: bytes | None = None
    changes: bool
    is_ownerless: bool
    old_origin: int


class Changeable(Keepable):
    """Internal: a model whose samples are added, deleted and replaced by plans."""

    # -- plans ----------------------------------------------------------------------------------

    @reads
    def plan_add(self, rows: Rows, y: Any, *, compares: bool = False, turn: Turn = FIRST) -> AddPlan:
        """Plan to learn samples.

        Parameters
        ----------
        rows : their features, ids, subjects, expiries and so on.
        y : their labels.
        compares : pass over rows that are held with the same content, and name those that are held with another one, or
            whose id or subject is restricted. Otherwise an id that is held is refused.
        turn : what is applied before.

        Raises
        ------
        InputError, CapacityError
            When the samples are refused; nothing has changed.
        """
        self.check_is_fitted()
        store, sent, next_id = self.samples_, None, 0
        if compares and rows.ids is not None:
            sent, next_id = with_generated(rows.ids, max(store.next_id, turn.next_id))
            rows = rows._replace(ids=sent)
        plan = AddPlan(guarantee=self.guarantee, sent=sent, rows=rows, next_id=next_id)
        if sent is not None and (marks := store.restricted.marks):
            plan.restricted_ids = [row for row, name in enumerate(sent) if store.restricted.contains(name)]
            plan.restricted_subjects = [row for row, owner in enumerate(rows.subjects or ()) if owner in marks]
            if not plan.is_sound:
                return plan
        # What is sent is encoded before it is compared, so that 0.1 equals the float32 nearest to it.
        prepared = self._prepare(rows, y, allow_held=sent is not None)
        names = prepared.ids or []
        held = [row for row, name in enumerate(names) if store.contains(name)] if sent is not None else []
        plan.conflicts = [row for row in held if not store.is_same(rows, row, prepared)]
        if plan.conflicts:
            return plan
        plan.n_classes = store.admit_classes(prepared)
        plan.subjects = {subject for subject in rows.subjects or () if subject is not None}
        plan.new = range(prepared.n)
        if held:
            known = set(held)
            plan.new = [row for row in plan.new if row not in known]
            prepared, rows = prepared.take(plan.new), rows.take(plan.new)
        plan.n_more = n_new = len(plan.new)
        if rows.retentions:
            rows = rows._replace(retentions=store.changed_retentions(rows.retentions))
        plan.rows = rows.with_default_expiry(n_new)
        if not n_new:
            plan.ids = names
            return plan
        self.require_room(turn.n_more + n_new, prepared)
        plan.ids, plan.prepared = names, prepared
        if self.engine_.keeps_order:
            ids_leaving, subjects_leaving = self.leaving(n_new)
            plan.ids = [*names, *ids_leaving]
            plan.subjects.update(subjects_leaving)
        plan.takes_long = self._is_sliced(plan, n_new, turn) or self.takes_long(prepared, (), plan.n_classes, turn)
        return plan

    def _prepare(self, rows: Rows, y: Any, *, allow_held: bool = False) -> Prepared:
        """Encode rows that are to be added, and check their ids, subjects, expiries and so on."""
        store = self.samples_
        try:
            prepared = store.prepare(rows.X, y, rows.ids, rows.weights, allow_held=allow_held)
        except DuplicateIdError as error:
            if rows.source is IdSource.INDEX:
                error.add_note(f"the ids are the labels of X's index: {WAYS_OUT}")
            raise
        check_rows(rows, prepared.n, store.restricted)
        return prepared

    @reads
    def plan_delete(self, ids: Any = None, *, subjects: Any = None, turn: Turn = FIRST) -> DeletePlan:
        """Plan to unlearn samples, also restricted ones; what is not held is no error, but `absent` in the plan.

        Parameters
        ----------
        ids, subjects : as in `delete`.
        turn : what is applied before.

        Raises
        ------
        InputError
            For what is no list of ids.
        """
        self.check_is_fitted()
        store, restricted = self.samples_, self.samples_.restricted
        slot_of = store.slot_of
        targets = read_targets(store, ids, subjects)
        if subjects is None:
            held = [name for name in targets if name in slot_of or restricted.contains(name)]
            counts = dict.fromkeys(held, 1)
        else:
            found = {subject: samples for subject in targets if (samples := store.held_of(subject))}
            held = [name for samples in found.values() for name in samples]
            counts = {subject: len(samples) for subject, samples in found.items()}
        # An addition to a subject whose last sample goes would otherwise be committed beside it, in either order.
        owners = set(() if subjects is None else targets)
        learned: list[str] = []
        others: list[str] = []
        origins: list[int] = []
        for name in held:
            slot = slot_of.get(name)
            (others if slot is None else learned).append(name)
            part = restricted if slot is None else store
            slot = part.slot_of[name]
            origins.append(part.origins.item(slot))
            if (owner := part.subjects.get(slot)) is not None:
                owners.add(owner)
        plan = DeletePlan(
            ids=targets if subjects is None else held,
            subjects=owners,
            n_more=-len(learned),
            guarantee=self.guarantee,
            targets=targets,
            counts=counts,
            held=held,
            learned=learned,
            restricted=others,
            origin=min(origins, default=0),
        )
        plan.takes_long = self._is_sliced(plan, len(learned), turn) or self.takes_long(None, learned, 0, turn)
        return plan

    @reads
    def plan_replace(
        self,
        sample_id: object,
        x: Any,
        y: Any,
        *,
        subject: str | Keep | None = KEEP,
        expires_ms: int | Keep | None = KEEP,
        weight: float | Keep = KEEP,
        origin: int | None = None,
        nonce: bytes | None = None,
        turn: Turn = FIRST,
    ) -> ReplacePlan:
        """Plan new content of one sample, restricted or not. It is restricted afterwards if its subject then is.

        Parameters
        ----------
        sample_id : which.
        x : one row of features, as a list of rows or a table.
        y : the label.
        subject, expires_ms, weight : what it has then.
        origin : a number that is kept with new features or a new label.
        nonce : 16 bytes of the new content.
        turn : what is applied before.

        Raises
        ------
        UnknownIdError
            When the id is not held.
        InputError, CapacityError
            When the content is refused; nothing has changed.
        """
        self.check_is_fitted()
        name, store = normalise_id(sample_id), self.samples_
        holder = store.holding(name)
        if holder is None:
            raise UnknownIdError([name])
        old = holder.belongings(name)
        owner = old.subject if isinstance(subject, Keep) else subject
        expires = old.expires_ms if isinstance(expires_ms, Keep) else checked_moment(expires_ms)
        if owner is not None:
            normalise_id(owner, field="subject")
        check_origin(0 if origin is None else origin)
        was, is_next = holder is not store, owner in store.restricted.marks
        own = holder.get(name).weight if isinstance(weight, Keep) else weight
        sent = holder.prepare(x, [y], [name], own, allow_held=True)
        n_classes = store.admit_classes(sent, name)
        prepared = None if holder.same_content(name, sent, 0) else sent
        is_released = was and not is_next
        if is_released:
            self.require_room(turn.n_more + 1, sent)
        ids, subjects = self.leaving(1) if is_released else ([], [])
        touches_trees = was != is_next or (prepared is not None and not is_next)
        return ReplacePlan(
            ids=[name, *ids],
            subjects=[text for text in (old.subject, owner, *subjects) if text is not None],
            n_more=int(was) - int(is_next),
            n_classes=n_classes,
            guarantee=self.guarantee,
            takes_long=touches_trees and self.takes_long(None, [name], n_classes, turn),
            id=name,
            prepared=prepared,
            subject=owner,
            expires_ms=expires,
            weight=own,
            origin=origin,
            nonce=nonce,
            changes=prepared is not None or owner != old.subject or expires != old.expires_ms,
            is_ownerless=was and owner is None,
            old_origin=old.origin,
        )

    @reads
    def takes_long(self, adds: Prepared | None, deletes: Sequence[str], n_classes: int, turn: Turn) -> bool:
        """Whether a change may take longer than a pause may be, so that it should be made in slices, or on a copy.

        Parameters
        ----------
        adds : what `samples_.prepare` returned, or None.
        deletes : ids that are held.
        n_classes : how many classes it adds to those held.
        turn : what is applied before, and how long a pause may be.
        """
        if turn.longest_pause == math.inf:
            return False
        # More classes than there is room for widen every leaf: that memory is allocated before the journal is written.
        if n_classes and n_classes > self.samples_.classes.n_free and self.nbytes_ > SMALL_MODEL:
            return True
        n_changed = (0 if adds is None else adds.n) + len(deletes) + turn.n_items
        if not (adds or deletes):
            return False
        if self.seconds_to_change(n_changed) > turn.longest_pause:
            return True
        if self.lazy:
            return False

        def row() -> tuple[Array, Hashes]:
            """The first sample that is added or deleted."""
            if adds is None:
                features = self.samples_.get(deletes[0]).features
            else:
                features = adds.cells[0].tolist()
                for column, texts in adds.texts.items():
                    features[column] = texts[0]
            return self.samples_.encode_queries([features])

        return self.engine_.builds_long(n_changed, row, self.samples_.problem, turn.longest_pause)

    def seconds_to_change(self, n_changed: int) -> float:
        """How long it may take to learn or unlearn so many samples, roughly, by what there is to count."""
        return self.engine_.seconds_to_change(n_changed, self.samples_.problem())

    def _is_sliced(self, plan: Plan, n: int, turn: Turn) -> bool:
        """Whether a plan about so many samples is made in slices although it is short enough for one piece."""
        if turn.longest_pause == math.inf or self.engine_.n_tags:  # resolving tags before may take much longer
            return False
        seconds = self.seconds_to_change(n + turn.n_items) - self.seconds_to_change(1)
        return seconds > _SLICED_FROM and self.can_be_sliced(plan)

    @reads
    def can_be_sliced(self, plan: Plan, *, is_queried: bool = True) -> bool:
        """Whether `change_in_slices` can make a planned change.

        is_queried : whether queries come in between; else a model is better copied than rid of many tags before.
        """
        store, n = self.samples_, 0
        if isinstance(plan, DeletePlan):
            n = len(plan.learned)
        elif isinstance(plan, AddPlan) and plan.prepared is not None and not plan.n_classes:
            # The readers between two slices know no new classes and categories.
            # Nor may counts mean something else in between.
            is_known = store.keeps_grid(plan.prepared.units) and not store.categories.new_values(plan.prepared.texts)
            n = plan.prepared.n if is_known else 0
        return n > 0 and self.engine_.can_be_sliced(n, store.problem(), lazy=self.lazy, is_queried=is_queried)

    @reads
    def leaving(self, n_new: int) -> tuple[list[str], list[str]]:
        """The ids that leave by themselves when so many samples are added, out of a window, and their subjects."""
        store, slots = self.samples_, self.engine_.leaving(n_new)
        subjects = [subject for slot in slots if (subject := store.subjects.get(slot)) is not None]
        return [store.id_of(slot) for slot in slots], subjects

    def require_room(self, n_more: int, prepared: Prepared | None = None) -> None:
        """CapacityError when so many samples more cannot be held, or the weights of prepared ones are too large."""
        if prepared is not None:
            self.samples_.check_total(prepared.units, prepared.n)
        # Of slots there are as many, or no more than there have been.
        self.engine_.check_capacity(self.engine_.settings, len(self.samples_) + n_more)

    # -- changes --------------------------------------------------------------------------------

    @writes
    def apply(self, *plans: Plan) -> int:
        """Make planned changes in their order, and return how many samples the model holds then.

        No two of them may be about the same names. Neighbouring additions are made as one if the model is exact, and so
        are neighbouring deletions: the result is the same.

        Raises
        ------
        UnknownIdError, DuplicateIdError
            When another change was made to the samples of a plan since; it has changed nothing.
        """
        self.check_is_fitted()
        is_exact = self.guarantee == "exact"
        for kind, run in groupby(plans, type):
            alike: list[Any] = list(run)
            for part in [alike] if is_exact else [[one] for one in alike]:
                if kind is DeletePlan:
                    slots = self.samples_.find([name for plan in part for name in plan.learned])
                    self._delete(slots, [name for plan in part for name in plan.restricted])
                elif kind is AddPlan:
                    if not all(plan.is_sound for plan in part):
                        raise InputError("a plan with conflicts or restrictions cannot be applied")
                    self._add([(plan.prepared, plan.rows) for plan in part if plan.prepared is not None])
                    for plan in part:
                        self._note_retentions(plan)
                else:
                    for one in part:
                        self._replace(one)
        return len(self.samples_)

    def change_in_slices(self, plan: Plan) -> Generator[Self]:
        """Make a planned change as `apply` does, in slices of some milliseconds; see `can_be_sliced`.

        Nothing but this may use the model until the last slice is made. In between, predictions and all that reads
        samples can have the model that is yielded: it is this one as it was. Whatever else reads trees has to wait.
        An exception, or leaving off, makes the model unusable.
        """
        self.check_is_fitted()
        store, engine = self.samples_, self.engine_
        with self.lock.change(), store.changes as changes:
            before = self._beside()
            before.hold(store.aside(), engine.reader())
            changes.undo = []
            if isinstance(plan, DeletePlan):
                slots = store.find(plan.learned)
                departures = store.stage_removal(slots)
                for _ in engine.change_in_slices(store.problem(), slots, -1):
                    yield before
                store.let_go(departures)
                self._follow_weights()
                self._discard(plan.restricted)
            elif isinstance(plan, AddPlan) and plan.prepared is not None:
                arrivals = store.stage(plan.prepared, is_ahead=True)
                changes.undo = [(store.blank, arrivals.slots)]
                store.write_ahead(arrivals)
                for _ in engine.change_in_slices(store.problem_with(arrivals.slots), arrivals.slots, 1):
                    yield before
                self._attach(store.hold(arrivals), [(plan.prepared, plan.rows)])
                self._note_retentions(plan)

    def _delete(self, slots: Slots, restricted: Sequence[str] = ()) -> None:
        """Unlearn the samples in slots, and remove restricted ones."""
        if len(slots) or restricted:
            with self.samples_.changes as changes:
                changes.undo = []
                if len(slots):
                    self._unlearn(slots)
                self._discard(restricted)
            self._settle()

    def _discard(self, restricted: Sequence[str]) -> None:
        """Remove restricted samples; in a critical section."""
        if restricted:
            store, changes = self.samples_.restricted, self.samples_.changes
            owners = set(map(store.subject, restricted))
            changes.undo = None
            store.discard(restricted)
            store.drop_marks(owners)

    def _add(self, parts: Sequence[tuple[Prepared, Rows]]) -> None:
        """Learn rows that were prepared, all at once; their subjects, expiries and so on are kept with them."""
        if not parts:
            return
        store, prepared = self.samples_, Prepared.merged([part for part, _ in parts])
        self.require_room(prepared.n, prepared)
        with store.changes as changes:
            changes.undo = []
            arrivals = store.stage(prepared)
            changes.undo = None
            slots = store.hold(arrivals)
            changes.undo = [
                (self._follow_weights, None), (store.remove, slots), (store.take_id_source, store.id_source),
            ]  # fmt: skip
            self._attach(slots, parts)
            self._learn(slots)
        self._settle()

    def _attach(self, slots: Slots, parts: Sequence[tuple[Prepared, Rows]]) -> None:
        """Keep the subjects, expiries and so on of rows that are held by now."""
        store, end = self.samples_, 0
        is_first = len(store) == len(slots) and not len(store.restricted)
        for part, rows in parts:
            start, end = end, end + part.n
            store.attach_many(slots[start:end], rows, is_first=is_first)

    def _note_retentions(self, plan: AddPlan) -> None:
        for subject, period_ms in plan.rows.retentions.items():
            self.samples_.set_retention(subject, period_ms, plan.rows.at_ms)

    def _replace(self, plan: ReplacePlan) -> None:
        store, restricted, name, prepared = self.samples_, self.samples_.restricted, plan.id, plan.prepared
        was, is_next = restricted.contains(name), plan.subject in restricted.marks
        if plan.nonce is not None:
            check_nonces(plan.nonce, 1)
        if was or is_next:  # the content changes where nothing is learned from it
            if not was:
                self.restrict([name])
            before = restricted.subject(name)
            if prepared is not None:
                restricted.replace(name, prepared)
            _amend(restricted, plan)
            if not is_next:
                self.release([name])
            restricted.drop_marks([before])
            return
        if prepared is None:
            _amend(store, plan)
            return
        belongings = store.belongings(name)
        origin = belongings.origin if plan.origin is None else plan.origin
        belongings = store.with_subject(belongings, plan.subject)._replace(expires_ms=plan.expires_ms, origin=origin)
        self._relearn(name, prepared, belongings._replace(nonce=plan.nonce))

    def _relearn(self, sample_id: object, prepared: Prepared, belongings: Belongings) -> None:
        """Learn other content of a sample, and keep what belongs to it."""
        store = self.samples_
        slots = store.find([sample_id])
        with store.changes as changes:
            changes.undo = []
            store.reserve(prepared)
            self._unlearn(slots)
            changes.undo = None
            slots = store.hold(store.stage(prepared))
            self._learn(slots)
            store.attach(int(slots[0]), belongings)
        self._settle()

    @writes
    def restrict(self, ids: Sequence[str], marks: Mapping[str, Mark] | None = None) -> None:
        """Keep samples, and unlearn them: they may be looked at and corrected, and are not learned from.

        Parameters
        ----------
        ids : which.
        marks : by subject, what is noted in `samples_.restricted.marks`.

        Raises
        ------
        UnknownIdError
            When an id is not held; nothing has changed.
        InputError
            When a mark is of no time.
        """
        self.check_is_fitted()
        store, restricted = self.samples_, self.samples_.restricted
        for mark in (marks or {}).values():
            checked_moment(mark.since_ms)
        slots = store.find(ids)
        if len(slots):
            held = [store.get(name) for name in ids]
            belongings = [store.belongings(name) for name in ids]
            with store.changes as changes:
                changes.undo = []
                arrivals = restricted.stage_held(held)
                changes.undo = None
                restricted.hold(arrivals)
                for slot, one in zip(arrivals.slots.tolist(), belongings, strict=True):
                    restricted.attach(slot, one)
                changes.undo = [(restricted.discard, ids)]
                self._unlearn(slots)
                restricted.marks.update(marks or {})
            self._settle()

    @writes
    def release(self, ids: Sequence[str]) -> None:
        """Learn samples again that were restricted: the model is as if they had just been added.

        The mark of a subject goes with its last restricted sample.

        Raises
        ------
        UnknownIdError
            When an id is not restricted; nothing has changed.
        """
        self.check_is_fitted()
        store, restricted = self.samples_, self.samples_.restricted
        if not ids:
            return
        held = [(restricted.get(name), restricted.belongings(name)) for name in ids]
        features, labels, weights = zip(*((s.features, s.label, s.weight) for s, _ in held), strict=True)
        prepared = store.prepare(list(features), list(labels), ids, list(weights), allow_held=True)
        store.admit_classes(prepared)
        self.require_room(prepared.n, prepared)
        subjects = {sample.subject for sample, _ in held}
        with store.changes as changes:
            changes.undo = []
            arrivals = store.stage(prepared)
            changes.undo = None
            slots = store.hold(arrivals)
            for slot, (_, belongings) in zip(slots.tolist(), held, strict=True):
                store.attach(slot, belongings)
            changes.undo = [(self._follow_weights, None), (store.remove, slots)]
            self._learn(slots)
            changes.undo = None
            restricted.discard(ids)
            restricted.drop_marks(subjects)
        self._settle()

    def _follow_weights(self, _: None = None) -> None:
        """Have the trees count samples as the weights of those held ask; in a critical section."""
        store = self.samples_
        if store.has_weights:
            problem, changes = store.problem(), store.changes
            steps, changes.undo = changes.undo, None  # with some counts multiplied, and others not
            self.engine_.follow_weights(problem)
            changes.undo = steps

    def _learn(self, slots: Slots) -> None:
        """Take samples into the trees that have just joined the others in the store; in a critical section."""
        store, engine = self.samples_, self.engine_
        leaving = engine.leaving(len(slots), slots.tolist()) if engine.keeps_order else None
        departures = store.stage_removal(leaving) if leaving else None
        self._follow_weights()
        engine.add(store.problem(), slots, lazy=self.lazy)
        if departures is not None:
            store.let_go(departures)
            self._follow_weights()

    def _unlearn(self, slots: Slots) -> None:
        """Take samples out of the trees, and out of the store; in a critical section."""
        store, engine = self.samples_, self.engine_
        if len(slots) == 1:
            engine.delete(store.problem(), slots, lazy=self.lazy)
            store.let_go_of_one(slots.item())
            self._follow_weights()
        else:
            departures = store.stage_removal(slots)
            engine.delete(store.problem(), slots, lazy=self.lazy)
            store.let_go(departures)
            self._follow_weights()

    def _settle(self) -> None:
        """Do what a change has put off; what fails here, queries do later."""
        if not self.lazy and self.engine_.n_tags:
            # The samples are learned. Without memory to resolve tags, the queries that meet them do it.
            with suppress(MemoryError):
                self.resolve()


def _amend(holder: Contents, plan: ReplacePlan) -> None:
    """Keep subject, expiry, origin and nonce of new content with the sample that has it."""
    if plan.prepared is not None and plan.origin is not None:
        holder.set_origins([plan.id], plan.origin)
    holder.set_subject(plan.id, plan.subject)
    holder.set_expiry(plan.id, plan.expires_ms)
    if plan.nonce is not None:
        holder.note_nonces([plan.id], plan.nonce)
