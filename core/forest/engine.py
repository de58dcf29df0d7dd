"""The engine of the forest: DynFrs with exact adds and deletes.

Paper: "DynFrs: An Efficient Framework for Machine Unlearning in Random Forest". After any history of adds and deletes
the trees are those that a fit on the samples held gives. `ensemble.py` owns them; the algorithm is in the kernels
beside this file.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from oubli.core.array_types import Array, Arrays, Hashes, Ints, Reals, Slots
from oubli.core.engine import Counterpart, Engine, Progress, Shape
from oubli.core.errors import CapacityError
from oubli.core.forest import check, leftovers, quantisation, serialise
from oubli.core.forest.compare import compare_forests
from oubli.core.forest.digest import tree_digest
from oubli.core.forest.ensemble import Ensemble
from oubli.core.forest.importances import feature_importances
from oubli.core.forest.invariants import check_invariants
from oubli.core.forest.parameters import MAX_ENTRIES, MAX_SAMPLES, ForestSettings, places_of
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Data, Problem

# A batch above this share of the samples held costs more to take out one by one than to plant the
# rest anew.
_REPLANT_SHARE = 0.08
_CELLS_A_SECOND = 20_000_000  # counted by training, at each level of a tree, roughly
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_LARGEST_EXPONENT = 1024  # of targets next to the largest number


class Targets(NamedTuple):
    """The targets of a regression in fixed point, see `quantisation.py`."""

    scale: quantisation.TargetScale
    exponent: int  # that of the scale
    numbers: Ints  # int64[n_slots]; 0 in slots that hold no sample


def _targets_of(y: Reals, slots: Slots) -> Targets:
    scale = quantisation.TargetScale()
    scale.count(y[slots], 1)
    return Targets(scale, scale.exponent, quantisation.quantise(y, scale.exponent))


def _data_of(data: Data, targets: Targets | None) -> Data:
    """The samples with these targets, if there are any."""
    if targets is None:
        return data
    return Data(data.cells, targets.numbers, data.id_hashes, data.category_hashes, data.categorical)


class ForestEngine(Engine):
    """A forest, with the targets as its kernels count them: class codes, or values in fixed point."""

    prefix = serialise.PREFIX
    format = 2

    settings: ForestSettings

    def __init__(self, settings: ForestSettings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.ensemble = Ensemble(settings, self.n_features, 2, self.cell_dtype, bool(self.categorical.any()))
        self.targets = None if self.is_classification else _targets_of(np.zeros(0), np.zeros(0, np.int64))

    # -- learning -------------------------------------------------------------------------------

    @staticmethod
    def check_capacity(settings: ForestSettings, n_samples: int, n_slots: int = 0) -> None:
        # Slots that are free have entries, too.
        if places_of(settings, n_samples if n_samples > n_slots else n_slots) > MAX_ENTRIES:
            raise CapacityError(
                f"{max(n_samples, n_slots)} samples in {settings.occurrences} trees each exceed {MAX_ENTRIES} "
                "places in the lists of leaves: lower `occurrence` or `n_estimators`"
            )
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a forest holds at most {MAX_SAMPLES} samples")
        if settings.is_regression and n_samples > quantisation.MAX_SAMPLES:
            raise CapacityError(f"a regression holds at most {quantisation.MAX_SAMPLES} samples")

    def data(self, problem: Problem) -> Data:
        """The samples as the kernels read them."""
        return problem.data if self.targets is None else _data_of(problem.data, self.targets)

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        ensemble = self.ensemble.emptied(len(problem.ranks))
        targets = None if self.targets is None else _targets_of(problem.y, slots)
        ensemble.fit(_data_of(problem.data, targets), slots, progress)
        # One statement: no exception comes between its parts.
        self.ensemble, self.targets = ensemble, targets

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        # Tags are left in any case: what a mutation has to do is never more than counting.
        ensemble, changes = self.ensemble, self.changes
        ensemble.widen(len(problem.ranks))
        scale_moved = self.targets is not None and self._take_targets(self.targets, problem.y, slots)
        n_before = problem.n_samples - len(slots)
        if scale_moved or len(slots) > _REPLANT_SHARE * n_before or ensemble.has_many_pieces(len(slots)):
            planted = ensemble.planted(self.data(problem), problem.slots())
            changes.undo = None
            ensemble.become(planted)
            return
        ensemble.reserve(slots)
        data = self.data(problem)
        changes.undo = None
        try:
            ensemble.add(data, slots)
        except MemoryError:
            # Planting needs nothing of what has been left halfway, and gives the same trees in the end.
            ensemble.become(ensemble.planted(data, problem.slots()))

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        targets = self.targets
        if len(slots) > _REPLANT_SHARE * problem.n_samples:
            self._plant_without(problem, slots)
        elif targets is None:
            self.changes.undo = None
            self.ensemble.delete(problem.data, slots)
        elif _scale_moves_without(targets, problem.y[slots]):
            self._plant_without(problem, slots)
        else:
            data = self.data(problem)
            self.changes.undo = None
            self.ensemble.delete(data, slots)
            targets.scale.count(problem.y[slots], -1)
            targets.numbers[slots] = 0

    def _plant_without(self, problem: Problem, slots: Slots) -> None:
        """Unlearn samples by planting the others anew."""
        data, targets, ensemble = problem.data, self.targets, self.ensemble
        if targets is not None:
            y, scale = problem.y.copy(), targets.scale.copy()
            scale.count(y[slots], -1)
            y[slots] = 0.0
            targets = Targets(scale, scale.exponent, quantisation.quantise(y, scale.exponent))
            data = data._replace(targets=targets.numbers)
        stays = problem.held.copy()
        stays[slots] = False
        planted = ensemble.planted(data, np.flatnonzero(stays))
        self.changes.undo = None
        self.targets = targets
        ensemble.become(planted)

    def _take_targets(self, old: Targets, y: Reals, slots: Slots) -> bool:
        """Take in the targets of new samples; whether the scale of all has moved. Adds to `changes.undo`."""
        scale, numbers = old.scale.copy(), old.numbers
        scale.count(y[slots], 1)
        exponent = scale.exponent
        has_moved = exponent != old.exponent
        if has_moved:
            numbers = quantisation.quantise(y, exponent)
        elif len(numbers) < len(y):
            numbers = np.zeros(len(y), np.int64)
            numbers[: len(old.numbers)] = old.numbers
        new = quantisation.quantise(y[slots], exponent)
        if self.changes.undo is not None:
            self.changes.undo += [(self._set_targets, old), (self._blank_targets, slots)]
        self.targets = Targets(scale, exponent, numbers)
        numbers[slots] = new
        return has_moved

    def _set_targets(self, targets: Targets) -> None:
        self.targets = targets

    def _blank_targets(self, slots: Slots) -> None:
        if self.targets is not None:
            self.targets.numbers[slots] = 0

    @property
    def n_tags(self) -> int:
        return self.ensemble.n_tags

    def resolve(self, problem: Problem, max_tags: int | None = None) -> int:
        """Resolve all tags and return how many there were; or work on `max_tags` of them at most.

        With `max_tags` each call is short: it ends early when it has looked at some thousand samples, and may leave
        tags further down. Then the return value is the number of tags worked on.
        """
        return self.ensemble.resolve(self.data(problem), max_tags)

    # -- reading --------------------------------------------------------------------------------

    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        ensemble, targets = self.ensemble, self.targets
        if ensemble.n_tags == 0:
            sums, n_planted = ensemble.sum_resolved_leaves(cells, category_hashes)
        else:
            sums, n_planted = ensemble.sum_leaves(self.data(problem()), cells, category_hashes, frozen=frozen)
        if targets is None:
            probabilities: Reals = sums.take(class_order, axis=1)
            probabilities /= n_planted
            return probabilities
        means = sums[:, 0] / n_planted
        if targets.exponent < _LARGEST_EXPONENT:
            return quantisation.restore(means, targets.exponent)
        with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
            values = quantisation.restore(means, targets.exponent)
        largest = np.finfo(np.float64).max
        return values.clip(-largest, largest)

    def importances(self) -> Reals:
        return feature_importances(self.ensemble.trees, self.n_features, self.settings.criterion)

    def header(self) -> dict[str, Any]:
        header = self.settings.to_dict()
        del header["is_regression"]
        header["n_estimators"] = header.pop("n_trees")
        header["exponent"] = 0 if self.targets is None else self.targets.exponent
        return header

    def digests(self, class_order: Ints) -> list[str]:
        settings = self.settings
        return [
            tree_digest(self.ensemble.trees, tree, settings.is_regression, class_order)
            for tree in range(settings.n_trees)
        ]

    @property
    def nbytes(self) -> int:
        return self.ensemble.nbytes

    def seconds_to_verify(self, problem: Problem) -> float:
        settings, n = self.settings, problem.n_samples
        n_counted = n * settings.occurrences * settings.max_features * (2 + math.log2(n + 1))
        return (n_counted + n * self.n_features * _CELLS_OF_READING) / _CELLS_A_SECOND

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = super().counterpart()
        other.ensemble = self.ensemble.copy()
        if self.targets is not None:
            scale, exponent, numbers = self.targets
            other.targets = Targets(scale.copy(), exponent, numbers.copy())
        return other

    def counterpart(self) -> Self:
        """An empty forest that keeps candidate counters for every node for which this one keeps some."""
        other = super().counterpart()
        other.ensemble.keep_blocks_like(self.ensemble)
        return other

    def wipe(self) -> None:
        """Overwrite the working space.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes, and what its ranges and
        thresholds leave behind, when the tags that it leaves are resolved. O(largest tree).
        """
        self.ensemble.wipe_working_space()

    def shred(self) -> None:
        self.ensemble.shred()
        if self.targets is not None:
            aligned.shred([self.targets.numbers])

    def arrays(self) -> Arrays:
        return self.ensemble.state()

    def notes(self) -> dict[str, Any]:
        return {"n_classes": self.ensemble.width}

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        ensemble = self.ensemble
        ensemble.widen(arrays["leaves.statistics"].shape[1])
        ensemble.restore(arrays, n_slots=len(problem.held))
        if self.targets is not None:
            self.targets = _targets_of(problem.y, slots)
        check.check_forest(ensemble, self.data(problem), slots)
        leftovers.check_leftovers(ensemble, slots)

    @staticmethod
    def bytes_asked(settings: ForestSettings, shape: Shape, arrays: Arrays) -> int:
        return serialise.bytes_asked(settings, shape, arrays)

    @classmethod
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        if with_trees:
            check.check_parts(document, arrays)
        else:
            check.check_description(document, arrays)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Compare every counter, range and membership that is kept for later mutations with a fresh fit's."""
        if fresh is None:
            return []
        live = self.ensemble, slots, problem.class_order()
        return compare_forests(live, (fresh.engine.ensemble, fresh.slots, fresh.problem.class_order()))

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        check_invariants(self.ensemble, self.data(problem), slots)


def _scale_moves_without(targets: Targets, y: Reals) -> bool:
    """Whether the scale of all targets moves when samples with these leave."""
    # A target far below the scale cannot move it.
    if float(np.abs(y).max()) * 2.0**quantisation.EXPONENT_STEP < 2.0 ** min(targets.exponent, 1023):
        return False
    scale = targets.scale.copy()
    scale.count(y, -1)
    return scale.exponent != targets.exponent
