"""The interface of the engine: what a kind of model is below its estimator, which owns the trees and updates them.

    parameters.py   a table of what can be set        estimator.py   what users see
    engine.py       an `Engine`, over a `Problem`     core/model.py  all that surrounds it, once for every kind

An engine knows slots and codes. It knows nothing of ids, labels and categories, which the sample store translates.

`TreeLook` is how a kind lets people read one of its trees; `drawing.py` makes a picture of it. `Verification` says
whether a live model is what its samples say.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Bools, Hashes, Ints, Reals, Slots
from oubli.core.bounds import LARGEST_COUNT
from oubli.core.concurrency.changes import Changes
from oubli.core.errors import InputError, UnavailableError
from oubli.core.explanation.trees import WeightedTrees
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Problem

_MOST_TREES = 10  # that are named
# What work takes, roughly, in seconds.
_CHANGING = 1e-4  # a sample that comes or goes
_ENCODING = 5e-7  # a cell
_ANSWERING = 1e-7  # a row in a tree


@dataclass(frozen=True, slots=True)
class Split:
    """What an inner node asks; samples for which it holds go left.

    Attributes
    ----------
    feature : column that is read.
    threshold : of numbers: those up to it go left; infinite: all that are not missing do. None: of categories.
    missing_left : of numbers: whether missing values go left.
    category : hash of the one category that goes left; None: several do.
    goes_left : says of the hash of a category whether it goes left; where several do.
    statistic : number of the statistic of the labels by category that `threshold` is for; None: the values are read.
    column : of what the trees read, where it is not `feature`: the statistic's.
    """

    feature: int
    threshold: float | None = None
    missing_left: bool = False
    category: int | None = None
    goes_left: Callable[[int], bool] | None = None
    statistic: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class TreeFacts:
    """What there is to say of a tree as a whole.

    Attributes
    ----------
    says : what nodes say: `classes` (counts), `mean` of the targets, or `score` (what leaves add to a raw score).
    iteration : of boosting, in which it is made.
    group : of boosting with many classes, which class in the order of the classes its scores are for; else None.
    """

    says: str
    iteration: int | None = None
    group: int | None = None


class TreeLook(ABC):
    """Reads one tree without tags; nodes are numbers that mean nothing outside. Only reads."""

    facts: TreeFacts
    root: int

    @abstractmethod
    def left(self, node: int) -> int | None:
        """The left child of a node, which the right one follows; None at a leaf."""

    @abstractmethod
    def split(self, node: int) -> Split:
        """What an inner node asks."""

    @abstractmethod
    def n_samples(self, node: int) -> int:
        """Samples held that come through a node."""

    @abstractmethod
    def says(self, node: int) -> tuple[list[float] | None, float | None]:
        """Samples of each class in the order of the classes, or a value; None where there is none."""


class RecordLook(TreeLook):
    """Reads a tree whose nodes are records: child, attribute, kind, threshold or category, n_samples.

    Kinds are 0 and 1 for a threshold, missing values going right or left, and 2 for one category. A leaf has a negative
    child.
    """

    nodes: Any

    def left(self, node: int) -> int | None:
        child = int(self.nodes["child"][node])
        return None if child < 0 else child

    def split(self, node: int) -> Split:
        record = self.nodes[node]
        feature, kind = int(record["attribute"]), int(record["kind"])
        if kind <= 1:
            return Split(feature, float(record["threshold"]), kind == 1)
        return Split(feature, category=int(record["category"]))

    def n_samples(self, node: int) -> int:
        return int(self.nodes["n_samples"][node])


def nodes_below(child: Array, top: Ints) -> Ints:
    """Rows of some nodes and of all nodes below them, level by level.

    child : row of the left child by row of a node, which the right one follows; negative at a leaf.
    """
    levels = [top]
    while len(levels[-1]):
        left = child[levels[-1]].astype(np.int64)
        left = left[left >= 0]
        levels.append(np.concatenate([left, left + 1]))
    return np.concatenate(levels)


def arrays_in(parts: Iterable[Any]) -> Iterator[Array]:
    """Yield the arrays among some parts, and those in tuples and dictionaries among them, at any depth."""
    for part in parts:
        if isinstance(part, np.ndarray):
            yield part
        elif isinstance(part, tuple):
            yield from arrays_in(part)
        elif isinstance(part, dict):
            yield from arrays_in(part.values())


Part = TypeVar("Part", bound=NamedTuple)


def copied(part: Part, *names: str) -> Part:
    """A named tuple with copies of its arrays: of those with some names, of all when none is named."""
    fields = part._asdict()
    arrays = {name: fields[name] for name in names or fields if isinstance(fields[name], np.ndarray)}
    return part._replace(**{name: aligned.copy(array) for name, array in arrays.items()})


Progress = Callable[[int, int], None]


class Shape(NamedTuple):
    """How much a file says that it holds, before it is used.

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

    def follow_weights(self, problem: Problem) -> None:  # noqa: B027 - most kinds count no amounts
        """Count samples from now on as the weights of those held ask, see `oubli.core.jit.targets`; it cannot fail."""

    def enqueue(self, slots: Slots) -> Slots:
        """Hold the samples of slots, in the order of arrival, and return those that do not fit."""
        return slots[:0]

    def leaving(self, n_new: int, slots: Sequence[int] = ()) -> list[int]:
        """The slots that leave when so many samples come; `slots`: of those that come, which may leave at once."""
        return []

    @property
    def n_tags(self) -> int:
        """Number of tagged nodes: what is put off."""
        return 0

    @property
    def is_planted_only(self) -> bool:
        """Whether all trees have yet to be built."""
        return False

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

    @property
    def start_scores(self) -> list[float]:
        """What the raw scores of boosting begin with, one for each tree of an iteration; empty for other kinds."""
        return []

    def read_queries(self, cells: Array, category_hashes: Hashes) -> tuple[Array, Hashes]:
        """What trees read of rows: cells, and the hashes of categories by code."""
        return cells, category_hashes

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

    def weighted_trees(self, problem: Problem, class_order: Ints) -> WeightedTrees:
        """All trees that predictions read, with the weight of the samples at each node; without tags, and only reads.

        Where answers are probabilities of two classes, the trees are for that of the second one.
        """
        raise UnavailableError("a model of this kind has no trees that explain an answer")

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
    def nbytes(self) -> int:
        """Bytes of all arrays, working space included."""
        found = arrays_in(list(vars(self).values()))
        return sum(size for _, size in {(array.__array_interface__["data"][0], array.nbytes) for array in found})

    # -- what it costs --------------------------------------------------------------------------

    @abstractmethod
    def seconds_to_verify(self, problem: Problem) -> float:
        """How long `verify` takes, roughly: as a fit, and reading the samples one by one."""

    def seconds_to_answer(self, n_rows: int) -> float:
        """How long it takes to predict so many rows, roughly."""
        return n_rows * (self.n_features * _ENCODING + self.n_drawn_trees * _ANSWERING)

    def seconds_to_change(self, n_changed: int, problem: Problem) -> float:
        """How long it may take to learn or unlearn so many samples, roughly; see `builds_long` for what they cause."""
        return n_changed * _CHANGING

    def builds_long(
        self, n_changed: int, row: Callable[[], tuple[Array, Hashes]], problem: Callable[[], Problem], seconds: float
    ) -> bool:
        """Whether so many added or deleted samples may cause more than some seconds of building.

        row : returns the features of the first of them, encoded.
        """
        return False

    def can_be_sliced(self, n_changed: int, problem: Problem, *, lazy: bool, is_queried: bool) -> bool:
        """Whether `change_in_slices` can learn or unlearn so many samples.

        lazy : what it defers may wait.
        is_queried : queries come in between, for which the tags may be resolved before, even if that takes longer.
        """
        return False

    def reader(self) -> Self:
        """Another engine with the same arrays, for predictions between two slices of a change."""
        return self.aside()

    def change_in_slices(self, problem: Problem, slots: Slots, sign: int) -> Iterator[None]:
        """Learn (1) or unlearn (-1) samples, as `add` and `delete` do, in slices of some milliseconds.

        Between two slices what a `reader` that was made before predicts is what it did before.
        """
        raise NotImplementedError

    # -- keeping --------------------------------------------------------------------------------

    def aside(self) -> Self:
        """Another engine with the same arrays and changes of its own; see `become`."""
        other: Self = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.changes = Changes()
        return other

    def become(self, other: Self) -> None:
        """Take over everything but the changes from an engine that was made aside, in one step."""
        self.__dict__.update({**vars(other), "changes": self.changes})

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
        return {"n_mutations": min(self.n_mutations, LARGEST_COUNT)}

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
        """Bytes of the engine that the arrays of a file become, roughly; of a new one when there are no arrays."""

    @classmethod  # noqa: B027 - most have nothing more to check
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        """Check what a model file says before it is used; FileError says what is wrong.

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


# -- verification -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TreeComparison:
    """One tree of the live model and of the fresh one.

    Attributes
    ----------
    tree : int
        Number of the tree.
    live_digest, fresh_digest : str
        Hashes of their canonical forms; empty where one model has fewer trees.

    Examples
    --------
    >>> TreeComparison(tree=0, live_digest="1f", fresh_digest="2e").ok
    False
    """

    tree: int
    live_digest: str
    fresh_digest: str

    @property
    def ok(self) -> bool:
        """Whether the trees are the same."""
        return self.live_digest == self.fresh_digest


@dataclass(frozen=True)
class Verification:
    """Outcome of checking a model against the samples it holds.

    Of a model that is exact, the other one is a fresh fit. Of one that is not, it has the same splits, and all that
    is counted is recounted; after a fit or a `scrub` it is a fresh fit as well.

    Attributes
    ----------
    live_digest, fresh_digest : str
        Digests of the models.
    trees : list of TreeComparison
        The same, tree by tree.
    wrong_counters : list of str
        What the live model keeps beside the trees (counters, ranges, memberships) that a recount
        does not confirm. Such an error does not show in the digest until a later mutation. A text names the counter,
        the first place where it is wrong (tree, node, feature, region), the numbers kept and recounted there, and in
        how many places it is wrong. It holds no cell, label or id of a sample.
    broken_promises : list of str
        Nodes that are not what the guarantee says.
    distance_to_fresh : float or None
        Of an approximate model with a history: how far its predictions for the samples held are from a fresh fit's.
        The share of other classes, or the root mean squared difference in standard deviations of the targets.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> forest = DynamicForestClassifier(n_estimators=5, random_state=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> outcome = forest.verify()
    >>> outcome.ok, len(outcome.trees), outcome.wrong
    (True, 5, [])
    """

    live_digest: str
    fresh_digest: str
    trees: list[TreeComparison]
    wrong_counters: list[str]
    broken_promises: list[str] = field(default_factory=list)
    distance_to_fresh: float | None = None

    def __repr__(self) -> str:
        """Say whether all is well, or the first thing that is wrong."""
        wrong = self.wrong
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return f"Verification({f'wrong: {wrong[0]}{more}' if wrong else 'ok'}, {len(self.trees)} trees)"

    @property
    def ok(self) -> bool:
        """Whether the live model is the other one, down to the last counter, and what it says it is."""
        return self.live_digest == self.fresh_digest and not self.wrong_counters and not self.broken_promises

    @property
    def wrong(self) -> list[str]:
        """All that is not as it should be, counters first; there is something unless `ok`."""
        wrong = [*self.wrong_counters, *self.broken_promises]
        if self.live_digest != self.fresh_digest:
            differing = [str(one.tree) for one in self.trees if not one.ok][:_MOST_TREES]
            wrong.append(f"the digest: not that of a fresh fit (trees {', '.join(differing) or 'are the same'})")
        return wrong


def compare_trees(live: Sequence[str], fresh: Sequence[str]) -> list[TreeComparison]:
    """Put the digests of trees beside each other."""
    return [TreeComparison(tree, a, b) for tree, (a, b) in enumerate(zip_longest(live, fresh, fillvalue=""))]


def wrong_numbers(
    name: str, kept: Array, recounted: Array, *, by_sample: bool = False, **axes: Ints | None
) -> list[str]:
    """Name what is kept and was counted differently: a text, or none where all is the same.

    Parameters
    ----------
    name : of the counter.
    by_sample : whether a number belongs to one sample; then it is left out.
    axes : names of the first axes, the numbers along each of them; None: places count from 0.
    """
    if kept.shape != recounted.shape:
        return [f"{name}: of another shape than recounted"]
    places = np.argwhere(kept != recounted)
    if not len(places):
        return []
    first = tuple(places[0].tolist())
    where = "".join(
        f", {axis} {place if numbers is None else numbers[place]}"
        for (axis, numbers), place in zip(axes.items(), first, strict=False)
    )
    values = "" if by_sample else f"{kept[first]} kept, {recounted[first]} recounted; "
    return [f"{name}{where}: {values}wrong places: {len(places)}"]


def named_classes(values: Iterable[Any]) -> list[list[str]]:
    """Classes by type and text, for a header."""
    return [[type(value).__name__, value.hex() if isinstance(value, float) else str(value)] for value in values]


def header_text(header: dict[str, Any]) -> str:
    """Canonical JSON of all but the trees that decides a prediction."""
    return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def model_digest(header: str, tree_digests: Sequence[str]) -> str:
    """SHA-256 of a header's text and the trees' digests, a line each, hexadecimal."""
    return hashlib.sha256("\n".join([header, *tree_digests]).encode("ascii")).hexdigest()
