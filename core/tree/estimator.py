"""The fully dynamic decision tree, as users meet it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from oubli.core.classification import Classifier
from oubli.core.data.schema import Schema
from oubli.core.errors import CapacityError
from oubli.core.keeping import Arrays
from oubli.core.samples.store import Prepared, SampleStore
from oubli.core.tree import check as soundness
from oubli.core.tree import export
from oubli.core.tree import serialise as storing
from oubli.core.tree import verification as checking
from oubli.core.tree.engine import MAX_SAMPLES, Tree
from oubli.core.tree.parameters import TreeParameters, read_parameters
from oubli.core.tree.window import Window
from oubli.core.verification import Verification

# A batch that is larger than both, in samples and as a share of those held, costs more to take in or out one by
# one than to build the tree anew.
_REBUILD_SHARE = 0.1
_REBUILD_SIZE = 1000
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_CELLS_A_SECOND = 10_000_000  # sorted and divided by a build, roughly: numeric columns, half the speed of some machine


class DynamicTreeClassifier(Classifier):
    """One decision tree that stays near the greedy one under any sequence of adds and deletes (FuDyADT).

    Each node is built anew when more than `epsilon` times as many samples have come or gone as it was built on. With
    `alpha`, `beta` and `epsilon` by Theorem 3.2 every split's gain is within `beta` of the best one's at all times; the
    model is then `epsilon-feasible`. Right after `fit` or `scrub` the tree is the greedy one, a pure
    function of the samples held, whatever their order.

    Parameters
    ----------
    max_depth : int in [0, 64] or None, default 10
        Greatest depth of a leaf, h; None stands for 64.
    pruning_size : int, default 1
        A node with at most so many samples is a leaf, k. (scikit-learn's `min_samples_split` is k + 1.)
    alpha : float in [0, 1), default 0.0
        A node is a leaf when it is built with a Gini index of at most alpha / 2, and is split from alpha on.
    beta : float in [0, 1), default 0.0
        What the gain of a split may be below the best one's. Says what is claimed and, when epsilon is None,
        how often nodes are built anew.
    epsilon : float or None, default 0.1
        Share of a node's samples that may come and go before it is built anew; 0 builds the whole tree anew with
        every sample. None: the largest that makes the tree epsilon-feasible, below
        min(1 / (pruning_size + 1), alpha / 5, beta / 12.5).
    window : int or None, default None
        Samples held at most: the oldest leaves when one more comes. A replaced sample counts as new.
    lazy : bool, default False
        Put building anew off until a query needs it (or `resolve`). Then the guarantee holds at every query.
    random_state : int, RandomState, Generator or None
        Draws nothing; every estimator has it.

    Attributes
    ----------
    classes_ : the classes held, ordered; they follow the samples.
    n_features_in_, feature_names_in_ : the columns; names only when given.
    samples_ : SampleStore
    guarantee : "epsilon-feasible", or "approximate" when Theorem 3.2 does not apply.
    n_mutations_since_scrub_ : samples added and deleted since the last `fit` or `scrub`.
    tree_, parameters_ : the tree, and its parameters as numbers.
    n_samples_, n_lazy_tags_, nbytes_, feature_importances_, seed_, schema_

    Notes
    -----
    Paper: "Fully-Dynamic Decision Trees" (Bressan, Damay, Sozio 2022), Algorithms 1 and 2, with these
    deviations: a) several classes, with the Gini index 1 - sum p_c^2; `core/tree/parameters.py` says why the theorem
    holds for them; b) missing values, which go to either side; categories, one of which goes left; c) a node whose
    samples cannot be told apart is a leaf; d) a batch of more than a tenth of the samples held, and of more than 1,000,
    builds the tree anew as a whole, other batches are learned one by one; e) see `core/tree/update.py`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> tree = DynamicTreeClassifier().fit(X, ["a", "a", "b", "b"])
    >>> tree.delete("3")
    >>> tree.add([[9.0]], ["c"])
    ['4']
    >>> tree.predict([[8.5]]).tolist()
    ['c']
    >>> print(tree.export_text(["length"]))
    length <= 5.50
        length <= 1.50
            a (2 samples): a 100%
        else
            b (1 sample): b 100%
    else
        c (1 sample): c 100%
    """

    kind = "tree"

    tree_: Tree
    parameters_: TreeParameters
    n_mutations_since_scrub_: int
    _window: Window | None
    _moved: npt.NDArray[np.int64]  # room for two slots, which a new array takes longer to make

    def __init__(
        self,
        max_depth: int | None = 10,
        *,
        pruning_size: int = 1,
        alpha: float = 0.0,
        beta: float = 0.0,
        epsilon: float | None = 0.1,
        window: int | None = None,
        lazy: bool = False,
        random_state: Any = None,
    ) -> None:
        self.max_depth = max_depth
        self.pruning_size = pruning_size
        self.alpha = alpha
        self.beta = beta
        self.epsilon = epsilon
        self.window = window
        self.lazy = lazy
        self.random_state = random_state

    @property
    def guarantee(self) -> str:
        """What the parameters in force promise; before `fit`, those that are set.

        Raises
        ------
        InputError
            Before `fit`, when a parameter does not fit.
        """
        parameters = self.parameters_ if self.__sklearn_is_fitted__() else read_parameters(self.get_params())
        return "epsilon-feasible" if parameters.is_feasible else "approximate"

    # -- learning -------------------------------------------------------------------------------

    @property
    def _settings(self) -> TreeParameters:
        return self.parameters_

    def _read_settings(self, schema: Schema) -> TreeParameters:
        return read_parameters(self.get_params())

    @staticmethod
    def _check_capacity(settings: TreeParameters, n_samples: int, n_slots: int = 0) -> None:
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a tree holds at most {MAX_SAMPLES} samples")

    def _begin_trees(self, settings: TreeParameters) -> None:
        schema, store = self.schema_, self.samples_
        self.parameters_ = settings
        self.n_mutations_since_scrub_ = 0
        self._window = None
        self._moved = np.zeros(2, np.int64)
        self.tree_ = Tree(
            settings.tree,
            schema.n_features,
            store.classes.capacity,
            schema.cell_dtype,
            schema.categorical_mask,
            store.changes,
        )
        if settings.window is not None:
            slots = store.slots_in_order()
            window = Window(settings.window, slots[-settings.window :].tolist())
            store.remove(slots[: -settings.window])
            self._window = window

    def grow_all(self, progress: Callable[[int, int], None] | None = None) -> None:  # noqa: D102 - inherited
        store = self.samples_
        tree = self.tree_.built(self.data(), store.slots(), store.classes.capacity)
        # One statement: no exception comes between its parts.
        self.tree_, self.n_mutations_since_scrub_ = tree, 0
        if progress is not None:
            progress(1, 1)

    def _is_built_anew(self, n_changed: int) -> bool:
        """Whether the tree is built anew when so many of the samples that the store now holds have come, or will go.

        With an epsilon of 0 that comes to the same as learning them one by one, each of which builds the tree anew.
        """
        if n_changed == 1:
            return False
        is_large = n_changed > _REBUILD_SIZE and n_changed > _REBUILD_SHARE * len(self.samples_)
        return is_large or self.parameters_.tree.epsilon == 0.0

    def _learn(self, slots: npt.NDArray[np.int64], n_before: int) -> None:
        tree, store = self.tree_, self.samples_
        tree.widen(store.classes.capacity)
        is_built_anew = self._is_built_anew(len(slots))
        if self._window is not None:
            self._slide(self._window, slots, is_built_anew)
        elif is_built_anew:
            planted = tree.planted(self.data(), store.slots())
            store.changes.undo = None
            self.tree_ = planted
        else:
            data = self.data()
            tree.reserve_slots(data)
            store.changes.undo = None
            tree.add(data, slots, lazy=self.lazy)
        self.n_mutations_since_scrub_ += len(slots)

    def _learn_one(self, slot: int, n_before: int) -> None:
        tree, window, changes = self.tree_, self._window, self.samples_.changes
        data = self.data()
        if len(data.targets) > len(tree.arrays_.links):
            tree.reserve_slots(data)
        if window is None or len(window) < window.size:
            one = np.array([slot])
            changes.undo = None
            if window is not None:
                window.append(slot)
            tree.add(data, one, lazy=self.lazy)
            self.n_mutations_since_scrub_ += 1
            return
        changes.undo = None
        moved, oldest = self._moved, cast("int", window.append(slot))
        moved[0], moved[1] = slot, oldest
        tree.exchange(data, moved, 1, lazy=self.lazy)
        self.n_mutations_since_scrub_ += 2
        self.samples_.let_go_of_one(oldest)

    def _slide(self, window: Window, slots: npt.NDArray[np.int64], is_built_anew: bool) -> None:
        """Learn samples one by one, each of which takes the place of the oldest if the window is full."""
        store, tree, data = self.samples_, self.tree_, self.data()
        numbers = slots.tolist()
        leaving = window.leaving(numbers)
        departures = store.stage_removal(leaving)
        planted = None
        if is_built_anew:
            stays = store.held.copy()
            stays[leaving] = False
            planted = tree.planted(data, np.flatnonzero(stays))
        else:
            tree.reserve_slots(data)
        store.changes.undo = None
        for slot in numbers:
            oldest = window.append(slot)
            if planted is None:
                moved = [slot] if oldest is None else [slot, oldest]
                tree.exchange(data, np.array(moved, np.int64), 1, lazy=self.lazy)
        if planted is not None:
            self.tree_ = planted
        self.n_mutations_since_scrub_ += len(leaving)
        store.let_go(departures)

    def _unlearn(self, slots: npt.NDArray[np.int64]) -> None:
        store, tree, data = self.samples_, self.tree_, self.data()
        if len(slots) == 1:
            slot = slots.item()
            store.changes.undo = None
            if self._window is not None:
                self._window.remove((slot,))
            tree.exchange(data, slots, 0, lazy=self.lazy)
            store.let_go_of_one(slot)
            self.n_mutations_since_scrub_ += 1
            return
        departures = store.stage_removal(slots)
        planted = None
        if self._is_built_anew(len(slots)):
            stays = store.held.copy()
            stays[slots] = False
            planted = tree.planted(data, np.flatnonzero(stays))
        store.changes.undo = None
        if self._window is not None:
            self._window.remove(departures.slots)
        if planted is not None:
            self.tree_ = planted
        else:
            tree.delete(data, slots, lazy=self.lazy)
        store.let_go(departures)
        self.n_mutations_since_scrub_ += len(slots)

    def _settle(self) -> None:
        if not self.lazy and self.tree_.n_tags:
            # The samples are learned. Tags that there is no memory to resolve are left to the queries that meet them.
            with suppress(MemoryError):
                self.tree_.resolve(self.data())

    def leaving(self, n_new: int) -> list[str]:  # noqa: D102 - inherited
        if self._window is None:
            return []
        return [self.samples_.id_of(slot) for slot in self._window.oldest(n_new)]

    def takes_long(  # noqa: D102 - inherited
        self, adds: Prepared | None, deletes: Sequence[str], n_others: int, seconds: float
    ) -> bool:
        n_rows = int(seconds * _CELLS_A_SECOND / self.n_features_in_)
        if self.lazy or 2 * len(self.samples_) <= n_rows:
            return False
        n_changed = (0 if adds is None else adds.n) + len(deletes) + n_others
        n_updates = n_changed if self._window is None else 2 * n_changed
        if self.tree_.n_short_updates(n_rows) >= max(n_updates, 1):
            return False
        if n_updates != 1:
            return True
        cells, category_hashes = self._encode_queries([self._features_of(adds, deletes)])
        return self.tree_.n_built_by(cells, category_hashes) > n_rows

    def _features_of(self, adds: Prepared | None, deletes: Sequence[str]) -> list[Any]:
        """The features of the one sample that is to come or go."""
        if adds is None:
            return self.samples_.get(deletes[0]).features
        row: list[Any] = adds.cells[0].tolist()
        for column, texts in adds.texts.items():
            row[column] = texts[0]
        return row

    def resolve(self, max_tags: int | None = None) -> int:
        """Build the subtrees of all lazy tags and return how many there were; or those of `max_tags` at most.

        Queries do this by themselves, for their own paths. A subtree is built as a whole.
        """
        self._check_is_fitted()
        return self.tree_.resolve(self.data(), max_tags)

    def wipe(self) -> None:
        """Overwrite what is kept of samples no longer held; resolves all tags.

        That is the working space. What a sample leaves in slots, tables, leaves and pools is overwritten when it
        goes; splits that were chosen with it stay, until `scrub`.
        """
        self.resolve()
        self.tree_.wipe_working_space()

    def scrub(self) -> None:
        """Build the tree anew: it is then that of a fresh fit, and no deleted sample has any trace."""
        self._check_is_fitted()
        self.grow_all()
        self.tree_.wipe_working_space()

    # -- reading --------------------------------------------------------------------------------

    def _counts(self, X: Any, frozen: bool) -> npt.NDArray[np.integer[Any]]:
        """Class counts of each row's leaf in the order of the classes, int[n, n_classes]; int[n_classes] for one row.

        Arrays of one dimension are so much faster that a single row is worth the exception.
        """
        cells, category_hashes = self._encode_queries(X)
        if len(cells) == 1 and not (frozen and self.tree_.n_tags):
            return self.tree_.count_one(self.data, cells, category_hashes)[self.class_order()]
        counts = self.tree_.counts(self.data(), cells, category_hashes, frozen=frozen)
        return counts[0, self.class_order()] if len(cells) == 1 else counts.take(self.class_order(), axis=1)

    def _probabilities(self, X: Any, frozen: bool) -> npt.NDArray[np.float64]:
        counts = self._counts(X, frozen)
        shares: npt.NDArray[np.float64]
        if counts.ndim == 1:
            shares = (counts / counts.sum())[np.newaxis]
        else:
            shares = counts / counts.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the class that most samples of each row's leaf have; the smaller class wins a tie."""
        self._check_names(X)
        counts = self._counts(X, frozen=False)
        classes = self.samples_.classes.classes_array()
        if counts.ndim == 1:
            best = counts.argmax()
            return classes[best : best + 1].copy()
        labels: npt.NDArray[Any] = classes[counts.argmax(axis=1)]
        return labels

    @property
    def n_lazy_tags_(self) -> int:
        """Number of tagged nodes."""
        self._check_is_fitted()
        return self.tree_.n_tags

    def _trees_nbytes(self) -> int:
        return self.tree_.nbytes

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """Share of each feature in the decrease of the Gini index, float64[d]; resolves all tags. O(nodes)."""
        self._check_is_fitted()
        self.resolve()
        return self.tree_.importances()

    def export_text(self, feature_names: Sequence[str] | None = None, *, decimals: int = 2) -> str:
        """The tree for people: its splits, and what each leaf says, a line a node; resolves all tags.

        Parameters
        ----------
        feature_names : sequence of str, optional
            Those of the schema when left out.
        decimals : int, default 2
            Of thresholds and percentages.

        Raises
        ------
        InputError
            For another number of names than features.
        """
        self._check_is_fitted()
        return export.export_text(self, feature_names, decimals)

    def export_graphviz(self, feature_names: Sequence[str] | None = None, *, decimals: int = 2) -> str:
        """The tree in Graphviz' DOT language, to be drawn by `dot`; resolves all tags.

        Parameters and errors are those of `export_text`.
        """
        self._check_is_fitted()
        return export.export_graphviz(self, feature_names, decimals)

    # -- checking -------------------------------------------------------------------------------

    def digest(self) -> str:
        """Hash of everything that can influence a prediction; resolves all tags.

        After `fit` or `scrub`, two models of the same parameters that hold the same samples have the same digest.
        """
        self._check_is_fitted()
        return checking.digest(self)

    def verify(self) -> Verification:
        """Count all that is kept anew from the samples held, and compare; resolves all tags.

        Checks (alpha, beta)-feasibility, node by node, when it is claimed; and right after `fit` or `scrub`, that the
        tree is that of a fresh fit.
        """
        self._check_is_fitted()
        return checking.verify(self)

    def check_invariants(self) -> None:  # noqa: D102 - inherited
        self._check_is_fitted()
        self.samples_.check_invariants()
        self.tree_.check_invariants(self.data(), self.samples_.slots())
        if self._window is not None and self._window.slots() != self.samples_.slots_in_order().tolist():
            raise AssertionError("the window has other samples, or in another order, than the store")

    # -- keeping --------------------------------------------------------------------------------

    def _shred_trees(self) -> None:
        self.tree_.shred()

    def _copy_trees_to(self, other: Self) -> None:
        other.tree_ = self.tree_.copy()
        other.tree_.changes = other.samples_.changes
        other.n_mutations_since_scrub_ = self.n_mutations_since_scrub_

    def _take_apart(self) -> tuple[dict[str, Any], Arrays]:
        return storing.take_apart(self)

    @staticmethod
    def _describe_settings(settings: TreeParameters) -> dict[str, Any]:
        return asdict(settings)

    @classmethod
    def _tree_bytes(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> int:
        return storing.tree_bytes(arrays) if with_trees else 0

    def seconds_to_verify(self) -> float:  # noqa: D102 - inherited
        n, depth = len(self.samples_), min(self.parameters_.tree.max_depth, 32)
        return n * self.n_features_in_ * (depth + _CELLS_OF_READING) / _CELLS_A_SECOND

    @classmethod
    def _check_description(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        soundness.check_description(document, arrays, with_trees=with_trees)

    def _put_together(
        self, document: Mapping[str, Any], arrays: Arrays, store: SampleStore, *, with_trees: bool
    ) -> None:
        storing.put_together(self, document, arrays, store, with_trees=with_trees)

    def _check_trees(self) -> None:
        """Nothing is left to do: `packing.unpack` takes no tree over that is not one of these samples."""
