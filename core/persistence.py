"""Model files: safetensors with a checked header; no pickle, so reading one runs no code.

    metadata  format "oubli", version, document (canonical JSON: what the estimator wrote),
              sha256 over the document and all arrays
    tensors   the estimator's arrays by name

The file is written beside its place, flushed to the disk, and moved there.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import safetensors

from oubli.core.array_types import Array, Arrays
from oubli.core.bounds import Anything, Fields, Scalar, Text, Whole, parse_json, require
from oubli.core.errors import FileError, NewerFormatError, OubliError
from oubli.core.registry import KINDS
from oubli.core.tensors import check_tensors, read_tensor, write_tensors

FORMAT = "oubli"
VERSION = 3
# Of files with restricted samples or retention periods: a program that knows of none must not pass them over. Others
# are read by older ones.
_WITH_RIGHTS, _WITHOUT = 3, 2
# Of the oldest version whose trees this program reads; those of older files are grown anew from their samples.
FIRST_READABLE_TREES = 2


NOT_CANONICAL = "the samples hold numbers in another form than this program writes"
OLDER_FORMAT = "the trees are of an older format"
ASKED_FOR = "that was asked for"

# How much memory a file from elsewhere may ask for: so much in any case, and so many times its own arrays. What is
# measured while it is read, copies included, is about twice that at most.
_ALLOWED = 24 * 2**20
_ALLOWED_TIMES = 4
_FILLER = "filler"  # zeros, of a model that takes more memory than that, see `fill_up`
_TEXT_OF_EXTRA = 2**20
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
        "extra": Fields(more=Text(_TEXT_OF_EXTRA)),
        "settings": Fields(more=Anything()),
        "n_classes": Whole(2, 2**31 - 1),
        "n_mutations": Whole(),
    },
)

# What Python and NumPy raise when parts do not fit together.
_MISFITS = (ArithmeticError, AttributeError, LookupError, OubliError, RecursionError, TypeError, ValueError)


class Loaded(NamedTuple):
    """A model from a file.

    Attributes
    ----------
    model : the model.
    regrown : why its trees were grown anew from its samples; empty when they are the file's.
    """

    model: Any
    regrown: str


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
    _estimator_of(document)
    require(document, _HEADER, "its header")
    return document


def _estimator_of(document: Mapping[str, Any]) -> Any:
    kind, task = document.get("kind"), document.get("task")
    key: Any = (kind, task)  # a task is equal to its name
    if type(kind) is not str or type(task) is not str or key not in KINDS:
        raise FileError("the file holds a kind of model that this program does not know: upgrade oubli")
    return key


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
    """Compare arrays with their checksum in a thread: meanwhile something can be made of them.

    Returns what waits for the end of that, and raises FileError when the checksum does not hold. No array is kept in
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


def load(path: str | PathLike[str], *, verify: bool | None = None) -> Any:
    """Load a model of any kind that `save` wrote.

    Everything that takes no longer than reading is checked: checksum, types and shapes, ranges, references, that every
    sample is where the splits lead, counters against each other, parameters against settings, and the digest. Of a file
    in an older format, or with numbers in another form than `fit` holds them in, the samples and the parameters are
    taken, and the trees are grown anew.

    Parameters
    ----------
    path : the file.
    verify : bool, optional
        Whether to compare the trees with a fresh fit on the samples too, as the model's `verify` does. That takes as
        long as training. When left out, it is done where it takes less than about a second.

    Raises
    ------
    FileError
        When the file is unreadable, truncated, altered, foreign or of a newer format, or asks for much more memory
        than a file of its size may.
    """
    model = load_foreign(path).model
    is_wanted = model.seconds_to_verify() < _SHORT if verify is None else verify
    if is_wanted and not model.verify().ok:
        raise FileError("the file's trees are not those of its samples: restore another file")
    model.samples_.build_index()
    return model


_SHORT = 1.0  # seconds


def load_foreign(path: str | PathLike[str]) -> Loaded:
    """Load a model from a file that may come from anywhere; as `load`, but the trees are not compared with a fit."""
    return _load(path, is_own=False, regrow="")


def load_own(path: str | PathLike[str], *, regrow: bool = False) -> Loaded:
    """Load a model from a file that this program wrote and kept, however much memory it takes.

    With `regrow` the samples and the parameters are taken, and the trees are grown anew: they are derived data, and
    what is wrong with them is no reason to do without the samples.
    """
    return _load(path, is_own=True, regrow=ASKED_FOR if regrow else "")


def _load(path: str | PathLike[str], *, is_own: bool, regrow: str) -> Loaded:
    metadata, document, arrays = _read(path)
    require_checksum = _begin_check(metadata, arrays)
    try:
        return _model_of(document, arrays, _check_version(metadata), is_own, regrow)
    finally:
        require_checksum()  # what does not hold is said rather than what came of it


def _model_of(document: dict[str, Any], arrays: Arrays, version: int, is_own: bool, regrow: str) -> Loaded:
    """Make the model that a file describes, and empty `arrays`; FileError when its parts do not fit together."""
    if version < FIRST_READABLE_TREES:
        regrow = OLDER_FORMAT
    estimator = KINDS[_estimator_of(document)]
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
    return Loaded(model, regrown)


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
            "or write it anew with this version"
        )
