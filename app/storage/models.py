"""Models from files, and what the service notes beside them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oubli.core.data.schema import Task
from oubli.core.model import Model
from oubli.core.persistence import load_foreign, load_own, read_metadata


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model from a file.

    Attributes
    ----------
    model
        The model.
    regrown
        Whether its trees were grown anew from its samples.
    """

    model: Model
    regrown: bool


def load_kept(path: Path, *, regrow: bool = False) -> LoadedModel:
    """Read a model file that this server wrote and kept.

    Parameters
    ----------
    path
        The file.
    regrow
        Take the samples and the parameters alone, and grow the trees anew.

    Raises
    ------
    FileError
        When it is not a sound model file.
    """
    model, reason = load_own(path, regrow=regrow)
    return LoadedModel(model, bool(reason))


def load_sent(path: Path) -> LoadedModel:
    """Read a model file that somebody sent.

    Raises
    ------
    FileError
        When it is not a sound model file, or asks for much more memory than a file of its size may.
    """
    model, reason = load_foreign(path)
    return LoadedModel(model, bool(reason))


def read_notes(path: Path) -> dict[str, str]:
    """Return what the service noted beside the model in a file, and the model's digest; the rest is not checked.

    Raises
    ------
    FileError
        When it is not a sound model file.
    """
    document = read_metadata(path)
    notes: dict[str, str] = {**document.get("extra", {}), "digest": document["digest"]}
    return notes


def class_list(model: Model) -> list[Any] | None:
    """Return the classes held, as plain Python values; None for regression."""
    if model.task != Task.CLASSIFICATION:
        return None
    classes: list[Any] = model.samples_.classes.classes_array().tolist()
    return classes
