"""What models of every kind offer to be read by people and other programs."""

from collections.abc import Sequence
from typing import Any

from oubli.core.array_types import Ints
from oubli.core.concurrency.locks import reads, reads_long
from oubli.core.export import lightgbm, pictures, tables

Names = Sequence[str] | None


class Exportable:
    """A model that other programs and people can read. What was exported does not follow later changes."""

    @reads_long
    def to_lightgbm(self: Any, *, of_class: Any = None) -> str:
        """Return the model as the text of a LightGBM model, which answers as this one does; resolves all tags.

        A classifier answers the probability of the second of two classes, or one for each of more, in the order of
        `classes_`. Numbers, booleans and pandas' columns of type `category` are read as they are;
        `oubli.lightgbm_rows(text, X)` makes numbers of anything else.

        Parameters
        ----------
        of_class : label, optional
            A class of a forest or tree, whose probability alone is answered, as a regression: for programs that read
            the text, but no averages of many classes (treelite, ONNX, PMML).

        Returns
        -------
        str
            For `lightgbm.Booster(model_str=...)`, treelite, onnxmltools and others. It names the categories held, and
            no sample.

        Raises
        ------
        InputError
            When LightGBM's form cannot say what the model does: a forest with `disclosure="low"`, splits at numbers of
            a size up to 1e-35, targets whose sums are no numbers.
        EmptyModelError
            With no samples left.

        O(nodes), for a forest times the number of classes.

        Examples
        --------
        >>> from oubli import DynamicForestClassifier
        >>> model = DynamicForestClassifier(n_estimators=2, random_state=0).fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.to_lightgbm().splitlines()[:3]
        ['tree', 'version=v4', 'num_class=1']
        """
        self.resolve()
        return lightgbm.to_text(self, of_class)

    @reads_long
    def trees_to_dataframe(self: Any) -> Any:
        """Return all nodes of all trees as a pandas DataFrame, a row a node; resolves all tags.

        Returns
        -------
        DataFrame with the columns
            tree, iteration, class : of boosting, in which iteration the tree is made, and for which of many classes.
            node, parent, depth, left, right : nodes count from the root of their tree, left subtrees first; -1: none.
            feature, threshold, categories, missing, text : numbers up to the threshold, or the categories that are
            listed, go left; missing values go as `missing` says. `text` is the same in words.
            n_samples, counts, value : samples that come through, those of each class by weight, and the mean of their
            targets or what a leaf adds to the raw score.

        Raises
        ------
        ImportError
            Without pandas.

        Examples
        --------
        >>> from oubli import DynamicTreeClassifier
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.trees_to_dataframe()[["node", "parent", "n_samples"]].values.tolist()
        [[0, -1, 3], [1, 0, 1], [2, 0, 2]]
        """
        self.resolve()
        return tables.data_frame(self)

    @reads_long
    def trees_to_json(self: Any) -> str:
        """Return all trees as a JSON document with what it takes to predict by them; resolves all tags.

        Returns
        -------
        str
            An object with `columns`, `classes`, `start_scores` and `trees`, whose `nodes` begin with the root and refer
            to others by position (-1: none). A number is rounded to the `dtype` of its column, and goes left up to
            `threshold`; the listed `categories` go left; `missing` says where missing values go. A tree says `classes`
            (the shares of a leaf's `counts`, averaged over the trees), `mean` (its `value`, averaged likewise) or
            `score` (its `value`, added to the raw score, which begins at `start_scores`). Averages leave trees without
            samples out.

        Examples
        --------
        >>> from oubli import DynamicTreeClassifier
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> import json
        >>> len(json.loads(model.trees_to_json())["trees"][0]["nodes"])
        3
        """
        self.resolve()
        return tables.document(self)

    @reads_long
    def export_text(
        self: Any, feature_names: Names = None, *, tree: int = 0, max_depth: int | None = None, decimals: int = 2
    ) -> str:
        """Return a tree for people: its splits, and what each leaf says, a line a node; resolves all tags.

        Parameters
        ----------
        feature_names : sequence of str, optional
            Those of the schema when left out.
        tree : int, default 0
            Which one.
        max_depth : int, optional
            Of the nodes that are shown.
        decimals : int, default 2
            Of thresholds and percentages.

        Raises
        ------
        InputError
            For another number of names than features, or when there is no such tree.

        Examples
        --------
        >>> from oubli import DynamicTreeClassifier
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> print(model.export_text(["age"]))
        age <= 0.50
            a (1 sample): a 100%
        else
            b (2 samples): b 100%
        """
        self.resolve()
        return pictures.as_text(pictures.shown_nodes(self, feature_names, tree, max_depth, decimals))

    @reads_long
    def export_graphviz(
        self: Any, feature_names: Names = None, *, tree: int = 0, max_depth: int | None = None, decimals: int = 2
    ) -> str:
        """Return a tree in Graphviz' DOT language, to be drawn by `dot`; resolves all tags.

        Parameters and errors are those of `export_text`.

        Examples
        --------
        >>> from oubli import DynamicTreeClassifier
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> model.export_graphviz(["age"]).splitlines()[0]
        'digraph tree {'
        """
        self.resolve()
        return pictures.as_graphviz(pictures.shown_nodes(self, feature_names, tree, max_depth, decimals))

    @reads_long
    def plot_tree(
        self: Any,
        feature_names: Names = None,
        *,
        tree: int = 0,
        max_depth: int | None = 3,
        decimals: int = 2,
        ax: Any = None,
    ) -> Any:
        """Draw a tree with matplotlib and return the axes; resolves all tags.

        Parameters
        ----------
        feature_names, tree, max_depth, decimals
            As for `export_text`.
        ax : matplotlib Axes, optional
            Where to draw; new ones when left out.

        Raises
        ------
        ImportError
            Without matplotlib; and as `export_text`.

        Examples
        --------
        >>> from oubli import DynamicTreeClassifier
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> ax = model.plot_tree(["age"])
        >>> len(ax.texts)
        5
        """
        self.resolve()
        return pictures.plot(pictures.shown_nodes(self, feature_names, tree, max_depth, decimals), ax)

    @reads_long
    def decision_path(self: Any, X: Any) -> tuple[Any, Ints]:
        """Say which nodes rows pass, as scikit-learn's forests do; resolves all tags.

        Parameters
        ----------
        X : array, DataFrame or list of rows, shape (n, d)

        Returns
        -------
        indicator : scipy.sparse.csr_array of shape (n, nodes)
            1 where the row passes the node.
        offsets : int64[n_trees + 1]
            Where the nodes of each tree begin; within a tree they are those of `trees_to_dataframe`.

        Raises
        ------
        ImportError
            Without SciPy.

        Examples
        --------
        >>> from oubli import DynamicTreeClassifier
        >>> model = DynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        >>> indicator, offsets = model.decision_path([[0.0], [2.0]])
        >>> indicator.toarray().tolist(), offsets.tolist()
        ([[1, 1, 0], [1, 0, 1]], [0, 3])
        """
        self._check_names(X)
        self.resolve()
        return tables.decision_path(self, *self._encode_queries(X))

    @reads
    def _repr_html_(self: Any) -> str:
        return pictures.as_html(self)
