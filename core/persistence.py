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
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

from core.errors import FileError, NewerFormatError, OubliError
from core.tensors import read_tensor, write_tensors

FORMAT = "oubli"
VERSION = 2
# Of the oldest version whose trees this program reads; those of older files are grown anew from their samples.
FIRST_READABLE_TREES = 2

Arrays = dict[str, npt.NDArray[Any]]


def _checksum(document: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256(document.encode("utf-8"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write(path: str | PathLike[str], arrays: Mapping[str, npt.NDArray[Any]], document: dict[str, Any]) -> None:
    """Write a model file: complete and on the disk, or not there at all; other threads are not kept waiting.

    Parameters
    ----------
    path : where to; a file there is replaced.
    arrays : what to write, by name.
    document : JSON-able description, kept in the header.
    """
    target = Path(path)
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "document": text,
        "sha256": _checksum(text, contiguous),
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
    try:
        document = json.loads(metadata["document"])
    except (json.JSONDecodeError, RecursionError) as error:
        raise FileError("the file's header is damaged: restore another file") from error
    if not isinstance(document, dict):
        raise FileError("the file's header is damaged: restore another file")
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
    _Check(metadata, arrays).require()
    return document, arrays


class _Check:
    """The comparison of arrays with their checksum, in a thread: meanwhile something can be made of them."""

    def __init__(self, metadata: Mapping[str, str], arrays: Arrays) -> None:
        self._metadata = metadata
        self._arrays = arrays
        self._holds = False
        self._thread = Thread(target=self._compare, daemon=True)
        self._thread.start()

    def _compare(self) -> None:
        self._holds = _checksum(self._metadata["document"], self._arrays) == self._metadata.get("sha256")

    def require(self) -> None:
        """Return when the checksum holds; FileError when it does not."""
        self._thread.join()
        if not self._holds:
            raise FileError("the file's content does not match its checksum: restore another file")


def _read(path: str | PathLike[str]) -> tuple[dict[str, str], dict[str, Any], Arrays]:
    """Return metadata, document and arrays, which have yet to be checked."""
    with _open(path) as file:
        metadata = file.metadata()
        document = _check_header(metadata)
        try:
            arrays: Arrays = {name: read_tensor(file, name) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise FileError("the file is truncated: restore another file") from error
    return metadata, document, arrays


def load(path: str | PathLike[str]) -> Any:
    """Load a model of any kind that `save` wrote.

    Of a file in an older format the samples and the parameters are taken, and the model is grown anew.

    Raises
    ------
    FileError
        When the file is unreadable, truncated, altered, foreign or of a newer format.
    """
    metadata, document, arrays = _read(path)
    check = _Check(metadata, arrays)
    try:
        return _model_of(document, arrays, _check_version(metadata))
    finally:
        check.require()  # what does not hold is said rather than what came of it


def _model_of(document: dict[str, Any], arrays: Arrays, version: int) -> Any:
    """Make the model that a file describes; FileError when its parts do not fit together."""
    from core.kinds import KINDS  # the estimators import this module

    task: Any = str(document.get("task"))  # which is equal to the Task of this name
    estimator = KINDS.get((str(document.get("kind")), task))
    if estimator is None:
        raise FileError("the file holds a kind of model that this program does not know: upgrade oubli")
    try:
        return estimator.from_parts(document, arrays, with_trees=version >= FIRST_READABLE_TREES)
    except FileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OubliError) as error:
        raise FileError("the file's parts do not fit together: restore another file") from error
