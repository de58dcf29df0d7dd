"""Weights of samples, on a grid.

A weight is a multiple of 1 / GRID, held as an integer of *units*. Trees that count samples count what
`oubli.core.jit.targets` makes of it: weights while all that are held are whole, and units as soon as one is not. So
whole weights are counted as so many equal samples, and scores are the same either way, as GRID is a power of two.

A class may have a weight, too, in the schema: a sample counts for its own weight times that of its class, and for one
unit at least.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from oubli.core.array_types import Ints, Reals
from oubli.core.data.schema import LARGEST_WEIGHT, Schema, label_key
from oubli.core.data.targets import read_label_column
from oubli.core.data.values import Label, RefusedError, number
from oubli.core.errors import CapacityError, FileError, InputError, ensure
from oubli.core.jit.targets import GRID, Units, write_targets
from oubli.core.samples.labels import ClassTable
from oubli.core.samples.records import Prepared
from oubli.core.samples.slots import SlotTable

MOST = 2**23  # all weights together are below it, where not all are 1: counts in units stay below 2^31

FIELD = "sample_weight"
RULE = (
    f"must be a number of at least 1/{2 * GRID} and below {LARGEST_WEIGHT}: leave out samples without weight, and "
    "multiply all by one number"
)


def read_weights(values: Any, n: int, *, may_be_zero: bool = False) -> Units | None:
    """Read the weights of n samples as units.

    Parameters
    ----------
    values : sequence of numbers, one for each sample; one for all; or None.
    may_be_zero : whether a sample may be left out by a weight of 0.

    Returns
    -------
    int32[n], or None when all are 1.

    Raises
    ------
    InputError
        With the row of a weight that is none.
    """
    if values is None:
        return None
    n_dimensions = 0 if isinstance(values, Real) else getattr(values, "ndim", 1)
    if n_dimensions == 0:
        values = np.full(n, values)
    elif n_dimensions > 1:
        raise InputError("Sample weights must be 1D array or scalar: pass one for each row", field=FIELD)
    raw = read_label_column(values, FIELD)
    if len(raw) != n:
        raise InputError(f"X has {n} rows, but {len(raw)} weights are given: give one for each row", field=FIELD)
    is_list = isinstance(raw.values, list)
    weights = np.array([_number(raw.value(row)) for row in range(n)] if is_list else raw.values, np.float64)
    units = np.floor(weights * GRID + 0.5)
    if raw.missing is not None:
        weights[raw.missing] = units[raw.missing] = np.nan
    is_wrong = ~((units >= 1) & (units < LARGEST_WEIGHT * GRID))
    if may_be_zero:
        is_wrong &= weights != 0
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise InputError(RULE, row=row, field=FIELD, value=raw.value(row))
    return None if (units == GRID).all() else units.astype(np.int32)


def _number(value: Any) -> float:
    """Return a weight; NaN for what is no number."""
    try:
        return number(value)
    except RefusedError:
        return math.nan


class WeighedSlots(SlotTable):
    """Slots with the weights of the samples in them.

    Attributes
    ----------
    weights, units, targets : see `SlotTable`; of length 0 until a weight other than 1 comes, which `has_weights` says
    n_parts : int
        Samples whose weight is not whole.
    total_units : int
        Of all samples.
    classes : ClassTable
    """

    classes: ClassTable

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.n_parts = self.total_units = 0

    @property
    def is_whole(self) -> bool:
        """Whether the weights of all samples held are whole."""
        return self.n_parts == 0

    def weight_at(self, slot: int) -> float:
        """The weight of the sample in a slot."""
        return self.weights.item(slot) / GRID if self.has_weights else 1.0

    def _units_of(self, weights: Units | None, labels: Sequence[Label] | Reals) -> Units | None:
        """What samples count for, by their weights and labels, in units; None when all count for 1."""
        weight_of = self.schema.weight_of_class
        if not weight_of or not isinstance(labels, Sequence):
            return weights
        factors = np.array([weight_of.get(label_key(label), 1.0) for label in labels])
        units = np.maximum(np.floor((GRID if weights is None else weights) * factors + 0.5), 1)
        is_wrong = units >= LARGEST_WEIGHT * GRID
        if is_wrong.any():
            rule = f"times that of the class must be below {LARGEST_WEIGHT}: make either smaller"
            raise InputError(rule, row=int(is_wrong.argmax()), field=FIELD)
        return None if (units == GRID).all() else units.astype(np.int32)

    def _begin_weights(self) -> None:
        """Make room for weights; those held are 1."""
        arrays = self._copied_arrays(self.capacity, has_weights=True)
        units = arrays.held * np.int32(GRID)
        targets = self.class_codes.copy() if self._classification else arrays.targets
        self.total_units = int(units.sum(dtype=np.int64))
        self.set_arrays(arrays._replace(weights=units.copy(), units=units, targets=targets))

    def check_total(self, units: Units | None, n: int) -> None:
        """CapacityError when samples with these units, or n of weight 1, are too many for those held."""
        if self.has_weights or units is not None:
            if len(self) + n > MOST:
                raise CapacityError(f"a model of samples with weights holds at most {MOST}")
            held = self.total_units if self.has_weights else GRID * len(self)
            if held + (GRID * n if units is None else int(units.sum(dtype=np.int64))) >= GRID * MOST:
                raise CapacityError(f"the weights of all samples together must be below {MOST}: make all smaller")

    def keeps_grid(self, units: Units | None) -> bool:
        """Whether counts of samples stay what they are when samples with these units come."""
        return units is None or (self.has_weights and (not self.is_whole or not (units % GRID).any()))

    def _write_weights(self, where: Ints | slice, prepared: Prepared) -> None:
        """Write the weights of prepared rows to slots, and their targets on the grid as it is."""
        self.weights[where] = GRID if prepared.weights is None else prepared.weights
        self.units[where] = GRID if prepared.units is None else prepared.units
        if self._classification:
            targets = np.empty(len(self.units[where]), np.int64)
            write_targets(self.class_codes[where], self.units[where], targets, is_whole=self.is_whole)
            self.targets[where] = targets

    def _count_weights(self, slots: Ints | slice, sign: int) -> None:
        """Count the weights of samples that have come (sign 1), or that leave (-1) and are overwritten."""
        was_whole, units = self.is_whole, self.units[slots]
        self.total_units += sign * int(units.sum(dtype=np.int64))
        self.n_parts += sign * int(np.count_nonzero(units % GRID))
        if sign < 0:
            self._blank_weights(slots)
        if self.is_whole != was_whole and self._classification:
            write_targets(self.class_codes, self.units, self.targets, is_whole=self.is_whole)

    def _blank_weights(self, slots: Ints | slice) -> None:
        self.weights[slots] = 0
        self.units[slots] = 0
        if self._classification:
            self.targets[slots] = 0

    def _copy_weights_to(self, other: "WeighedSlots") -> None:
        other.n_parts, other.total_units = self.n_parts, self.total_units

    def fill_weights(self, slots: Ints, weights: Ints) -> None:
        """Give the samples that have just been put into slots their weights, those of a file.

        Raises
        ------
        FileError
            When they do not fit.
        """
        if not len(weights):
            return
        is_sound = len(weights) == len(slots) and weights.min() >= 1 and weights.max() < LARGEST_WEIGHT * GRID
        if not is_sound or weights.sum() >= MOST * GRID:
            raise FileError("the weights do not fit the samples: restore another file")
        own = weights.astype(np.int32)
        units = self._units_of(own, self.classes.values(self.class_codes[slots]) if self._classification else ())
        self._begin_weights()
        self._count_weights(slots, -1)
        self.weights[slots] = own
        self.units[slots] = GRID if units is None else units
        self._count_weights(slots, 1)
        if self._classification:
            write_targets(self.class_codes, self.units, self.targets, is_whole=self.is_whole)

    def check_weights(self) -> None:
        """Check the weights and targets of all samples; AssertionError names what is broken."""
        if not self.has_weights:
            return
        held = self.held
        ensure(bool((self.weights[held] > 0).all() and (self.units[held] > 0).all()), "a weight is not above 0")
        ensure(not (self.weights[~held].any() or self.units[~held].any()), "a free slot has a weight")
        ensure(self.n_parts == np.count_nonzero(self.units % GRID), "the number of weights in parts is wrong")
        ensure(self.total_units == self.units.sum(dtype=np.int64), "the total of the weights is wrong")
        if self._classification:
            targets = np.zeros_like(self.targets)
            write_targets(self.class_codes, self.units, targets, is_whole=self.is_whole)
            ensure(np.array_equal(targets, self.targets), "a target is not that of the class and the weight")
