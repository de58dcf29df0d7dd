"""Ledgers that were downloaded: one JSON object a line, an entry or a page of `GET /ledger` as it was answered.

Only pages have the keyed hashes of erasures beside the entries; with them the entries are returned.
"""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from oubli.app.errors import StartError
from oubli.app.ledger.entries import UNLEARNED, ChainError, Entry, keyed_of, original_of
from oubli.app.ledger.openings import root_of
from oubli.app.ledger.tree import HASH_BYTES


def read_lines(path: Path) -> Iterator[Any]:
    """Return what should be entries, in the order of the file; whether they are is for others to check.

    Raises
    ------
    StartError
        When the file cannot be read, or a line is not JSON.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                content = _parse(path, number, line)
                if isinstance(content, dict) and isinstance(content.get("entries"), list):
                    yield from _entries_of(content)
                else:
                    yield content
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None


def _entries_of(page: dict[str, Any]) -> Iterator[Any]:
    keyed = page.get("keyed")
    for entry in page["entries"]:
        beside = keyed.get(str(entry.get("index"))) if isinstance(keyed, dict) and isinstance(entry, dict) else None
        yield entry if beside is None else {**entry, "keyed": beside}


def check_keyed(entry: Entry) -> None:
    """Check what came beside an entry of an erasure: keyed hashes of its names, and the leaves of its roots.

    Raises
    ------
    ChainError
        When it is not there, or not what belongs to the entry.
    """
    original = original_of(entry)
    if original["type"] != UNLEARNED or "targets_root" not in original:
        return
    keyed = keyed_of(entry)
    samples, targets = keyed.get("samples"), keyed.get("target_leaves")
    lists = {"targets_root": targets, "samples_root": keyed.get("sample_leaves", targets)}
    subjects, counts = keyed.get("subjects", []), keyed.get("subject_samples", [])
    is_sound = isinstance(subjects, list) and isinstance(counts, list) and len(subjects) == len(counts)
    is_sound &= isinstance(samples, list) and all(type(one) is str for one in samples)
    if not is_sound or any(_root_in(text) != original[name] for name, text in lists.items()):
        raise ChainError(entry["index"], "came with keyed hashes that do not belong to it")


def _root_in(text: object) -> str | None:
    """Return the root of leaves that are written as one text; None when they are not."""
    try:
        raw = base64.b64decode(text, validate=True) if isinstance(text, str) else b"?"
    except binascii.Error:
        return None
    if len(raw) % HASH_BYTES:
        return None
    return root_of([raw[start : start + HASH_BYTES] for start in range(0, len(raw), HASH_BYTES)])


def read_object(path: Path) -> dict[str, Any]:
    """Return the one JSON object in a file.

    Raises
    ------
    StartError
        When the file cannot be read, or holds something else.
    """
    try:
        content = _parse(path, 1, path.read_bytes())
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(content, dict):
        raise StartError(f"{path} must hold one JSON object, as the server answered it")
    return content


def _parse(path: Path, number: int, text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise StartError(
            f"{path} is not a downloaded ledger, receipt or list of keys: what begins in line {number} is not JSON. "
            "A ledger has one entry of GET /ledger a line"
        ) from None
