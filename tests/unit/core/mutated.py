"""Model files that somebody has changed: decoded, altered where their meaning is, and written again as valid files.

    Parts        a file taken apart: texts of the header, the document, the tensors
    mutate       one change, drawn from a seed: a number, a text, a shape, a dtype, a cell, a tensor, or blind bytes
    try_file     what a server would do with it: load it, and when it is accepted, work with it

Checksums and lengths are right in all but the blind changes: what is tested is what comes after them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from oubli.core import load
from oubli.core.data.schema import Task
from oubli.core.errors import FileError
from oubli.core.forest.engine import ForestEngine
from tests.histories.cases import Case, small

ALLOWED = 64 * 2**20  # bytes that loading may take, whatever the file's size
TIMES = 10  # and so many times the file

_DTYPES = {
    "BOOL": "bool", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "U32": "u4", "I32": "i4", "U64": "u8",
    "I64": "i8", "F16": "f2", "F32": "f4", "F64": "f8",
}  # fmt: skip
_NAMES = {np.dtype(name): code for code, name in _DTYPES.items()}
_RAW = "@raw@"  # in a document: what follows is JSON already, such as a number of 5,000 digits


@dataclass
class Tensor:
    """An array of a file, or what claims to be one."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: np.ndarray) -> Tensor:
        return cls(_NAMES[array.dtype], array.shape, np.ascontiguousarray(array).tobytes())

    @property
    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, _DTYPES[self.dtype]).reshape(self.shape).copy()


@dataclass
class Parts:
    """A model file taken apart."""

    metadata: dict[str, str]
    document: Any
    tensors: list[tuple[str, Tensor]]

    @classmethod
    def read(cls, path: Path) -> Parts:
        raw = path.read_bytes()
        end = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:end])
        metadata = header.pop("__metadata__")
        document = json.loads(metadata.pop("document"))
        del metadata["sha256"]  # made again, unless a change puts another in its place
        tensors = []
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            tensors.append((name, Tensor(entry["dtype"], tuple(entry["shape"]), raw[end + first : end + last])))
        return cls(metadata, document, tensors)

    def bytes(self) -> bytes:
        """The file with a right checksum and right lengths, in the order of the tensors."""
        text = self.document if isinstance(self.document, str) else json.dumps(self.document, sort_keys=True)
        start = text.find(f'"{_RAW}')
        while start >= 0:
            end = text.index('"', start + 1)
            text = text[:start] + text[start + 1 + len(_RAW) : end] + text[end + 1 :]
            start = text.find(f'"{_RAW}')
        digest = hashlib.sha256(text.encode())
        for name, tensor in sorted(dict(self.tensors).items()):
            digest.update(f"\n{name} {np.dtype(_DTYPES[tensor.dtype]).str} {tensor.shape}\n".encode())
            digest.update(tensor.data)
        metadata = {"sha256": digest.hexdigest(), **self.metadata, "document": text}
        entries = [("__metadata__", json.dumps(metadata))]
        place = 0
        for name, tensor in self.tensors:
            offsets = [place, place + len(tensor.data)]
            entry = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
            entries.append((name, json.dumps(entry)))
            place += len(tensor.data)
        # By hand: a name may be there twice.
        header = ("{" + ",".join(f"{json.dumps(name)}:{entry}" for name, entry in entries) + "}").encode()
        header += b" " * (-len(header) % 8)
        return len(header).to_bytes(8, "little") + header + b"".join(tensor.data for _, tensor in self.tensors)


# -- models to change -----------------------------------------------------------------------------

NUMBERS = Task.REGRESSION
MODELS: dict[str, Case] = {
    "forest": small("forest", n_estimators=4, n_thresholds=3),
    "forest-regressor": small("forest", NUMBERS, n_estimators=3, n_thresholds=3), "tree": small("tree"),
    "tree-window": small("tree", window=60), "online": small("online-boosting", n_estimators=4),
    "online-regressor": small("online-boosting", NUMBERS, n_estimators=4),
    "quantised": small("incremental-boosting", n_estimators=4),
    "quantised-regressor": small("incremental-boosting", NUMBERS, n_estimators=4),
    "stopping": small("incremental-boosting", n_estimators=4, early_stopping=2),
    "presorted": small("incremental-boosting", n_estimators=4, quantization=None),
    "presorted-regressor": small("incremental-boosting", NUMBERS, n_estimators=4, quantization=None),
}  # fmt: skip


def fitted(name: str = "forest", n: int = 48, **parameters: Any) -> Any:
    case = MODELS[name]
    return replace(case, parameters={**case.parameters, **parameters}).fitted(n)


def make(name: str, n: int = 48) -> Any:
    """A model with a history: free slots, nodes and leaves, subjects, expiries, origins."""
    model = fitted(name, n)
    for i in (1, 5, 30):
        model.samples_.set_subject(f"id {i}", "person" if i < 9 else "autre")
        model.samples_.set_expiry(f"id {i}", 4_102_444_800_000 + i)
    model.samples_.set_origins(["id 1", "id 30"], 2)
    for i in (3, 9, 10, 11, *range(31, n - 30)):
        model.delete(f"id {i}")
        model.resolve()
    (*rows, row), (*labels, label) = MODELS[name].samples(3, seed=9)
    model.add(rows, labels)
    model.replace("id 30", row, label)
    return model


@contextmanager
def counters() -> Iterator[None]:
    """Let nodes of 16 samples keep counters, or smaller ones where a comparison asks for it: files have some then."""
    with patch.object(ForestEngine, "_block_minimum", lambda self: self.smallest_block or 16):
        yield


def save(model: Any, path: Path) -> Parts:
    model.save(path, {"model_version": "3", "next_id": "50", "seq": "7", "created_at": "2026-01-02T03:04:05.678+00:00"})
    return Parts.read(path)


# -- changes --------------------------------------------------------------------------------------

_NUMBERS: list[Any] = [
    *(0, -1, 1, 2, 3, -7, 255, 2**15, 2**24, 2**28, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**63 - 1, 2**63, 2**64),
    *(10**30, f"{_RAW}{'9' * 5000}", 0.0, -0.0, 0.5, 1.0, 1.5, 1e-300, 1e300, f"{_RAW}1e999"),
    *(f"{_RAW}NaN", f"{_RAW}Infinity", f"{_RAW}-Infinity", True, False, None, "", "x", "1", "exact", "9" * 5000),
    *("\x00", "é" * 300, "\ud800", [], {}, [1], [[]], {"a": 1}),
    *(f"{_RAW}{'[' * 500}{']' * 500}", f"{_RAW}{'[' * 100_000}{']' * 100_000}"),
]
_NANS = [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
_NANS_32 = [0x7FC00001, 0xFFC00000, 0x7F800001, 0x7FFFFFFF]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _near(rng: random.Random, value: Any) -> Any:
    if type(value) is int and rng.random() < 0.4:
        return value + rng.choice([-2, -1, 1, 2])
    if type(value) is float and rng.random() < 0.4:
        return value * rng.choice([0.5, 0.999, 1.001, 2.0, -1.0])
    return rng.choice(_NUMBERS)


def _change_document(rng: random.Random, parts: Parts) -> None:
    path = rng.choice(list(_places(parts.document)))
    inner = parts.document
    for key in path[:-1]:
        inner = inner[key]
    way = rng.random()
    if way < 0.1:
        del inner[path[-1]]
    elif way < 0.15 and isinstance(inner, dict):
        inner[rng.choice(["settings", "extra", "digest", "window", "n_classes", "zzz", "kind"])] = rng.choice(_NUMBERS)
    elif way < 0.2 and isinstance(inner, list):
        inner.append(copy.deepcopy(inner[path[-1]]))
    else:
        inner[path[-1]] = _near(rng, inner[path[-1]])


def _change_text(rng: random.Random, parts: Parts) -> None:
    """The document as a text that is no object, or hardly one."""
    sound = json.dumps(parts.document)
    parts.document = rng.choice([
        "", "[]", "null", "1", "NaN", "{", sound[:-1], sound + " ", sound + "}", "[" * 100_000, '{"a":' * 50_000,
        sound[:-1] + ',"kind":"tree"}', sound.replace(":", ": ", 3), '"' + "x" * 1000 + '"',
    ])  # fmt: skip


def _change_metadata(rng: random.Random, parts: Parts) -> None:
    key = rng.choice(["format", "version", "sha256", "more"])
    parts.metadata[key] = rng.choice(["", "1", "2", "3", "-1", "9" * 5000, "oubli", "x" * 10_000, "\u0661"])


def _some(rng: random.Random, parts: Parts) -> int:
    return rng.randrange(len(parts.tensors))


def _change_cells(rng: random.Random, parts: Parts) -> None:
    filled = [i for i, (_, tensor) in enumerate(parts.tensors) if tensor.data]
    name, tensor = parts.tensors[index := rng.choice(filled)]
    array = tensor.array
    flat = array.reshape(-1)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(flat))
        other = rng.randrange(len(flat))
        if rng.random() < 0.15:
            flat[at], flat[other] = flat[other].copy(), flat[at].copy()
        elif array.dtype.kind == "f":
            known = [flat[other], flat[at] * 2]
            flat[at] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30, -3.0, 0.5, 2.0**24, *known])
            if rng.random() < 0.4:
                wide = array.dtype.itemsize == 8
                view = flat.view(np.uint64 if wide else np.uint32)
                view[at] = rng.choice(_NANS if wide else _NANS_32)
        elif array.dtype.kind == "b":
            flat[at] = not flat[at]
        else:
            limits = np.iinfo(array.dtype)
            near = int(flat[at]) + rng.choice([-2, -1, 1, 2])
            far = [limits.min, limits.max, 0, 1, 2**15, 2**24, 2**28, 2**31 - 1, rng.randrange(100), int(flat[other])]
            value = rng.choice([near, near, rng.choice(far)])
            flat[at] = min(max(value, limits.min), limits.max)
    if rng.random() < 0.03:
        flat[:] = flat[rng.randrange(len(flat))]
    parts.tensors[index] = name, Tensor.of(array)


def _change_shape(rng: random.Random, parts: Parts) -> None:
    name, tensor = parts.tensors[index := _some(rng, parts)]
    array = tensor.array
    ways: list[Callable[[], np.ndarray]] = [
        lambda: array[:-1], lambda: np.concatenate([array, array[-1:], array[-1:]]), lambda: array.reshape(-1),
        lambda: array[np.newaxis], lambda: array[:0],
        lambda: np.repeat(array, rng.choice([2, 3]), axis=array.ndim - 1),
    ]  # fmt: skip
    if rng.randrange(7):
        parts.tensors[index] = name, Tensor.of(rng.choice(ways)())
    else:  # no byte, and yet a shape
        shape = rng.choice([(2**40, 0), (0, 2**40), (2**20, 0), (2**31, 0, 1), (0,), (0, 0), (2**62, 0)])
        parts.tensors[index] = name, Tensor(tensor.dtype, shape, b"")


def _change_dtype(rng: random.Random, parts: Parts) -> None:
    name, tensor = parts.tensors[index := _some(rng, parts)]
    dtype = rng.choice(list(_DTYPES))
    n, rest = divmod(len(tensor.data), np.dtype(_DTYPES[dtype]).itemsize)
    if rng.random() < 0.5 and rest == 0 and len(tensor.shape) == 1:
        data = bytes(byte & 1 for byte in tensor.data) if dtype == "BOOL" else tensor.data
        parts.tensors[index] = name, Tensor(dtype, (n,), data)
    else:
        with np.errstate(all="ignore"):
            parts.tensors[index] = name, Tensor.of(tensor.array.astype(_DTYPES[dtype]))


def _change_tensors(rng: random.Random, parts: Parts) -> None:
    """Remove one, or have one twice, under another's name or in another place."""
    tensors, index, other = parts.tensors, _some(rng, parts), _some(rng, parts)
    (name, one), (second, two) = tensors[index], tensors[other]

    def swap() -> None:
        tensors[index], tensors[other] = (name, two), (second, one)

    ways: list[Callable[[], object]] = [
        lambda: tensors.pop(index), lambda: tensors.append((f"more.{rng.randrange(9)}", one)),
        lambda: tensors.append((name, one)), lambda: rng.shuffle(tensors), swap,
        lambda: tensors.__setitem__(index, (name, two)),
    ]  # fmt: skip
    rng.choice(ways)()


def _change_rows(rng: random.Random, parts: Parts) -> None:
    """Order or content of whole rows of one or all sample arrays."""
    name, tensor = parts.tensors[index := _some(rng, parts)]
    array = tensor.array
    if array.ndim and len(array) > 1:
        order = [rng.randrange(len(array)) for _ in array] if rng.random() < 0.5 else range(len(array) - 1, -1, -1)
        array = array[np.array(order)]
    parts.tensors[index] = name, Tensor.of(array)


def _change_blindly(rng: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    way = rng.randrange(5)
    if way == 0:
        del changed[rng.randrange(len(raw)) :]
    elif way == 1:
        changed += rng.randbytes(rng.choice([1, 8, 1000]))
    elif way == 2:
        start = rng.randrange(len(raw))
        del changed[start : start + rng.randrange(64)]
    elif way == 3:  # the length of the header
        changed[rng.randrange(8)] = rng.randrange(256)
    else:
        for _ in range(rng.choice([1, 3, 20])):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


_CHANGES = {
    _change_cells: 8, _change_document: 6, _change_shape: 2, _change_dtype: 2, _change_tensors: 2, _change_rows: 1,
    _change_text: 1, _change_metadata: 1,
}  # fmt: skip


def mutate(parts: Parts, seed: int) -> bytes:
    """One file with one change, or now and then with two or three; the same for the same seed."""
    rng = random.Random(seed)
    if rng.random() < 0.06:
        return _change_blindly(rng, parts.bytes())
    changed = copy.deepcopy(parts)
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
        if not changed.tensors or not isinstance(changed.document, dict) or not changed.document:
            break
        rng.choices([*_CHANGES], [*_CHANGES.values()])[0](rng, changed)
    return changed.bytes()


# -- what is done with a file ---------------------------------------------------------------------


def try_file(path: Path) -> str:
    """Load a file, and use the model if there is one; returns "refused" or "accepted".

    Raises
    ------
    AssertionError
        When a model was accepted that `verify` does not confirm, or when loading took too much memory.
    """
    size = path.stat().st_size
    tracemalloc.start()
    try:
        model = load(path)
    except FileError:
        return "refused"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= ALLOWED + TIMES * size, f"{peak / 2**20:.0f} MiB for a file of {size / 1024:.0f} KiB"
    use(model)
    return "accepted"


def use(model: Any) -> None:
    """Do everything that a server does with a model."""
    model.digest()
    verification = model.verify()
    assert verification.ok, f"accepted, and {verification}"
    model.check_invariants()
    store = model.samples_
    names = store.ids()
    held = [store.get(name) for name in names[:5]]
    if not held:
        assert model.n_samples_ == 0
        return
    queries, labels = [one.features for one in held], [one.label for one in held]
    model.query(queries)
    model.query(queries[:1])
    [new] = model.add(queries[:1], labels[:1])
    assert new not in names
    model.add([*queries, *queries], labels * 2)
    model.delete([names[0], new])
    model.delete(names[1] if len(names) > 1 else [])
    model.resolve()
    model.digest()
    assert model.verify().ok
