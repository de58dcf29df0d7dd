"""Whom to trust (c2sp.org/tlog-policy): keys of logs, keys of witnesses, and how many of these must have cosigned."""

from __future__ import annotations

from dataclasses import dataclass, field

from oubli.verifier.errors import UncheckableError
from oubli.verifier.notes import COSIGNATURE, ED25519, VerifierKey, read_key

_NONE = "none"


@dataclass(frozen=True, slots=True)
class Policy:
    """Whom to trust.

    Attributes
    ----------
    logs
        Keys of logs; any of them will do.
    witnesses
        Keys of witnesses, by name in the policy.
    groups
        Of each group: how many of its members must have cosigned, and the members.
    quorum
        The witness or group that must have cosigned; `none` asks for no witness.
    urls
        Where witnesses are asked, by name; those that have an address.
    """

    logs: tuple[VerifierKey, ...]
    witnesses: dict[str, VerifierKey]
    groups: dict[str, tuple[int, tuple[str, ...]]]
    quorum: str
    urls: dict[str, str] = field(default_factory=dict)

    def is_met(self, cosigned: set[str]) -> bool:
        """Whether the witnesses that have cosigned are enough."""
        return self.quorum == _NONE or self._holds(self.quorum, cosigned)

    def _holds(self, name: str, cosigned: set[str]) -> bool:
        if name not in self.groups:
            return name in cosigned
        needed, members = self.groups[name]
        return sum(self._holds(member, cosigned) for member in members) >= needed


class _Reader:
    """Reads a policy line by line."""

    def __init__(self) -> None:
        self.logs: list[VerifierKey] = []
        self.witnesses: dict[str, VerifierKey] = {}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.urls: dict[str, str] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()

    def take(self, words: list[str]) -> None:
        """Take in a line; `ValueError` with the rule when it is not one of a policy."""
        kind, rest = words[0], words[1:]
        if kind == "log" and len(rest) in (1, 2):
            self.logs.append(self._key(rest[0], ED25519, [one.public for one in self.logs]))
        elif kind == "witness" and len(rest) in (2, 3):
            self._define(rest[0])
            known = [one.public for one in self.witnesses.values()]
            self.witnesses[rest[0]] = self._key(rest[1], COSIGNATURE, known)
            if len(rest) == 3:
                self.urls[rest[0]] = rest[2]
        elif kind == "group" and len(rest) >= 3:
            self._define(rest[0])
            self.groups[rest[0]] = (self._threshold(rest[1], len(rest) - 2), tuple(map(self._member, rest[2:])))
        elif kind == "quorum" and len(rest) == 1:
            if self.quorum is not None:
                raise ValueError("there is more than one quorum")
            if rest[0] != _NONE:
                self._known(rest[0])
            self.quorum = rest[0]
        else:
            raise ValueError("it is none of: log KEY, witness NAME KEY, group NAME NUMBER NAME..., quorum NAME")

    def _key(self, text: str, kind: int, known: list[bytes]) -> VerifierKey:
        try:
            key = read_key(text)
        except ValueError:
            raise ValueError("its key is not written as name+id+base64") from None
        if key.type != kind:
            raise ValueError("its key is not of the type that signs such things (1: logs, 4: witnesses)")
        if key.public in known:
            raise ValueError("its key was given before")
        return key

    def _define(self, name: str) -> None:
        if name == _NONE or name in self.witnesses or name in self.groups:
            raise ValueError("its name is taken")

    def _known(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise ValueError("it names a witness or group that no line before defines")

    def _member(self, name: str) -> str:
        self._known(name)
        if name in self._members:
            raise ValueError("it names a witness or group that is in a group already")
        self._members.add(name)
        return name

    def _threshold(self, text: str, n: int) -> int:
        if text in ("any", "all"):
            return 1 if text == "any" else n
        if not (text.isascii() and text.isdigit()) or text.startswith("0") or int(text) > n:
            raise ValueError("its number is not 'any', 'all', or from 1 to the number of its members")
        return int(text)


def read_policy(content: bytes) -> Policy:
    """Return the policy in a file.

    Raises
    ------
    UncheckableError
        When it is none, with the line.
    """
    reader = _Reader()
    if any(byte < 0x20 and byte not in (0x09, 0x0A) for byte in content) or 0x7F in content:
        raise UncheckableError("the policy holds a control character: only tabs and newlines may be in it")
    # Names are bytes to a policy: this keeps all of them apart.
    for number, line in enumerate(content.decode("utf-8", "surrogateescape").split("\n"), 1):
        words = line.replace("\t", " ").strip(" ")
        if not words or words.startswith("#"):
            continue
        try:
            reader.take([word for word in words.split(" ") if word])
        except ValueError as error:
            raise UncheckableError(f"line {number} of the policy cannot be used: {error}") from None
    if reader.quorum is None:
        raise UncheckableError("the policy has no line 'quorum': write 'quorum none' to ask for no witness")
    return Policy(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum, reader.urls)
