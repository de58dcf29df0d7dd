"""What the forest's classifier and regressor share: DynFrs with exact adds and deletes.

Paper: "DynFrs: An Efficient Framework for Machine Unlearning in Random Forest". The estimators own the
sample store and the trees; what every kind shares is in `core/model.py`, and the algorithm is in the kernels
beside this file.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from oubli.core.data.schema import Schema
from oubli.core.errors import CapacityError
from oubli.core.forest import check as soundness
from oubli.core.forest import leftovers, quantisation
from oubli.core.forest import serialise as storing
from oubli.core.forest import verification as checking
from oubli.core.forest.engine import MAX_ENTRIES, MAX_SAMPLES, Ensemble, ForestSettings, places_of
from oubli.core.forest.importances import feature_importances
from oubli.core.forest.invariants import check_invariants
from oubli.core.forest.parameters import read_settings
from oubli.core.keeping import Arrays
from oubli.core.model import Model
from oubli.core.samples.store import SampleStore
from oubli.core.verification import Verification

# A batch above this share of the samples held costs more to take out one by one than to plant the
# rest anew.
_REPLANT_SHARE = 0.08
_CELLS_A_SECOND = 20_000_000  # counted by training, at each level of a tree, roughly
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such


class DynamicForest(Model):
    """A forest over a sample store; the subclasses say what a target is.

    After any history of adds and deletes it is the forest that `fit` would give on the samples held.
    """

    kind = "forest"
    guarantee = "exact"
    _criteria: ClassVar[tuple[str, ...]]

    ensemble_: Ensemble

    def __init__(
        self,
        n_estimators: int,
        occurrence: float,
        max_depth: int | None,
        min_samples_split: int,
        n_thresholds: int,
        max_features: Any,
        criterion: str,
        lazy: bool,
        random_state: Any,
    ) -> None:
        self.n_estimators = n_estimators
        self.occurrence = occurrence
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.n_thresholds = n_thresholds
        self.max_features = max_features
        self.criterion = criterion
        self.lazy = lazy
        self.random_state = random_state

    # -- learning -------------------------------------------------------------------------------

    @property
    def _settings(self) -> ForestSettings:
        return self.ensemble_.settings

    def _read_settings(self, schema: Schema) -> ForestSettings:
        return read_settings(self.get_params(), schema.n_features, self._criteria)

    @staticmethod
    def _check_capacity(settings: ForestSettings, n_samples: int, n_slots: int = 0) -> None:
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

    def _begin_trees(self, settings: ForestSettings) -> None:
        schema = self.schema_
        self.ensemble_ = Ensemble(
            settings,
            schema.n_features,
            self.samples_.classes.capacity,
            schema.cell_dtype,
            bool(schema.categorical_mask.any()),
        )
        if len(self.samples_) == 0:
            self.refresh_targets()

    def grow_all(self, progress: Callable[[int, int], None] | None = None) -> None:  # noqa: D102 - inherited
        self.ensemble_.widen(self.samples_.classes.capacity)
        self.refresh_targets()
        self.ensemble_.fit(self.data(), self.samples_.slots(), progress)

    def _learn(self, slots: npt.NDArray[np.int64], n_before: int) -> None:
        ensemble, changes = self.ensemble_, self.samples_.changes
        ensemble.widen(self.samples_.classes.capacity)
        scale_moved = self._take_targets(slots)
        if scale_moved or len(slots) > _REPLANT_SHARE * n_before or ensemble.has_many_pieces(len(slots)):
            planted = ensemble.planted(self.data(), self.samples_.slots())
            changes.undo = None
            ensemble.become(planted)
        else:
            ensemble.reserve(slots)
            data = self.data()
            changes.undo = None
            try:
                ensemble.add(data, slots)
            except MemoryError:
                # Planting needs nothing of what has been left halfway, and gives the same trees in the end.
                ensemble.become(ensemble.planted(data, self.samples_.slots()))

    def _unlearn(self, slots: npt.NDArray[np.int64]) -> None:
        store, ensemble = self.samples_, self.ensemble_
        if len(slots) > _REPLANT_SHARE * len(store) or self._scale_moves_without(slots):
            self._plant_without(slots)
        elif len(slots) == 1:
            data = self.data()
            store.changes.undo = None
            ensemble.delete(data, slots)
            self._let_go_of_targets(slots)
            store.let_go_of_one(slots.item())
        else:
            data, departures = self.data(), store.stage_removal(slots)
            store.changes.undo = None
            ensemble.delete(data, slots)
            self._let_go_of_targets(slots)
            store.let_go(departures)

    def _plant_without(self, slots: npt.NDArray[np.int64]) -> None:
        """Unlearn samples by planting the others anew."""
        store, ensemble = self.samples_, self.ensemble_
        departures = store.stage_removal(slots)
        targets = self._targets_without(slots)
        stays = store.held.copy()
        stays[slots] = False
        planted = ensemble.planted(self.data()._replace(targets=self._numbers_of(targets)), np.flatnonzero(stays))
        store.changes.undo = None
        self._set_targets(targets)
        store.let_go(departures)
        ensemble.become(planted)

    def resolve(self, max_tags: int | None = None) -> int:
        """Resolve all lazy tags and return how many there were; or work on `max_tags` of them at most.

        Queries do this by themselves, for their own paths. Resolving ahead keeps them fast. With
        `max_tags` each call is short: it ends early when it has looked at some thousand samples, and may
        leave tags further down. Then the return value is the number of tags worked on, and there are none
        left when `n_lazy_tags_` is 0.
        """
        self._check_is_fitted()
        return self.ensemble_.resolve(self.data(), max_tags)

    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held; resolves all tags. O(largest tree) beyond that.

        That is the working space. What a sample leaves in slots, tables, leaves and pools is overwritten when it
        goes, and what its ranges and thresholds leave behind, when the tags that it leaves are resolved.
        """
        self.resolve()
        self.ensemble_.wipe_working_space()

    def scrub(self) -> None:
        """Leave no trace of samples that were deleted: `wipe`, since the trees are those of a fresh fit anyway."""
        self.wipe()

    def _settle(self) -> None:
        if not self.lazy:
            # The samples are learned. Tags that there is no memory to resolve are left to the queries that meet them.
            with suppress(MemoryError):
                self.ensemble_.resolve(self.data())

    # -- targets: class codes as they are, or regression values in fixed point --------------------

    def refresh_targets(self) -> None:
        """Derive all targets from the store."""

    def _take_targets(self, slots: npt.NDArray[np.int64]) -> bool:
        """Take in the targets of new samples; whether the scale of all has moved. Adds to `changes.undo`."""
        return False

    def _scale_moves_without(self, slots: npt.NDArray[np.int64]) -> bool:
        """Whether the scale of all targets moves when some samples leave."""
        return False

    def _let_go_of_targets(self, slots: npt.NDArray[np.int64]) -> None:
        """Let go of the targets of samples about to leave, which moves no scale, and overwrite them."""

    def _targets_without(self, slots: npt.NDArray[np.int64]) -> Any:
        """What there is of targets, without some samples; changes nothing."""
        return None

    def _numbers_of(self, targets: Any) -> npt.NDArray[np.int64]:
        """The targets by slot in what `_targets_without` returned."""
        return self._targets()

    def _set_targets(self, targets: Any) -> None:
        """Go on with what `_targets_without` returned."""

    def _copy_targets(self, other: Self) -> None:
        """Take over what another model has derived from the same samples."""

    # -- reading --------------------------------------------------------------------------------

    def _sum_leaves(self, X: Any, frozen: bool) -> tuple[npt.NDArray[np.float64], int]:
        cells, category_hashes = self._encode_queries(X)
        ensemble = self.ensemble_
        if ensemble.n_tags == 0:
            return ensemble.sum_resolved_leaves(cells, category_hashes)
        return ensemble.sum_leaves(self.data(), cells, category_hashes, frozen=frozen)

    @property
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes."""
        self._check_is_fitted()
        return self.ensemble_.n_tags

    def _trees_nbytes(self) -> int:
        return self.ensemble_.nbytes

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the impurity decrease, float64[d]; resolves all tags. O(model)."""
        self._check_is_fitted()
        self.resolve()
        ensemble = self.ensemble_
        return feature_importances(ensemble.trees, self.n_features_in_, ensemble.settings.criterion)

    # -- checking -------------------------------------------------------------------------------

    def exponent(self) -> int:
        """Scale of the targets, see `quantisation.py`; 0 for classes."""
        return 0

    def tree_digests(self) -> list[str]:
        """Digest of each tree, in order; resolves all tags."""
        self._check_is_fitted()
        return checking.tree_digests(self)

    def digest(self) -> str:
        """Hash of everything that can influence a prediction, whatever the history; resolves all tags.

        Two models of the same parameters that hold the same samples have the same digest.
        """
        self._check_is_fitted()
        return checking.digest(self)

    def verify(self) -> Verification:
        """Train a fresh model on the samples held and compare everything; resolves all tags.

        Also recounts every counter, range and membership that is kept for later mutations.
        """
        self._check_is_fitted()
        return checking.verify(self)

    def check_invariants(self) -> None:  # noqa: D102 - inherited
        self._check_is_fitted()
        self.samples_.check_invariants()
        check_invariants(self.ensemble_, self.data(), self.samples_.slots())

    def _shred_trees(self) -> None:
        self.ensemble_.shred()
        self._shred_targets()

    def _shred_targets(self) -> None:
        """Overwrite what has been derived from the targets."""

    # -- keeping --------------------------------------------------------------------------------

    def _copy_trees_to(self, other: Self) -> None:
        other.ensemble_ = self.ensemble_.copy()
        other._copy_targets(self)

    def _take_apart(self) -> tuple[dict[str, Any], Arrays]:
        return storing.take_apart(self)

    @staticmethod
    def _describe_settings(settings: ForestSettings) -> dict[str, Any]:
        return dict(vars(settings))

    @classmethod
    def _check_description(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        if with_trees:
            soundness.check_parts(document, arrays)
        else:
            soundness.check_description(document, arrays)

    @classmethod
    def _tree_bytes(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> int:
        return storing.tree_bytes(document, arrays)

    def seconds_to_verify(self) -> float:  # noqa: D102 - inherited
        settings, n = self.ensemble_.settings, len(self.samples_)
        n_counted = n * settings.occurrences * settings.max_features * (2 + math.log2(n + 1))
        return (n_counted + n * self.n_features_in_ * _CELLS_OF_READING) / _CELLS_A_SECOND

    def _put_together(
        self, document: Mapping[str, Any], arrays: Arrays, store: SampleStore, *, with_trees: bool
    ) -> None:
        storing.put_together(self, document, arrays, store, with_trees=with_trees)

    def _check_trees(self) -> None:
        slots = self.samples_.slots()
        soundness.check_forest(self.ensemble_, self.data(), slots)
        leftovers.check_leftovers(self.ensemble_, slots)
