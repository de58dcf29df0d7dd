"""Model files: safetensors with a checked header; no pickle, so reading one runs no code.

    metadata  format "oubli", version, document (canonical JSON: what the estimator wrote),
              sha256 over the document and all arrays
    tensors   the estimator's arrays by name

The file is written beside its place, flushed to the disk, and moved there.

There is room for integer weights of samples: with `"weights": 1` in the document the tensor `samples.weights`, int32
in the order of `samples.slots`, has them, and all counts of nodes, leaves and counters are sums of weights. Left out,
or 0, each sample counts once. This program refuses any other number, so that it cannot pass weights over.

Arrays in the safetensors format, written and read piece by piece.

    8 bytes    length of the header, little endian
    header     JSON, padded with spaces to a multiple of 8 bytes
                 {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [start, end]}}
    data       the arrays, without gaps, those of the widest numbers first: so all are aligned

The library writes one string, which it puts together first, and reads an array in one go; other threads stand still
during this time, for a second where the arrays are large. It reads what is written here, and checks it.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import safetensors

from oubli.core.array_types import Array, Arrays
from oubli.core.bounds import Anything, Fields, Scalar, Text, Whole, parse_json, require
from oubli.core.concurrency.slices import cut
from oubli.core.errors import FileError, NewerFormatError, OubliError
from oubli.core.registry import is_known

_PIECE = 2**20  # bytes
_ALIGNMENT = 8
_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
_KNOWN = frozenset(_DTYPES.values())
_MOST_DIMENSIONS = 4


def write_tensors(handle: int, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write arrays, in C order and of the machine's byte order, to an empty file that is open for writing."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    _write_all(handle, memoryview(len(text).to_bytes(8, "little") + text))
    for name in names:
        # Little endian is what the machines have that this runs on; elsewhere it swaps the bytes.
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        _write_all(handle, array.reshape(-1).view(np.uint8).data)


def _write_all(handle: int, data: memoryview) -> None:
    # The system takes less at a time when there is much, or when a signal comes.
    while data:
        data = data[os.write(handle, data[: 16 * _PIECE]) :]


def check_tensors(file: Any, n_bytes: int) -> None:
    """Refuse tensors of types that are not written here, and shapes that are larger than a file of `n_bytes`.

    An empty array may have any length along its other dimensions; what goes through these would never end.

    Raises
    ------
    FileError
        When there are such.
    """
    for name in file.keys():  # noqa: SIM118
        source = file.get_slice(name)
        shape = source.get_shape()
        if source.get_dtype() not in _KNOWN or len(shape) > _MOST_DIMENSIONS or any(size > n_bytes for size in shape):
            raise FileError("a part of the file has a type or a shape that none can have: restore another file")


def read_tensor(file: Any, name: str) -> Array:
    """Read an array of a file that `safetensors.safe_open` has opened for NumPy."""
    source = file.get_slice(name)
    shape = source.get_shape()
    row_bytes = 8 * int(np.prod(shape[1:], dtype=np.int64))
    n_rows = max(1, _PIECE // max(1, row_bytes))
    if not shape or shape[0] <= n_rows:
        whole: Array = file.get_tensor(name)
        return whole
    result = np.empty(shape, source[:1].dtype)
    for rows in cut(shape[0], n_rows):
        result[rows] = source[rows]
    return result


FORMAT = "oubli"
VERSION = 5
# Of files with restricted samples or retention periods: a program that knows of none must not pass them over. Others
# are read by older ones.
_WITH_RIGHTS, _WITHOUT = 5, 4
# Of the oldest version whose trees this program reads; those of older files are rebuilt from their samples.
FIRST_READABLE_TREES = 4


NOT_CANONICAL = "the samples hold numbers in another form than this program writes"
OLDER_FORMAT = "the trees are of an older format"
ASKED_FOR = "that was asked for"

# How much memory a file from elsewhere may ask for: so much in any case, and so many times its own arrays. What is
# measured while it is read, copies included, is about twice that at most.
_ALLOWED = 24 * 2**20
_ALLOWED_TIMES = 4
_FILLER = "filler"  # zeros, of a model that takes more memory than that, see `fill_up`
EXTRA = Fields(more=Text(2**20))  # what a caller may keep with a model
# What the header of every model says; a kind checks the rest. `parameters` are checked again by the estimator.
_HEADER = Fields(
    {
        "kind": Text(64),
        "task": Text(64),
        "parameters": Fields(more=Scalar()),
        "schema": Fields({"columns": Anything(), "task": Text(64)}, more=Anything()),
        "n_samples": Whole(),
        "digest": Text(128),
    },
    {
        "guarantee": Text(64),
        "extra": EXTRA,
        "settings": Fields(more=Anything()),
        "n_classes": Whole(2, 2**31 - 1),
        "n_mutations": Whole(),
        "weights": Whole(0, 0),
    },
)

# What Python and NumPy raise when parts do not fit together.
_MISFITS = (ArithmeticError, AttributeError, LookupError, OubliError, RecursionError, TypeError, ValueError)


class Readable(Protocol):
    """A class of models that is made from what a file holds."""

    @classmethod
    def read_parts(
        cls, document: dict[str, Any], arrays: Arrays, *, regrow: str = "", limit: int | None = None
    ) -> tuple[Self, str]:
        """Put a model together; return it, and why its trees were rebuilt."""

    def digest(self) -> str:
        """Hash of everything that can influence a prediction."""


M = TypeVar("M", bound=Readable)


def _checksum(document: str, arrays: Iterable[tuple[str, Array]]) -> str:
    """Hash a document and arrays by name, which come in the order of the names."""
    digest = hashlib.sha256(document.encode("utf-8"))
    for name, part in arrays:
        array = np.ascontiguousarray(part)
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write(
    path: str | PathLike[str], arrays: Mapping[str, Array], document: dict[str, Any], *, with_rights: bool = False
) -> None:
    """Write a model file: complete and on the disk, or not there at all; other threads are not kept waiting.

    Parameters
    ----------
    path : where to; a file there is replaced.
    arrays : what to write, by name.
    document : JSON-able description, kept in the header.
    with_rights : whether some of the samples are restricted, or some subjects have a retention period.
    """
    target = Path(path)
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {
        "format": FORMAT,
        "version": str(_WITH_RIGHTS if with_rights else _WITHOUT),
        "document": text,
        "sha256": _checksum(text, sorted(contiguous.items())),
    }
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        try:
            write_tensors(handle, contiguous, metadata)
            os.fsync(handle)
        finally:
            os.close(handle)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    """Make a rename durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open(path: str | PathLike[str]) -> Any:
    try:
        return safetensors.safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise
    except OSError as error:
        if Path(path).is_dir():
            raise FileError("this is a directory: name a file that `save` or a snapshot wrote") from error
        raise FileError(f"the file cannot be read ({error.strerror}): check its permissions") from error
    except safetensors.SafetensorError as error:
        raise FileError("the file is truncated or not a model file: use one that `save` or a snapshot wrote") from error


def _check_version(metadata: Mapping[str, str]) -> int:
    version = metadata.get("version", "")
    # Nine digits at most: Python refuses to read thousands.
    if not (version.isascii() and version.isdecimal() and len(version) < 10) or int(version) == 0:
        raise FileError("the file has no format version: use one that `save` or a snapshot wrote")
    if int(version) > VERSION:
        raise NewerFormatError(
            f"the file has format version {version}, newer than {VERSION}, the newest this program reads: upgrade oubli"
        )
    return int(version)


def _check_header(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    if not metadata or metadata.get("format") != FORMAT or "document" not in metadata:
        raise FileError("the file was not written by Oubli: use one that `save` or a snapshot wrote")
    _check_version(metadata)
    document = parse_json(metadata["document"], "the file's header")
    if not isinstance(document, dict):
        raise FileError("the file's header is damaged: restore another file")
    kind, task = document.get("kind"), document.get("task")
    if type(kind) is not str or type(task) is not str or not is_known(kind, task):
        raise FileError("the file holds a kind of model that this program does not know: upgrade oubli")
    require(document, _HEADER, "its header")
    return document


def read_metadata(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a model file's description: kind, task, digest, n_samples, extra, ...

    Raises
    ------
    FileError
        When it is unreadable, truncated, foreign or of a newer format. The arrays are not checked.
    """
    with _open(path) as file:
        return _check_header(file.metadata())


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Read a model file and check every byte of it against its checksum.

    Raises
    ------
    FileError
        When it is unreadable, truncated, altered, foreign or of a newer format.
    """
    metadata, document, arrays = _read(path)
    _begin_check(metadata, arrays)()
    return document, arrays


def _begin_check(metadata: Mapping[str, str], arrays: Arrays) -> Callable[[], None]:
    """Compare arrays with their checksum in a thread, while the caller begins to use them.

    Returns a function that waits for the end, and raises FileError when the checksum does not hold. No array is kept in
    memory for longer than it takes to hash it.
    """
    holds: list[bool] = []
    left = dict(arrays)

    def compare() -> None:
        parts = ((name, left.pop(name)) for name in sorted(left))
        holds.append(_checksum(metadata["document"], parts) == metadata.get("sha256"))

    def require_it() -> None:
        thread.join()
        if holds != [True]:
            raise FileError("the file's content does not match its checksum: restore another file")

    thread = Thread(target=compare, daemon=True)
    thread.start()
    return require_it


def _read(path: str | PathLike[str]) -> tuple[dict[str, str], dict[str, Any], Arrays]:
    """Return metadata, document and arrays, which have yet to be checked."""
    with _open(path) as file:
        metadata = file.metadata()
        document = _check_header(metadata)
        try:
            check_tensors(file, Path(path).stat().st_size)
            arrays: Arrays = {name: read_tensor(file, name) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise FileError("the file is truncated: restore another file") from error
    return metadata, document, arrays


def read_model(
    path: str | PathLike[str],
    estimator_of: Callable[[str, str], type[M]],
    *,
    is_own: bool = False,
    regrow: str = "",
) -> tuple[M, str]:
    """Make the model that a file describes.

    Parameters
    ----------
    path : the file.
    estimator_of : returns the class of models of a kind and a task.
    is_own : whether this program wrote the file and kept it: it may ask for as much memory as it takes.
    regrow : why the trees are to be rebuilt; empty: they are taken over.

    Returns
    -------
    model, and why its trees were rebuilt.

    Raises
    ------
    FileError
        When it is unreadable, truncated, altered, foreign or of a newer format, or its parts do not fit together.
    """
    metadata, document, arrays = _read(path)
    require_checksum = _begin_check(metadata, arrays)
    try:
        if _check_version(metadata) < FIRST_READABLE_TREES:
            regrow = OLDER_FORMAT
        estimator = estimator_of(document["kind"], document["task"])
        limit = None if is_own else allowance(arrays)
        try:
            with np.errstate(all="ignore"):  # numbers that make no sense are refused, not warned of
                model, regrown = estimator.read_parts(document, arrays, regrow=regrow, limit=limit)
                if not regrown and model.digest() != document["digest"]:
                    raise FileError("the file's trees do not have the digest that it names: restore another file")
        except FileError:
            raise
        except _MISFITS as error:
            raise FileError("the file's parts do not fit together: restore another file") from error
        return model, regrown
    finally:
        require_checksum()  # a wrong checksum is reported rather than its consequences


def allowance(arrays: Mapping[str, Array]) -> int:
    """Bytes that a file from elsewhere may ask for."""
    return _ALLOWED + _ALLOWED_TIMES * sum(array.nbytes for array in arrays.values())


def fill_up(arrays: Arrays, n_bytes: int) -> Arrays:
    """Make arrays so large that their file may ask for some bytes of memory: with zeros, where they are too small."""
    missing = n_bytes - allowance(arrays)
    if missing <= 0:
        return arrays
    return {**arrays, _FILLER: np.zeros(missing // _ALLOWED_TIMES + 1, np.uint8)}


def require_room(n_bytes: int, limit: int | None) -> None:
    """Refuse a file that asks for more memory than it may."""
    if limit is not None and n_bytes > limit:
        raise FileError(
            f"the file asks for {n_bytes >> 20} MiB of memory, more than a file of its size may: restore another file, "
            "or write it again with this version"
        )
