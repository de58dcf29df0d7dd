"""A model as the text of a LightGBM model (version v4 of its format), and rows as such a model reads them.

    rows        numbers as they are; false and true as 0 and 1; a category as its place among the sorted categories that
                the column holds, one that it does not hold as the place after the last; missing values as NaN
    numbers     LightGBM compares doubles; a column held as float32 rounds them first. So its threshold is the largest
                double that rounds to a float32 up to ours, and rows need no rounding
    categories  LightGBM lists those that go left; all others, and missing values, go right. Children change places if
                missing values go left. "Is it missing?" is a question about the number of the category
    scores      the trees of boosting, and a last tree with what they start from; the objective makes answers of them
    shares      a forest's trees once for each class, whose leaves hold the shares of the class; LightGBM averages them.
                Of one class, the second of two, and of targets the leaves hold what they add to the mean: other readers
                of LightGBM's form know no averages

Nodes below which all leaves say the same become one leaf.

A category that no sample holds has no place in the lists. Where trees do not send all of these where LightGBM does,
`lightgbm_rows` refuses them. LightGBM takes numbers of up to 1e-35 in size for 0.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.data.encoding import FLOAT32_MAX, Encoder
from oubli.core.data.schema import LabelType, Schema, label_key
from oubli.core.data.targets import encode_labels
from oubli.core.data.values import Column, ColumnType, Task
from oubli.core.engine import Split, TreeLook
from oubli.core.errors import EmptyModelError, InputError, UnavailableError
from oubli.core.export.trees import HeldCategories, Node, ReadModel, held_categories, nodes_of
from oubli.core.rng import RARE_CATEGORY
from oubli.core.samples.categories import write_codes

_LARGEST = float(np.finfo(np.float64).max)
_ZERO = 1e-35
_CATEGORY, _LEFT_IF_MISSING, _HAS_MISSING = 1, 2, 8  # bits of decision types
_WORD = 32
_ODD_CHARACTERS = re.compile(r'[\s",:=\[\]{}]+')  # in names of features
_OURS, _PANDAS = "oubli=", "pandas_categorical:"
_UNKNOWN = (
    "is a category that no sample had when the model was exported, and LightGBM's form cannot say where it goes: "
    "predict this row with the model itself"
)


class _Question(NamedTuple):
    """A split in LightGBM's form."""

    feature: int
    threshold: float
    kind: int  # decision type
    swaps: bool = False  # whether the children change places
    chosen: Array | None = None  # of categories: the set of those that go left, a bit each


class _Questions:
    """Puts the splits of a model into LightGBM's form.

    Attributes
    ----------
    held : the categories held of each categorical column.
    known_only : the columns of which it cannot say where categories go that no sample holds.
    """

    def __init__(self, model: ReadModel) -> None:
        self._columns = model.schema_.columns
        self.held = held_categories(model)
        self.known_only: set[int] = set()
        self._asked: dict[tuple[int, int], _Question] = {}  # by column and category

    def ask(self, split: Split) -> _Question:
        """Return a split in LightGBM's form; InputError when it has none."""
        if split.feature in self.held:
            key = split.feature, -1 if split.category is None else split.category
            if key not in self._asked or split.category is None:
                self._asked[key] = self._category(split, self.held[split.feature])
            return self._asked[key]
        column, threshold = self._columns[split.feature], min(float(split.threshold or 0.0), _LARGEST)
        if 0 < abs(threshold) <= _ZERO:
            raise InputError(
                "is split at a number so small that LightGBM takes it for 0: scale the column up, and fit again",
                field=column.name,
            )
        if column.dtype == "float32":
            threshold = last_double(threshold)
        return _Question(split.feature, threshold, _HAS_MISSING | (_LEFT_IF_MISSING if split.missing_left else 0))

    def _category(self, split: Split, held: HeldCategories) -> _Question:
        sides, missing = held.sides(split)
        is_rare = split.category == int(RARE_CATEGORY)
        # Those that no sample holds are rare where there are rare ones, and go right at any other single category.
        unknown = is_rare if split.statistic is None and split.goes_left is None else missing
        if not is_rare and split.category not in held.hashes:
            self.known_only.add(split.feature)
        if missing != unknown:
            if (sides == missing).all():
                return _Question(split.feature, len(sides) - 0.5, _HAS_MISSING | _LEFT_IF_MISSING, swaps=unknown)
            if (sides == unknown).all():
                return _Question(split.feature, _LARGEST, _HAS_MISSING, swaps=missing)
            self.known_only.add(split.feature)
        bits = np.zeros(-(-max(len(sides), 1) // _WORD) * _WORD, np.bool_)
        bits[: len(sides)] = sides != missing
        return _Question(split.feature, 0.0, _CATEGORY | _HAS_MISSING, missing, np.packbits(bits, bitorder="little"))


def last_double(threshold: float) -> float:
    """The largest double that is up to a threshold once it is rounded to float32."""
    if threshold >= FLOAT32_MAX:
        return _LARGEST  # larger numbers are held as the largest float32
    below = np.float32(threshold)
    if float(below) > threshold:
        below = np.nextafter(below, np.float32(-np.inf))
    middle = (float(below) + float(np.nextafter(below, np.float32(np.inf)))) / 2
    return middle if np.float32(middle) == below else float(np.nextafter(middle, -np.inf))


class _Tree:
    """The shape of one tree, for as many texts as it has outputs."""

    def __init__(self, nodes: list[Node], ask: Callable[[Split], _Question]) -> None:
        self._nodes = nodes
        self._parents, self._lefts, self._rights = (
            np.array([getattr(node, name) for node in nodes]) for name in ("parent", "left", "right")
        )
        self._asked = [None if node.split is None else ask(node.split) for node in nodes]
        inner, depths = np.flatnonzero(self._lefts >= 0), np.array([node.depth for node in nodes])
        self._upwards = [inner[depths[inner] == depth] for depth in range(depths.max(), -1, -1)]  # level by level
        # SHAP divides by the numbers of samples.
        self._counts = np.array([max(node.n_samples, 1) for node in nodes])
        self._add_up(self._counts)

    def _add_up(self, counts: Any) -> None:
        for level in self._upwards:
            counts[level] = counts[self._lefts[level]] + counts[self._rights[level]]

    def values(self, n_classes: int) -> Reals:
        """What leaves say, float64[nodes, outputs]; of inner nodes what all leaves below say, NaN if they differ."""
        if n_classes:
            counts = np.array([[0.0] * n_classes if node.counts is None else node.counts for node in self._nodes])
            self._add_up(counts)
            for number in np.flatnonzero(~counts.any(axis=1)).tolist():  # it answers as the node above does
                counts[number] = counts[self._parents[number]]
            values = counts / counts.sum(axis=1, keepdims=True)
        else:
            values = np.array([[0.0 if node.value is None else node.value] for node in self._nodes])
        for level in self._upwards:
            left, right = values[self._lefts[level]], values[self._rights[level]]
            values[level] = np.where(left == right, left, np.nan)
        return np.asarray(values, np.float64)

    def text(self, values: Reals) -> str:
        """Return the tree for one output, without its number; float64[nodes] of `values`."""
        is_inner = np.isnan(values)
        is_leaf = ~is_inner & ((self._parents < 0) | is_inner[self._parents])
        inner, leaf_counts = np.flatnonzero(is_inner), self._counts[is_leaf]
        if not len(inner):
            return _constant(values[0].item())
        numbers = np.where(is_inner, np.cumsum(is_inner) - 1, -np.cumsum(is_leaf))
        asked: list[Any] = [self._asked[number] for number in inner.tolist()]
        swaps = [question.swaps for question in asked]
        sides = numbers[self._lefts[inner]], numbers[self._rights[inner]]
        sets = [question.chosen.view("<u4") for question in asked if question.chosen is not None]
        is_set = np.array([question.chosen is not None for question in asked])
        parts: dict[str, Any] = {
            "num_leaves": np.array([len(leaf_counts)]),
            "num_cat": np.array([len(sets)]),
            "split_feature": np.array([question.feature for question in asked]),
            "threshold": np.where(is_set, np.cumsum(is_set) - 1.0, [question.threshold for question in asked]),
            "decision_type": np.array([question.kind for question in asked]),
            "left_child": np.where(swaps, *sides[::-1]),
            "right_child": np.where(swaps, *sides),
            "leaf_value": values[is_leaf],
            "leaf_weight": leaf_counts,
            "leaf_count": leaf_counts,
            "internal_weight": self._counts[inner],
            "internal_count": self._counts[inner],
            **dict.fromkeys(("split_gain", "internal_value"), np.zeros(len(asked), np.int64)),
        }
        if sets:
            parts |= {"cat_boundaries": np.cumsum([0, *map(len, sets)]), "cat_threshold": np.concatenate(sets)}
        parts |= {"is_linear": np.array([0]), "shrinkage": np.array([1])}
        return "".join(f"{name}={' '.join(map(repr, part.tolist()))}\n" for name, part in parts.items()) + "\n"


def _constant(value: float) -> str:
    return f"num_leaves=1\nnum_cat=0\nleaf_value={value!r}\nis_linear=0\nshrinkage=1\n\n"


def to_text(model: ReadModel, of_class: Any = None) -> str:
    """Write a model without tags as the text of a LightGBM model; raises as the method of the model says."""
    if not len(model.samples_):
        raise EmptyModelError("the model holds no samples: add some before you export it")
    if model.disclosure_ == "low":
        raise UnavailableError(
            "a forest with disclosure='low' answers each row by other trees, which LightGBM's form cannot say: fit one "
            "with disclosure='standard'"
        )
    engine, problem, questions = model.engine_, model.samples_.problem(), _Questions(model)
    classes = model.samples_.classes.classes_array().tolist()
    outputs = slice(1 if len(classes) == 2 else 0, len(classes))
    if of_class is not None:
        (wanted,) = encode_labels([of_class], 1, model.schema_.label_type, "of_class")
        places = [place for place, label in enumerate(classes) if label_key(label) == label_key(wanted)]
        if model.is_boosted or not places:
            raise InputError("must be a class held by a forest or tree; boosting says all at once", field="of_class")
        outputs = slice(places[0], places[0] + 1)
    n_outputs = max(len(engine.start_scores if model.is_boosted else classes[outputs]), 1)

    def is_read(look: TreeLook) -> bool:
        return model.is_boosted or look.n_samples(look.root) > 0

    numbers = [number for number in range(engine.n_drawn_trees) if is_read(engine.look(number, problem))]
    texts: list[str] = []
    furthest: list[Reals] = []  # values of leaves, by tree
    for number in numbers:
        look = engine.look(number, problem)
        tree = _Tree(nodes_of(look, inner_says=False), questions.ask)
        values = tree.values(len(classes))[:, outputs] if look.facts.says == "classes" else tree.values(0)
        if n_outputs == 1 and not model.is_boosted:
            values = values / len(numbers)
        texts += map(tree.text, values.T)
        furthest.append(np.nanmax(np.abs(values), axis=0))
    with np.errstate(over="ignore"):
        if not np.isfinite(np.sum(furthest)):
            rule = "is so large that sums of leaves are no numbers: scale it down, and fit again"
            raise InputError(rule, field=model.schema_.label_name)
    texts += map(_constant, engine.start_scores if texts or not classes else [1.0])
    return _document(model, texts, n_outputs, classes, questions)


def _document(model: ReadModel, trees: list[str], n_outputs: int, classes: list[Any], questions: _Questions) -> str:
    """Put the text together."""
    columns, held = model.schema_.columns, questions.held
    what = "objective=regression" if n_outputs == 1 else "average_output"
    if getattr(model.engine_.settings, "loss", "") == "poisson":
        what = "objective=poisson"  # the answer is a power of the raw score
    elif model.is_boosted and len(classes) > 1:
        what = "objective=binary sigmoid:1" if n_outputs == 1 else f"objective=multiclass num_class:{n_outputs}"
    places = {column: ":".join(map(str, range(len(one.texts)))) for column, one in held.items()}
    ours = {
        "classes": classes,
        "columns": [[column.name, column.type] for column in columns],
        "named": model.schema_.named,
        "known_only": sorted(questions.known_only),
    }
    texts = [f"Tree={number}\n{text}" for number, text in enumerate(trees)]
    lines = [
        "tree",
        "version=v4",
        f"num_class={n_outputs}",
        f"num_tree_per_iteration={n_outputs}",
        "label_index=0",
        f"max_feature_idx={len(columns) - 1}",
        what,
        f"feature_names={' '.join(_feature_names(columns))}",
        f"feature_infos={' '.join(places.get(j, '[-inf:inf]') or 'none' for j in range(len(columns)))}",
        _OURS + json.dumps(ours).replace("=", r"\u003d"),
        f"tree_sizes={' '.join(str(len(text)) for text in texts)}",
    ]
    ends = ["end of trees", "", "feature_importances:", "", "parameters:", "end of parameters", ""]
    ends.append(_PANDAS + json.dumps([one.texts for one in held.values()]))
    return "\n".join([*lines, "", "".join(texts) + "\n".join(ends), ""])


def _feature_names(columns: Sequence[Column]) -> list[str]:
    """The names of the columns without characters that LightGBM refuses; another one where two would be the same."""
    names: dict[str, None] = {}
    for column in columns:
        name = _ODD_CHARACTERS.sub("_", column.name)
        while name in names:
            name += "_"
        names[name] = None
    return list(names)


def lightgbm_rows(text: str, X: Any) -> Reals:
    """Encode rows as a model exported by `to_lightgbm` reads them, float64[n, d].

    Categories become their places among those that the column held when the model was exported, booleans 0 and 1, and
    missing values NaN. A table is matched by the names of its columns, if the model had names.

    Parameters
    ----------
    text : what `to_lightgbm` returned.
    X : array, table or list of rows, shape (n, d)

    Raises
    ------
    InputError
        When a row does not fit, has a category whose way LightGBM's form cannot say, or the text is no exported model.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> from oubli.core.export.lightgbm import lightgbm_rows
    >>> X = [["red", 1.0], ["blue", 2.0], ["red", None], ["blue", 4.0]]
    >>> text = DynamicForestClassifier(n_estimators=2, random_state=0).fit(X, [0, 1, 0, 1]).to_lightgbm()
    >>> lightgbm_rows(text, X).tolist()
    [[1.0, 1.0], [0.0, 2.0], [1.0, nan], [0.0, 4.0]]
    """
    start, end = text.find(f"\n{_OURS}"), text.rfind(f"\n{_PANDAS}")
    if start < 0 or end < 0:
        raise InputError("the text is not a model that to_lightgbm has written: pass that text")
    ours = json.loads(text[start + len(_OURS) + 1 :].partition("\n")[0])
    listed = json.loads(text[end + len(_PANDAS) + 1 :].partition("\n")[0])
    columns = tuple(
        Column(name, ColumnType(kind), "float64" if kind == ColumnType.NUMERIC else "float32")
        for name, kind in ours["columns"]
    )
    schema = Schema(columns, Task.REGRESSION, LabelType.NUMBER, named=ours["named"])
    positions = np.flatnonzero(schema.categorical_mask).tolist()
    held = [{category: place for place, category in enumerate(categories)} for categories in listed]
    look_ups = {
        column: lambda value, codes=codes: codes.get(value, len(codes))
        for column, codes in zip(positions, held, strict=True)
    }
    cells, texts = Encoder(schema, "the exported model").encode(X, look_ups)
    write_codes(cells, texts, look_ups)
    for column, codes in zip(positions, held, strict=True):
        is_unknown = cells[:, column] == len(codes)
        if column in ours["known_only"] and is_unknown.any():
            raise InputError(_UNKNOWN, row=int(np.argmax(is_unknown)), field=columns[column].name)
    return np.asarray(cells, np.float64)
