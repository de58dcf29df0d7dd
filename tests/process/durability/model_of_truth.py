"""A plain model of what a server must hold, to be compared with what it holds after a crash.

Every change has a model version of its own, so the versions put all acknowledged changes in one order, whichever client
sent them. What was in flight when the server died may have been made or not. The version that the server comes back
with says how many of them were: those have the versions that nobody was told. The model tries every way to put
requests in flight in those places; in one of them everything must fit, and none may be there by half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Literal, NamedTuple

from tests.process.durability.people import Content

Held = dict[str, Content]


class Sent(NamedTuple):
    """A sample of a request; without an id one is generated."""

    id: str | None
    content: Content


@dataclass(slots=True)
class Operation:
    """A request that may change something, and its answer; without one it was in flight when the server died."""

    kind: Literal["add", "put", "delete", "restrict", "release", "rebuild"]
    samples: tuple[Sent, ...] = ()
    ids: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    readd: bool = False
    keep_subject: bool = False
    key: str | None = None
    status: int | None = None
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was answered with a success."""
        return self.status in (200, 201)

    @property
    def is_open(self) -> bool:
        """Whether no one knows what became of it: no answer, or one that leaves it open."""
        return self.status is None or self.status >= 500

    @property
    def version(self) -> int:
        """The model version it was answered with."""
        return int(self.answer["model_version"])

    @property
    def changed(self) -> bool:
        """Whether its answer says that something has changed."""
        if self.kind == "add":
            return self.status == 201
        if self.kind == "rebuild":
            return True
        if self.kind in ("restrict", "release"):
            return bool(self.answer["samples"])
        # A rectification that repeats what is held unlearns nothing; this load never clears a subject alone.
        return bool(self.answer["unlearned"])

    def named(self, ids: Sequence[str]) -> Operation:
        """Return it with the ids that were generated for its samples."""
        samples = tuple(Sent(name, sent.content) for name, sent in zip(ids, self.samples, strict=True))
        return replace(self, samples=samples)


class World:
    """Samples by id, and which ids were erased lately."""

    def __init__(self, held: Mapping[str, Content], erased: frozenset[str] | set[str] = frozenset()) -> None:
        self.held: Held = dict(held)
        self.erased = set(erased)

    def copy(self) -> World:
        return World(self.held, self.erased)

    def make(self, operation: Operation) -> int | None:
        """Make a change; return how many samples it touched, None when it is refused; then nothing has changed."""
        if operation.kind == "rebuild":
            return 1  # the model; the samples are what they were
        ways = {"add": self._add, "put": self._put, "delete": self._delete}
        return ways.get(operation.kind, self._mark)(operation)

    @property
    def restricted(self) -> set[str | None]:
        """Subjects that are restricted."""
        return {content.subject for content in self.held.values() if content.is_restricted}

    def _mark(self, operation: Operation) -> int:
        """Restrict or release subjects; a subject is restricted as a whole, or not at all."""
        is_restricted = operation.kind == "restrict"
        moved = {
            name: replace(content, is_restricted=is_restricted)
            for name, content in self.held.items()
            if content.subject in operation.subjects and content.is_restricted != is_restricted
        }
        self.held.update(moved)
        return len(moved)

    def _add(self, operation: Operation) -> int | None:
        new: Held = {}
        restricted = self.restricted
        for sent in operation.samples:
            if sent.id is None:
                return None  # no one has seen the id that it would have been given
            known = self.held.get(sent.id)
            if sent.content.subject in restricted - {None} or (known is not None and known.is_restricted):
                return None
            if known is None:
                if sent.id in self.erased and not operation.readd:
                    return None
                new[sent.id] = sent.content
            elif known != sent.content:
                return None
        self.held.update(new)
        return len(new)

    def _put(self, operation: Operation) -> int | None:
        (sent,) = operation.samples
        known = self.held.get(str(sent.id))
        if known is None:
            return None
        content = replace(sent.content, subject=known.subject) if operation.keep_subject else sent.content
        if known.is_restricted and content.subject is None:
            return None
        content = replace(content, is_restricted=content.subject in self.restricted - {None})
        self.held[str(sent.id)] = content
        return int(content != known)

    def absent(self, operation: Operation) -> int:
        """How many of the ids or subjects that a request names are not held."""
        every = {content.subject for content in self.held.values()}
        subjects = self.restricted if operation.kind == "release" else every
        return len(set(operation.ids) - self.held.keys()) + len(set(operation.subjects) - subjects)

    def _delete(self, operation: Operation) -> int:
        named, subjects = set(operation.ids), set(operation.subjects)
        gone = [name for name, content in self.held.items() if name in named or content.subject in subjects]
        for name in gone:
            del self.held[name]
        self.erased.update(gone)
        return len(gone)


Differences = dict[str, tuple[str, ...]]
"""What is wrong with a state: what was lost, resurrected, altered or misreported; empty when nothing is."""


class Truth:
    """What is known of a server over its lives: its samples, and the version that goes with them."""

    def __init__(self, held: Mapping[str, Content], version: int) -> None:
        self.world = World(held)
        self.version = version
        self.generated: set[str] = set()

    def settle(self, operations: Sequence[Operation], held: Mapping[str, Content], version: int) -> Differences:
        """Take in a life: what was asked, and what the server holds in the next one. Returns what does not fit."""
        answered = self._without_repeated([one for one in operations if one.is_acknowledged])
        complaints = [*self._check_versions(answered, version), *self._check_generated(answered)]
        acknowledged = [one.named(one.answer["ids"]) if one.kind == "add" else one for one in answered]
        in_flight = [_with_ids(one, held) for one in operations if one.is_open]
        best: tuple[Differences, World] | None = None
        told = {one.version for one in acknowledged if one.changed}
        untold = [number for number in range(self.version + 1, version + 1) if number not in told]
        # Every way in which requests in flight can have the versions that no one was told.
        for chosen in permutations(in_flight, len(untold)):
            world, wrong = self._replay(acknowledged, dict(zip(untold, chosen, strict=True)))
            found = compare(world.held, held, misreported=(*complaints, *wrong))
            if best is None or _n_wrong(found) < _n_wrong(best[0]):
                best = found, world
            if not found:
                break
        if best is None:
            complaints.append(f"version {version} has more changes than were asked for")
            best = compare(self.world.held, held, misreported=tuple(complaints)), self.world
        differences, self.world = best
        self.generated |= {name for one in in_flight for sent in one.samples if (name := sent.id) in held and name}
        self.version = version
        return differences

    def _replay(self, acknowledged: Sequence[Operation], placed: Mapping[int, Operation]) -> tuple[World, list[str]]:
        """Make all changes in the order of their versions; return the end, and every answer that does not fit."""
        world = self.world.copy()
        wrong = []
        changes = {**{one.version: one for one in acknowledged if one.changed}, **placed}
        without: dict[int, list[Operation]] = {}
        for one in acknowledged:
            if not one.changed:
                without.setdefault(one.version, []).append(one)
        for version in range(self.version, max([self.version, *changes, *without]) + 1):
            if (change := changes.get(version)) is not None:
                absent = world.absent(change)
                made = world.make(change)
                if not made or not _says(change, made, absent):
                    wrong.append(f"version {version}: {change.kind} touched {made}, the answer says {change.status}")
            not_told = [one for one in without.get(version, []) if world.copy().make(one)]
            wrong += [f"version {version}: {one.kind} was answered as if nothing changed" for one in not_told]
        return world, wrong

    def _without_repeated(self, answered: Sequence[Operation]) -> list[Operation]:
        """Leave out deletions of what was gone already that were answered with the receipt of the earlier one."""
        seen: set[str] = set()
        kept = []
        for one in answered:
            receipt = one.answer.get("id")
            if one.kind == "delete" and one.changed and (one.version <= self.version or receipt in seen):
                continue
            if receipt is not None:
                seen.add(receipt)
            kept.append(one)
        return kept

    def _check_versions(self, acknowledged: Sequence[Operation], version: int) -> Iterator[str]:
        told = [one.version for one in acknowledged if one.changed]
        if len(set(told)) != len(told):
            yield "two changes were answered with the same version"
        if told and min(told) <= self.version:
            yield "a version was given out twice"
        if version < max(told, default=self.version):
            yield f"the version went back from {max(told, default=self.version)} to {version}"

    def _check_generated(self, acknowledged: Sequence[Operation]) -> Iterator[str]:
        for one in acknowledged:
            if one.kind != "add" or not one.changed:
                continue
            names = [name for name, sent in zip(one.answer["ids"], one.samples, strict=True) if sent.id is None]
            if self.generated.intersection(names):
                yield "a generated id was issued twice"
            self.generated.update(names)


def compare(expected: Mapping[str, Content], held: Mapping[str, Content], misreported: tuple[str, ...]) -> Differences:
    """Return in what a state differs from what is expected."""
    found = {
        "lost": tuple(sorted(expected.keys() - held.keys())),
        "resurrected": tuple(sorted(held.keys() - expected.keys())),
        "altered": tuple(sorted(name for name in expected.keys() & held.keys() if expected[name] != held[name])),
        "misreported": misreported,
    }
    return {how: names for how, names in found.items() if names}


def _n_wrong(differences: Differences) -> int:
    return sum(map(len, differences.values()))


def _says(operation: Operation, made: int, absent: int) -> bool:
    """Whether the answer counts what was touched."""
    if operation.is_open or operation.kind not in ("delete", "restrict", "release"):
        return True
    counted = operation.answer["unlearned" if operation.kind == "delete" else "samples"]
    return (counted, operation.answer["absent"]) == (made, absent)


def _with_ids(operation: Operation, held: Mapping[str, Content]) -> Operation:
    """Return a request in flight with the ids generated for it, which its marks betray if it was made."""
    if operation.kind != "add" or all(sent.id is not None for sent in operation.samples):
        return operation
    by_mark = {content.mark: name for name, content in held.items()}
    ids = [sent.id or by_mark.get(sent.content.mark) for sent in operation.samples]
    found = [name for name in ids if name is not None]
    return operation.named(found) if len(found) == len(ids) else operation
