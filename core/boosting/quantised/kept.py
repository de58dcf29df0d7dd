"""What the quantised engine keeps, as it is read, copied, stored and overwritten."""

from typing import Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Arrays, Bools, Ints, Reals, Slots
from oubli.core.boosting.engine import ExactEngine
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.problem import n_groups
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.bins import Features
from oubli.core.boosting.quantised.edges import EdgeTable
from oubli.core.boosting.quantised.export import importances, make_trees
from oubli.core.boosting.quantised.gradients import Loss
from oubli.core.boosting.quantised.regions import Regions
from oubli.core.boosting.quantised.serialise import bytes_asked, check_number_of_trees, check_same, pack
from oubli.core.boosting.quantised.start import Start, TargetSums
from oubli.core.boosting.state import Trees
from oubli.core.changes import Changes
from oubli.core.engine import Shape
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Problem


class KeptTrees(ExactEngine):
    """The trees with what is kept to update them; `engine.py` does that.

    Attributes
    ----------
    groups, n_iterations, n_predicting : trees an iteration, iterations, and how many of them predict.
    n_training, n_held : samples that train, and samples.
    roles, labels, rounding, first : by slot, see `state.Samples`.
    edges, class_counts, category_counts, sums : what decides bins and F_0, counted.
    features, bins, plans, forest, scores, space : see `state.py`.
    regions : see `regions.py`.
    live_edges, live_categories : which codes are in use.
    """

    settings: IncrementalSettings
    groups: int
    n_iterations: int
    n_predicting: int
    n_held: int
    roles: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int32]
    rounding: npt.NDArray[np.uint32]
    first: Ints
    edges: EdgeTable
    sums: TargetSums
    live_edges: Bools
    live_categories: Bools
    work: Arrays | None
    features: Features
    bins: s.Bins
    plans: s.Plans
    forest: s.Forest
    scores: s.Scores
    space: s.Space
    start: Start
    loss: Loss
    rules: s.Rules
    regions: Regions
    _trees: Trees | None

    # -- reading --------------------------------------------------------------------------------

    @property
    def n_trees(self) -> int:
        """Trees held, those that predictions leave out included."""
        return self.n_iterations * self.groups

    @property
    def trees(self) -> Trees:
        """What predictions read."""
        if self._trees is None:
            loss, start = self.loss, self.start
            base = [loss.unit * score + start.base for score in start.scores.tolist()]
            n_trees = self.n_predicting * self.groups
            self._trees = make_trees(self.forest, n_trees, self.features, base, loss.unit)
        return self._trees

    def gains(self) -> Reals:
        if not self.groups:
            return np.zeros(self.n_features)
        return importances(self.forest, self.n_predicting * self.groups, self.rules, self.n_features)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, working space included."""
        size = sum(array.nbytes for array in (self.roles, self.labels, self.rounding))
        if self.groups:
            parts = (self.features, self.bins, self.plans, self.forest, self.scores, self.space)
            size += sum(array.nbytes for part in parts for array in part) + self.first.nbytes
            size += self.regions.counts.nbytes + self.regions.sums.nbytes
            size += sum(array.nbytes for array in (self.work or {}).values())
        return size + (0 if self._trees is None else self._trees.nbytes)

    # -- keeping --------------------------------------------------------------------------------

    def shred(self) -> None:
        """Overwrite the arrays that no copy shares; the trees cannot be used afterwards."""
        aligned.shred((self.roles, self.labels, self.rounding))
        if self.groups:
            regions = self.regions.counts, self.regions.sums
            kept = (self.first, self.bins.codes, self.bins.rows, *regions)
            aligned.shred((*kept, *self.forest, *self.scores, *self.space))

    def copy(self) -> Self:
        """An independent copy; O(size)."""
        other = self.aside()
        other.changes = Changes()
        other.edges, other.sums = self.edges.copy(), self.sums.copy()
        for name in ("roles", "labels", "rounding", "class_counts", "category_counts"):
            setattr(other, name, getattr(self, name).copy())
        other.work = None
        if self.groups:
            # Tables are never changed in place.
            features, plans = self.features, self.plans
            other.features = features._replace(edges=features.edges.copy(), categories=features.categories.copy())
            other.plans = plans._replace(cuts=plans.cuts.copy(), draws=plans.draws.copy())
            other.live_edges, other.live_categories = self.live_edges.copy(), self.live_categories.copy()
            other.first, other.regions = self.first.copy(), self.regions.copy()
            other.bins = self.bins._replace(codes=self.bins.codes.copy(), rows=self.bins.rows.copy())
            forest, scores, space = self.forest, self.scores, self.space
            other.forest = forest._replace(**{name: array.copy() for name, array in forest._asdict().items()})
            other.scores = scores._replace(**{name: array.copy() for name, array in scores._asdict().items()})
            other.space = space._replace(**{name: np.zeros_like(array) for name, array in space._asdict().items()})
        return other

    def wipe(self) -> None:
        self.work = None
        if not self.groups:
            return
        for array in self.space:
            array[...] = 0
        # Those of all samples are made anew, from the ones kept, by the update that needs them.
        self.scores.new[:] = 0
        self.scores.old[:] = 0
        forest = self.forest
        forest.pool[forest.free[: int(forest.meta[s.N_FREE])]] = 0

    def arrays(self) -> Arrays:
        """The trees as arrays for a file: what they are compared with when they are grown again from the samples."""
        return pack(self.trees)

    @staticmethod
    def bytes_asked(settings: IncrementalSettings, shape: Shape, arrays: Arrays) -> int:
        return bytes_asked(settings, shape)

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        """Make the engine of the samples, and see that `arrays` describes its trees.

        The trees are a function of the samples, and growing them takes little longer than counting all that is kept
        with them: nothing has to be believed of a file.

        Raises
        ------
        ValueError
            When the arrays are not those of these samples.
        """
        check_number_of_trees(arrays, self.settings, n_groups(problem, len(slots)))
        self.fit(problem, slots)
        check_same(arrays, self.arrays())
