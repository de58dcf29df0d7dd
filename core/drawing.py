"""One tree for people: a node with some levels below, in the names of columns and categories.

A node is named by the way to it from the root, in `l` and `r`: rows of pools mean nothing outside, and are reused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oubli.core.data.values import Column, ColumnType
from oubli.core.engine import Split, TreeLook
from oubli.core.export.trees import ReadModel
from oubli.core.rng import MISSING_CATEGORY, RARE_CATEGORY

if TYPE_CHECKING:
    from oubli.core.samples.categories import CategoryTable

_MOST_LISTED = 50  # categories of one question
_NAMED = {int(MISSING_CATEGORY): "missing", int(RARE_CATEGORY): "rare"}


class Questions:
    """Puts splits into words.

    Parameters
    ----------
    columns : as the schema has them.
    table : the categories held.
    names : of the columns.
    decimals : of thresholds; None: as many as it takes to tell them from others in float32.
    """

    def __init__(
        self, columns: Sequence[Column], table: "CategoryTable", names: Sequence[str], decimals: int | None = None
    ) -> None:
        self._columns = columns
        self._names = names
        self._decimals = decimals
        self._categories = {
            column: {int(table.hashes[code]): text for text, code in codes.items()}
            for column, codes in table.codes.items()
        }

    def text(self, split: Split) -> str:
        """Return the question as a text."""
        content = self.content(split)
        name = content["feature"]
        match content["type"]:
            case "missing" | "known" | "rare":
                return f"{name} is {content['type']}"
            case "category":
                text = content["category"]
                return f"{name} is {'a category that no sample has' if text is None else _quoted(text)}"
            case "categories":
                listed = ", ".join(map(_quoted, content["categories"][:3])) or "a category that no sample has"
                more = content["n_categories"] - 3
                others = f" or {more} other{'s' if more > 1 else ''}" if more > 0 else ""
                return f"{name} is {listed}{others}{' or missing' if content['missing'] == 'left' else ''}"
            case "statistic":
                return f"statistic of {name} <= {content['threshold']:.6g}"
        missing = " or missing" if content["missing"] == "left" else ""
        if content["type"] == "boolean":
            return f"{name} is false{missing}"
        threshold = content["threshold"]
        shown = f"{threshold:.6g}" if self._decimals is None else f"{threshold:.{self._decimals}f}"
        return f"{name} <= {shown}{missing}"

    def content(self, split: Split) -> Mapping[str, Any]:
        """Return the question as plain values; `type` says which there are."""
        feature = self._names[split.feature]
        if split.statistic is not None:
            return {"type": "statistic", "feature": feature, "threshold": split.threshold, "statistic": split.statistic}
        if split.threshold is not None:
            if split.threshold == float("inf"):
                return {"type": "known", "feature": feature}
            missing = "left" if split.missing_left else "right"
            if self._columns[split.feature].type is ColumnType.BOOLEAN:
                return {"type": "boolean", "feature": feature, "missing": missing}
            return {"type": "number", "feature": feature, "threshold": split.threshold, "missing": missing}
        held = self._categories.get(split.feature, {})
        if split.goes_left is not None:
            texts = sorted(text for hashed, text in held.items() if split.goes_left(hashed))
            return {
                "type": "categories",
                "feature": feature,
                "categories": texts[:_MOST_LISTED],
                "n_categories": len(texts),
                "missing": "left" if split.goes_left(int(MISSING_CATEGORY)) else "right",
            }
        if split.category in _NAMED:
            return {"type": _NAMED[split.category], "feature": feature}
        # The value of a category leaves with its last sample.
        text = None if split.category is None else held.get(split.category)
        return {"type": "category", "feature": feature, "category": text}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


MOST_LEVELS = 8
LONGEST_PATH = 512


def look_at_tree(model: ReadModel, tree: int, path: str, levels: int) -> dict[str, Any] | None:
    """Describe a node of a tree, and those some levels below it; the model has no tags, and is only read.

    Parameters
    ----------
    model : any fitted one.
    tree : number of the tree, from 0.
    path : the way to the node from the root: letters `l` and `r`.
    levels : how many levels below the node are shown, at most `MOST_LEVELS`.

    Returns
    -------
    dict or None
        JSON-able; None when there is no such tree or node.
    """
    engine = model.engine_
    if not 0 <= tree < engine.n_drawn_trees:
        return None
    look = engine.look(tree, model.samples_.problem())
    node = look.root
    for letter in path:
        left = look.left(node)
        if left is None:
            return None
        node = left + (letter == "r")
    classes = model.samples_.classes.classes_array().tolist() if engine.is_classification else None
    facts = look.facts
    questions = Questions(model.schema_.columns, model.samples_.categories, model.schema_.names)
    return {
        "n_trees": engine.n_drawn_trees,
        "tree": tree,
        "iteration": facts.iteration,
        "class": None if facts.group is None or classes is None else classes[facts.group],
        "says": facts.says,
        "classes": classes,
        "node": _describe(look, questions, node, path, levels),
    }


def _describe(look: TreeLook, questions: Questions, node: int, path: str, levels: int) -> dict[str, Any]:
    left = look.left(node)
    counts, value = look.says(node)
    split = None if left is None else look.split(node)
    children = [
        _describe(look, questions, left + side, path + letter, levels - 1) if left is not None and levels > 0 else None
        for side, letter in enumerate("lr")
    ]
    return {
        "path": path,
        "depth": len(path),
        "n_samples": look.n_samples(node),
        "counts": counts,
        "value": value,
        "text": None if split is None else questions.text(split),
        "split": None if split is None else questions.content(split),
        "left": children[0],
        "right": children[1],
    }
