"""How one tree is read by people: what a kind of model says of its own; `drawing.py` makes a picture of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


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
    """

    feature: int
    threshold: float | None = None
    missing_left: bool = False
    category: int | None = None
    goes_left: Callable[[int], bool] | None = None


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
    def says(self, node: int) -> tuple[list[int] | None, float | None]:
        """Samples of each class in the order of the classes, or a value; None where there is none."""
