"""Samples that cannot be mistaken for anything else, and every form in which something of them could be left."""

import base64
import hashlib
import json
import numbers
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from tests.reach import array_bytes, reachable

# In the order of the columns: the numbers are beyond all others of their column, or between two of them, and exact in
# float32 with a pattern that no whole number has.
_NUMBERS = (2, 10, 11)  # fnlwgt, capital_gain, capital_loss


@dataclass(frozen=True, slots=True)
class Canary:
    """A sample, or one that never was."""

    id: str
    subject: str
    numbers: tuple[float, float, float]
    word: str
    features: tuple[Any, ...]

    def as_json(self, **more: Any) -> dict[str, Any]:
        return {"id": self.id, "subject": self.subject, "features": list(self.features), "label": ">50K"} | more

    @property
    def texts(self) -> tuple[str, ...]:
        """What it has of text that no one else has."""
        return self.id, self.subject, self.word


def canary(number: int, row: tuple[Any, ...], *, extreme: bool = True) -> Canary:
    """Make one up, on the ground of somebody's row."""
    sign = -1 if number % 2 else 1
    size = 3_000_000 if extreme else 30_000
    numbers = tuple(sign * (size + 4096.0 * number + 517 * j + 0.8125) / (1 + 6 * j) for j in range(3))
    exact = tuple(struct.unpack("<f", struct.pack("<f", value))[0] for value in numbers)
    # Signs that URLs, JSON and CSV all have to escape.
    mark = f"{number:03d}"
    word = f'Wörd-{mark} "qüöted", \\ 字'
    own = {**dict(zip(_NUMBERS, exact, strict=True)), 6: word}
    features = [own.get(place, value) for place, value in enumerate(row)]
    return Canary(f'canäry/{mark} "x"&%', f"Sübject {mark} <ö@example.org>", exact, word, tuple(features))


def forms_of_text(text: str) -> Iterator[bytes]:
    """Yield a text in every encoding it could be left in."""
    for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le"):
        yield text.encode(encoding)
    escaped = json.dumps(text)[1:-1]
    for form in (escaped, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(escaped)[1:-1], repr(text)[1:-1]):
        yield form.encode("utf-8")
    for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield quoted.encode("ascii")
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted).encode("ascii")
    yield text.encode("utf-8").hex().encode("ascii")
    # In base64 its bytes can begin at three places; what depends on their neighbours is cut off.
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + text.encode("utf-8"))
        yield encoded[(shift * 8 + 5) // 6 + 1 : -4]


def forms(one: Canary) -> dict[str, list[bytes]]:
    """Return what could be left of a canary, by what it is."""
    found = {name: list(forms_of_text(text)) for name, text in zip(("id", "subject", "word"), one.texts, strict=True)}
    for j, value in enumerate(one.numbers):
        packed = [struct.pack(form, value) for form in ("<f", ">f", "<d", ">d")]
        found[f"number {j}"] = [*packed, repr(value).encode("ascii"), packed[0].hex().encode("ascii")]
    return found


def traces(one: Canary, content: bytes) -> list[str]:
    """Return what of a canary is in some bytes."""
    return [name for name, patterns in forms(one).items() if any(pattern in content for pattern in patterns)]


def remains(root: object, one: Canary) -> set[str]:
    """Return what of a canary can be reached from an object: in arrays and bytes, as text, as a number."""
    found = set(traces(one, array_bytes(root)))
    values: set[Any] = {value for value in reachable(root) if isinstance(value, (str, numbers.Real))}
    texts = "\0".join(value for value in values if isinstance(value, str)).encode("utf-8", "replace")
    found.update(traces(one, texts))
    found.update(f"number {j}" for j, value in enumerate(one.numbers) if value in values)
    return found


def files_with(canaries: Iterable[Canary], *places: Path, lone_numbers: bool = True) -> list[str]:
    """Search files, and all files of directories; return where something was found, and what.

    A single number may not count where nothing else of its canary is: its four bytes are in megabytes of sealed records
    by chance.
    """
    searched = list(canaries)

    def find(content: bytes) -> list[str]:
        found = [traces(one, content) for one in searched]
        is_chance = (not lone_numbers and len(what) == 1 and what[0].startswith("number") for what in found)
        return [one for what, by_chance in zip(found, is_chance, strict=True) if not by_chance for one in what]

    return search(find, *places)


def files_with_secrets(secrets: Mapping[str, bytes], *places: Path) -> list[str]:
    """Search files, and all files of directories, for keys; return where one was found, and its name."""
    patterns = {
        name: (secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret).rstrip(b"="))
        for name, secret in secrets.items()
    }
    return search(lambda content: [name for name, many in patterns.items() if any(p in content for p in many)], *places)


def search(find: Callable[[bytes], list[str]], *places: Path) -> list[str]:
    """Ask a function what it finds in each file, and in its name; files of the same content are searched once."""
    every = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*")))]
    known: dict[bytes, list[str]] = {}
    found = []
    for path in every:
        content = b""
        with suppress(FileNotFoundError):
            content = path.read_bytes().rstrip(b"\0") if path.is_file() else b""  # room that is kept is all zeros
        digest = hashlib.sha256(content).digest()
        if digest not in known:
            known[digest] = find(content)
        found += [f"{path.name}: {what}" for what in [*known[digest], *find(path.name.encode("utf-8"))]]
    return found
