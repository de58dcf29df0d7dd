"""Whom samples belong to: few samples or all of them, looked up from both sides."""


class SubjectIndex:
    """Subjects by slot, and the ids of each subject in the order in which they were linked."""

    def __init__(self) -> None:
        self._by_slot: dict[int, str] = {}
        self._ids: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_slot)

    def __contains__(self, slot: int) -> bool:
        return slot in self._by_slot

    def get(self, slot: int) -> str | None:
        """Return the subject of the sample in a slot."""
        return self._by_slot.get(slot)

    def ids(self, subject: str) -> list[str]:
        """Return the ids of a subject's samples."""
        return list(self._ids.get(subject, ()))

    def link(self, slot: int, name: str, subject: str) -> None:
        """Say whom a sample belongs to; it must not be linked yet."""
        self._by_slot[slot] = subject
        self._ids.setdefault(subject, {})[name] = None

    def unlink(self, slot: int, name: str) -> None:
        """Forget whom a sample belongs to, and the subject with its last sample."""
        subject = self._by_slot.pop(slot, None)
        if subject is None:
            return
        names = self._ids[subject]
        del names[name]
        if not names:
            del self._ids[subject]

    def links(self) -> list[tuple[str, str]]:
        """Return all (subject, id), by subject."""
        return [(subject, name) for subject, names in self._ids.items() for name in names]

    def copy(self) -> "SubjectIndex":
        """Return an independent copy."""
        other = SubjectIndex()
        other._by_slot = self._by_slot.copy()
        other._ids = {subject: names.copy() for subject, names in self._ids.items()}
        return other

    def check_invariants(self, id_of: dict[int, str]) -> None:
        """Check against the ids held, by slot; AssertionError names what is broken."""
        links = self.links()
        expected = {(subject, id_of.get(slot)) for slot, subject in self._by_slot.items()}
        if len(links) != len(expected) or set(links) != expected:
            raise AssertionError("subjects and their samples differ")
        if not all(self._ids.values()):
            raise AssertionError("a subject without samples is kept")
