"""The samples held, as engines and their kernels read them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Hashes, Ints, Reals
from oubli.core.jit.targets import Weights


class Data(NamedTuple):
    """The samples held, by slot; the kernels only read them."""

    cells: Array  # float32/64[n_slots, d]; categorical columns hold codes; NaN: missing
    targets: Ints  # int64[n_slots] class codes or quantised targets, with weights: see `core/jit/targets.py`
    id_hashes: Hashes  # uint64[n_slots]
    category_hashes: Hashes  # uint64[n_codes]
    categorical: Bools  # bool[d]


class Problem(NamedTuple):
    """Samples with their labels, by slot; engines only read them. Out of date with the next change."""

    data: Data  # `targets`: class codes; empty in a regression
    ranks: npt.NDArray[np.int32]  # int32[n_codes]: place of a class code in the order of the classes; -1: not held
    n_classes: int  # classes held; 0 in a regression
    y: Reals  # float64[n_slots]: targets of a regression; empty otherwise
    held: Bools  # bool[n_slots]: which slots hold samples, those that are about to leave included
    n_samples: int  # how many do
    class_counts: Ints  # int64[n_codes]: samples of each class
    class_codes: Ints  # int64[n_slots], without weights; empty in a regression
    units: npt.NDArray[np.int32]  # int32[n_slots] weights, see `oubli.core.samples.weights`; empty when all are 1
    is_whole: bool  # whether all weights are whole

    @property
    def has_weights(self) -> bool:
        """Whether samples may have weights other than 1."""
        return len(self.units) > 0

    @property
    def weights(self) -> Weights:
        """The weights of the samples."""
        return Weights(self.units, self.is_whole)

    def slots(self) -> Ints:
        """Return the slots that hold samples, ascending."""
        return np.flatnonzero(self.held)

    def class_order(self) -> Ints:
        """Return the codes of the classes held, in the order of the classes."""
        codes = np.flatnonzero(self.ranks >= 0)
        return codes[np.argsort(self.ranks[codes])]

    def changes_classes(self, slots: Ints) -> bool:
        """Whether a class has only the samples of some slots: it has come with them, or leaves with them."""
        if not self.n_classes:
            return False
        codes, counts = np.unique(self.class_codes[slots], return_counts=True)
        return bool((self.class_counts[codes] == counts).any())

    def without(self, slots: Ints) -> "tuple[Problem, Ints]":
        """Return the problem as it is when the samples of some slots have left, and the slots of the others."""
        held = self.held.copy()
        held[slots] = False
        rest = np.flatnonzero(held)
        if not self.n_classes:
            return self._replace(held=held, n_samples=len(rest)), rest
        counts = np.bincount(self.class_codes[rest], minlength=len(self.ranks))
        order = self.class_order()
        order = order[counts[order] > 0]
        ranks = np.full(len(self.ranks), -1, np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        rest_of = self._replace(ranks=ranks, n_classes=len(order), held=held, n_samples=len(rest), class_counts=counts)
        return rest_of, rest
