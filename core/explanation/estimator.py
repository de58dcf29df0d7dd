"""What models of every kind say of their answers: attributions, and nearest changes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Bools, Reals
from oubli.core.base import Keepable
from oubli.core.concurrency.locks import reads_long
from oubli.core.data.targets import encode_labels, encode_targets
from oubli.core.errors import EmptyModelError, InputError, UnavailableError
from oubli.core.explanation.attributions import Attributions, attribute_rows, seconds_to_attribute
from oubli.core.explanation.flips import NearestChange, flipping_changes, shown
from oubli.core.explanation.trees import Sizes, WeightedTrees, measure


class Explained(Keepable):
    """Why a model answers as it does."""

    @reads_long
    def shap_values(self, X: Any) -> Attributions:
        """Say what each column of rows adds to their answers: Shapley values, see `oubli.core.explanation`.

        The trees are read as they are, with the weights of the samples held now. Categories, missing values, and
        categories that no sample has are followed as predictions follow them.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)

        Returns
        -------
        Attributions
            `shap.Explanation(**found._asdict())` takes it. A row's base value and its values sum to its answer:
            probabilities, float64[n, d, n_classes] in the order of `classes_`; of boosted classifiers raw scores,
            float64[n, d] of the second of two classes; of regressors the number, float64[n, d], or its logarithm with
            the loss "poisson".

        Raises
        ------
        InputError
            When the input is refused, or with `disclosure="low"` (`UnavailableError`).
        EmptyModelError
            With no samples left.

        O(n nodes), and once for each version of a boosted model O(n_samples T depth).

        Examples
        --------
        >>> from oubli import DynamicForestRegressor
        >>> model = DynamicForestRegressor(random_state=0).fit([[0.0], [1.0], [2.0]], [0.0, 5.0, 9.0])
        >>> found = model.shap_values([[2.0]])
        >>> bool(abs(found.base_values[0] + found.values[0].sum() - model.predict([[2.0]])[0]) < 1e-9)
        True
        """
        self.check_is_fitted()
        self._check_names(X)
        self.resolve()
        unseen: dict[str, int] = {}
        cells, hashes = self.samples_.encode_queries(X, unseen)
        (trees, sizes), engine, store = self._weighted_trees(), self.engine_, self.samples_
        read = engine.read_queries(cells, hashes)
        values, base = attribute_rows(trees, sizes, engine.n_features, *read, engine.n_threads), sizes.expected
        classes = store.classes.classes_array().tolist() if engine.is_classification else []
        if len(classes) == 2 and len(base) == 1 and not self.is_boosted:
            values, base = np.concatenate([-values, values], axis=2), np.array([1.0 - base[0], base[0]])
        texts = {code: text for text, code in unseen.items()}
        data = np.empty(cells.shape, object)
        for row, one in enumerate(cells):
            data[row] = store.features_of(one, texts)
        if len(base) == 1 and (self.is_boosted or not classes):
            return Attributions(values[:, :, 0], np.full(len(cells), base[0]), data, list(self.schema_.names), None)
        names = [str(label) for label in classes]
        return Attributions(values, np.tile(base, (len(cells), 1)), data, list(self.schema_.names), names)

    def _weighted_trees(self) -> tuple[WeightedTrees, Sizes]:
        """The trees, without tags, in a read."""
        if self.disclosure_ == "low":
            raise UnavailableError(
                "nothing is explained with disclosure='low': it would show what that hides. Fit with disclosure="
                "'standard' to have it"
            )
        if len(self.samples_) == 0:
            raise EmptyModelError("the model holds no samples: add some before asking why it answers")
        trees = self.engine_.weighted_trees(self.samples_.problem(), self.class_order())
        kept, name = self.samples_.changes.derived, "sizes of trees"
        if name not in kept:
            kept[name] = measure(trees).to_array()
        return trees, Sizes.of_array(kept[name])

    @reads_long
    def seconds_to_explain(self, n_rows: int) -> float:
        """Internal: how long `shap_values` of so many rows takes, roughly."""
        self.resolve()
        return seconds_to_attribute(*self._weighted_trees(), n_rows)

    @reads_long
    def nearest_change(
        self, x: Any, *, columns: int = 1, features: Sequence[str] | None = None, target: Any = None
    ) -> NearestChange | None:
        """Find the smallest change of one or two columns of a row that changes its answer.

        The changes are found in the trees, see `oubli.core.explanation.flips`, and each is predicted before it is
        returned. The same model gives the same change.

        Parameters
        ----------
        x : list, array or table of one row
        columns : 1 or 2
            How many columns may change at most.
        features : sequence of str, optional
            Names of the columns that may change; all when left out.
        target : label or float
            Of a classifier: the class that the row is to get; any other one when left out. Of a regressor: the number
            that the prediction is to cross, that is, to be above if it is not, or no longer.

        Returns
        -------
        NearestChange or None
            None when no change was found.

        Raises
        ------
        InputError
            When a parameter is refused, or with `disclosure="low"` (`UnavailableError`).
        EmptyModelError
            With no samples left.

        O(d candidates), each of which is a prediction, at most some ten thousand.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> X, y = [[float(i), 0.0] for i in range(40)], ["low"] * 20 + ["high"] * 20
        >>> model = DynamicForestClassifier(random_state=0).fit(X, y)
        >>> found = model.nearest_change([15.0, 0.0])
        >>> found.features, found.answer
        (['x0'], 'high')
        """
        if isinstance(columns, bool) or columns not in (1, 2):
            raise InputError("must be 1 or 2: how many columns may change", field="columns", value=columns)
        X = x if hasattr(x, "columns") else [x]
        self.check_is_fitted()
        self._check_names(X)
        self.resolve()
        unseen: dict[str, int] = {}
        cells, hashes = self.samples_.encode_queries(X, unseen)
        if len(cells) != 1:
            raise InputError("must be one row: ask for one after the other")
        allowed = list(map(self.schema_.index, self.schema_.names if features is None else features))
        (trees, sizes), engine, store = self._weighted_trees(), self.engine_, self.samples_

        def answers(some: Array) -> Reals:
            return engine.predict(some, hashes, self.class_order(), self.samples_.problem, False)

        judge = self._judge(answers(cells), target)
        found = flipping_changes(
            trees, sizes.n_levels, store, cells, engine.read_queries(cells, hashes), columns, allowed,
            lambda some: judge(answers(some)),
        )  # fmt: skip
        texts = {code: text for text, code in unseen.items()}
        before = self._shown_row(cells[0], texts)
        for distance, changed, changed_cells in found:
            row = self._shown_row(changed_cells, texts)
            result = self.query([row])  # as it is sent: a number may be rounded
            if judge(result.labels if result.probabilities is None else result.probabilities)[0][0]:
                names, answer = [self.schema_.names[column] for column in changed], result.labels.tolist()[0]
                old, new = ([one[column] for column in changed] for one in (before, row))
                return NearestChange(names, old, new, distance, answer, row)
        return None

    def _shown_row(self, cells: Array, unseen: Mapping[int, str]) -> list[Any]:
        values = zip(self.samples_.features_of(cells, unseen), self.schema_.columns, strict=True)
        return [shown(value, column) for value, column in values]

    def _judge(self, answers: Reals, target: Any) -> Callable[[Reals], tuple[Bools, Reals]]:
        """Return what says of answers whether they are other ones than that for a row, and how close to that.

        target : as `nearest_change` takes it.
        """
        if not self.engine_.is_classification:
            number = float(encode_targets([target], 1, "target")[0])
            is_above = bool(answers[0] > number)
            return lambda some: ((some > number) != is_above, -some if is_above else some)
        now = int(answers.argmax(axis=1)[0])
        if target is None:
            return lambda some: (some.argmax(axis=1) != now, -some[:, now])
        label = encode_labels([target], 1, self.schema_.label_type, "target")[0]
        held = self.samples_.classes.classes_array().tolist()
        wanted = held.index(label) if label in held else now
        if wanted == now:
            raise InputError("must be another class than the predicted one, and held", field="target", value=target)
        return lambda some: (some.argmax(axis=1) == wanted, some[:, wanted])
