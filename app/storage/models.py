"""What the service needs of a model: the part of an estimator's interface that every kind offers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from oubli.core.data.schema import Schema, Task
from oubli.core.persistence import load_foreign, load_own, read_metadata
from oubli.core.samples.store import Prepared, SampleStore
from oubli.core.verification import Verification


class QueryResult(Protocol):
    """Predictions with the classes they were made from; regression has neither classes nor probabilities."""

    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[np.float64] | None
    classes: npt.NDArray[Any] | None


class ServedModel(Protocol):
    """An estimator as the service uses it; the kinds of `core` all fit."""

    kind: str
    seed_: int
    schema_: Schema
    samples_: SampleStore

    @property
    def is_usable(self) -> bool:
        """Whether no change of it was broken off halfway; otherwise whatever is asked of it is refused."""
        ...

    @property
    def guarantee(self) -> str:
        """What a deletion means: ``"exact"``, ``"epsilon-feasible"`` or ``"approximate"``."""
        ...

    @property
    def task(self) -> Task:
        """Classification or regression."""
        ...

    @property
    def n_samples_(self) -> int:
        """Number of samples held."""
        ...

    @property
    def n_lazy_tags_(self) -> int:
        """Number of subtrees that are rebuilt when a prediction meets them."""
        ...

    @property
    def nbytes_(self) -> int:
        """Bytes of trees and samples."""
        ...

    @property
    def n_mutations_since_scrub_(self) -> int:
        """Samples added and deleted since the model was built from nothing; of one that is not exact."""
        ...

    def add_prepared(self, prepared: Prepared) -> list[str]:
        """Add what `SampleStore.prepare` returned."""
        ...

    def leaving(self, n_new: int) -> list[str]:
        """Return the ids that leave by themselves when so many samples are added."""
        ...

    def takes_long(self, adds: Prepared | None, deletes: Sequence[str], n_others: int, seconds: float) -> bool:
        """Whether a change, made after some others, may set off building for more than some seconds."""
        ...

    def delete(self, ids: Iterable[str]) -> None:
        """Delete held samples."""
        ...

    def replace(self, sample_id: str, row: Any, label: Any) -> None:
        """Give a held sample new content."""
        ...

    def query(self, X: Any, *, frozen: bool = False) -> QueryResult:
        """Predict; frozen writes nothing, not even resolved tags."""
        ...

    def resolve(self, max_tags: int | None = None) -> int:
        """Rebuild tagged subtrees."""
        ...

    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held; without tags."""
        ...

    def shred(self) -> None:
        """Overwrite samples and trees, of a model that is let go of."""
        ...

    def scrub(self) -> None:
        """Leave no trace of samples that were deleted, by building the model anew if it is not exact."""
        ...

    def verify(self) -> Verification:
        """Compare with a fresh fit on the samples held."""
        ...

    def seconds_to_verify(self) -> float:
        """How long `verify` takes, roughly."""
        ...

    def digest(self) -> str:
        """Return the digest of the trees."""
        ...

    def copy(self) -> Self:
        """Return an independent copy."""
        ...

    def save(self, path: Path, extra: Mapping[str, str] | None = None) -> None:
        """Write a model file."""
        ...

    def get_params(self) -> dict[str, Any]:
        """Return the parameters."""
        ...


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

    model: ServedModel
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


def class_list(model: ServedModel) -> list[Any] | None:
    """Return the classes held, as plain Python values; None for regression."""
    if model.task != Task.CLASSIFICATION:
        return None
    classes: list[Any] = model.samples_.classes.classes_array().tolist()
    return classes
