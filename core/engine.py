"""What a kind of model is below its estimator: an engine, which owns the trees and keeps them up to date.

    parameters.py   a table of what can be set        estimator.py   what users see
    engine.py       an `Engine`, over a `Problem`     core/model.py  all that surrounds it, once for every kind

An engine knows slots and codes. It knows nothing of ids, labels and categories, which the sample store translates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Bools, Hashes, Ints, Reals, Slots
from oubli.core.changes import Changes
from oubli.core.errors import InputError
from oubli.core.look import TreeLook
from oubli.core.samples.arrays import Problem

Progress = Callable[[int, int], None]


class Shape(NamedTuple):
    """How much a file says that there is, before anything is made of it.

    Attributes
    ----------
    n_slots : one more than the largest slot.
    n_samples : samples held.
    n_classes : classes held; 0 in a regression.
    n_class_codes : room for class codes that they need, at least 2.
    n_codes : one more than the largest code of a category.
    categorical : bool[d], which columns are.
    is_classification : whether classes are predicted.
    """

    n_slots: int
    n_samples: int
    n_classes: int
    n_class_codes: int
    n_codes: int
    categorical: Bools
    is_classification: bool

    @property
    def groups(self) -> int:
        """Trees an iteration of boosting, if there are any."""
        return self.n_classes if self.n_classes > 2 else 1


class Counterpart(NamedTuple):
    """A fresh fit whose trees are those of a live engine: the samples of `slots` are the same, in the same order."""

    engine: Any
    problem: Problem
    slots: Slots


class Engine(ABC):
    """Trees over the samples of some slots.

    Whatever is raised before `add` or `delete` sets `changes.undo` to None has changed nothing, and `fit` changes
    nothing before it has come to its end.

    Parameters
    ----------
    settings : the parameters in force, as numbers, with the `seed` that everything is drawn from; `to_dict` gives them
        as a model file has them.
    n_features : columns of the cells.
    cell_dtype : float32 or float64.
    categorical : bool[n_features]
    is_classification : whether the labels are classes.

    Attributes
    ----------
    changes : those of the samples' store, once the engine belongs to a model; its own until then.
    n_mutations : samples added and deleted since the last fit; 0 where there is no difference.
    n_threads : for long work; the bits are the same for any number. The model says it, and no file knows it.
    """

    prefix: ClassVar[str]  # of the engine's arrays in a model file
    format: ClassVar[int]  # one more whenever the same samples would give other trees
    measures_distance: ClassVar[bool] = False  # whether `verify` says how far predictions are from a fresh fit's
    keeps_order: bool = False  # whether samples leave in the order of arrival
    yields: ClassVar[bool] = False  # whether `resolve_until` stops after one node
    has_separate_trees: ClassVar[bool] = False  # whether `fit_some` grows some trees without the others

    def __init__(
        self, settings: Any, n_features: int, cell_dtype: npt.DTypeLike, categorical: Bools, is_classification: bool
    ) -> None:
        self.settings = settings
        self.n_features = n_features
        self.cell_dtype = np.dtype(cell_dtype)
        self.categorical = np.array(categorical, np.bool_)
        self.is_classification = is_classification
        self.changes = Changes()
        self.n_mutations = 0
        self.n_threads = 1

    # -- learning -------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def check_capacity(settings: Any, n_samples: int, n_slots: int = 0) -> None:
        """CapacityError when so many samples, or slots, are too many."""

    @abstractmethod
    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        """Forget everything and train on the samples of some slots."""

    def fit_some(
        self, problem: Problem, slots: Slots, trees: Sequence[int], class_order: Ints, progress: Progress | None = None
    ) -> list[str]:
        """Grow some trees of the fit on the samples of slots, which no tree has to hold, and return their digests.

        The engine holds nothing before. Afterwards it has the header of that fit, and no trees. InputError where the
        trees depend on each other, so that some cannot be grown without the others.
        """
        raise InputError("the trees of this kind depend on each other: fit them all")

    @abstractmethod
    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        """Learn samples that have just joined the others, and unlearn those that leave for them.

        lazy : leave what can be put off as tags.
        """

    @abstractmethod
    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        """Unlearn samples that are about to leave; their cells and labels are still in place."""

    def enqueue(self, slots: Slots) -> Slots:
        """Hold the samples of slots, in the order of arrival, and return those that there is no room for."""
        return slots[:0]

    def leaving(self, n_new: int, slots: Sequence[int] = ()) -> list[int]:
        """The slots that leave when so many samples come; `slots`: of those that come, which may leave at once."""
        return []

    @property
    def n_tags(self) -> int:
        """Number of tagged nodes: what is put off."""
        return 0

    def resolve(self, problem: Problem, max_tags: int | None = None) -> int:
        """Do what was put off and return how many tags there were; or work on `max_tags` at most."""
        return 0

    def resolve_until(self, problem: Problem, stop: Ints) -> int:
        """Resolve tags until there are none, or another thread has set `stop`, int64[1]; return how many."""
        return self.resolve(problem)

    # -- reading --------------------------------------------------------------------------------

    @abstractmethod
    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        """Probabilities float64[n, n_classes] in the order of the class codes given, or values float64[n].

        problem : returns the samples held; asked only when something was put off.
        frozen : write nothing but working space.
        """

    @abstractmethod
    def importances(self) -> Reals:
        """Share of each feature in what all splits gain, float64[d]; without tags."""

    @property
    def n_drawn_trees(self) -> int:
        """Trees that predictions read, and that can be looked at; none where a kind has no trees."""
        return 0

    def look(self, tree: int, problem: Problem) -> TreeLook:
        """One of them, to be looked at; without tags."""
        raise IndexError(tree)

    def predict_unseen(self, problem: Problem, slots: Slots, class_order: Ints) -> tuple[Reals, Bools] | None:
        """Predict samples held by the trees that have not learned them; without tags, and writes nothing.

        Returns
        -------
        What `predict` returns, and which samples there are such trees for; None where every tree learns all samples.
        """
        return None

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """All but the trees that decides a prediction, JSON-able; part of the digest."""

    @abstractmethod
    def digests(self, class_order: Ints) -> list[str]:
        """SHA-256 of each tree, hexadecimal; without tags."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all arrays, working space included."""

    # -- what it costs --------------------------------------------------------------------------

    @abstractmethod
    def seconds_to_verify(self, problem: Problem) -> float:
        """How long `verify` takes, roughly: as a fit, and reading the samples one by one."""

    def takes_long(
        self, n_changed: int, row: Callable[[], tuple[Array, Hashes]], problem: Callable[[], Problem], seconds: float
    ) -> bool:
        """Whether so many samples that come or go may set off building for more than some seconds.

        row : returns the features of the first of them, encoded.
        """
        return False

    # -- keeping --------------------------------------------------------------------------------

    @abstractmethod
    def copy(self) -> Self:
        """An independent copy; O(size)."""

    def counterpart(self) -> Self:
        """An empty engine, whose fit on the same samples can be compared with this one."""
        other = type(self)(self.settings, self.n_features, self.cell_dtype, self.categorical, self.is_classification)
        other.n_threads = self.n_threads
        return other

    @abstractmethod
    def wipe(self) -> None:
        """Overwrite the working space, so that it holds nothing of any sample; without tags."""

    @abstractmethod
    def shred(self) -> None:
        """Overwrite the arrays that no copy shares; the trees cannot be used afterwards."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The trees as arrays for a file, without tags; nothing of unused capacity or of samples that have left."""

    def notes(self) -> dict[str, Any]:
        """What a model file says beside the arrays."""
        return {"n_mutations": self.n_mutations}

    @abstractmethod
    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        """Undo `arrays` in an empty engine, over the samples of `slots`, which are ascending; may empty `arrays`.

        Raises
        ------
        ValueError, FileError
            When the arrays are not sound trees of these samples, saying what is wrong.
        """

    @staticmethod
    @abstractmethod
    def bytes_asked(settings: Any, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the engine that is made of the arrays of a file, roughly; of a new one when there are no arrays."""

    @classmethod  # noqa: B027 - most have nothing more to check
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        """Check what a model file says before anything is made of it; FileError says what is wrong.

        The settings are those of the parameters, task and number of samples are right.
        """

    # -- checking -------------------------------------------------------------------------------

    @abstractmethod
    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Name what is kept that the samples of `slots`, which are all, do not confirm.

        fresh : a fresh fit with the same trees, if there is one.
        """

    def broken_promises(self, problem: Problem, slots: Slots) -> list[str]:
        """Name the nodes that are not what the guarantee says; without tags."""
        return []

    @abstractmethod
    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        """Check everything kept for internal soundness; AssertionError names what is broken. Slow, for tests.

        slots : of all samples, ascending; in the order of arrival if the engine keeps that.
        """
