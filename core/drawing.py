"""One tree as people look at it: a node with some levels below, in the names of columns and categories.

A node is named by the way to it from the root, in `l` and `r`: rows of pools are nobody's business and are used again.
"""

from typing import TYPE_CHECKING, Any

from oubli.core.look import TreeLook
from oubli.core.questions import Questions

if TYPE_CHECKING:
    from oubli.core.model import Model

MOST_LEVELS = 8
LONGEST_PATH = 512


def look_at_tree(model: "Model", tree: int, path: str, levels: int) -> dict[str, Any] | None:
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
    look = engine.look(tree, model.problem())
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
