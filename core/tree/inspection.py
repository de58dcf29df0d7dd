"""The tree as people read it: node by node, as text, as a drawing in Graphviz' DOT language, and by importances."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.engine import RecordLook, Split, TreeFacts, TreeLook
from oubli.core.explanation.trees import NODE, WeightedTrees, of_one_kind, shares_of, totals_of
from oubli.core.jit.nodes import NIL
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import as_weights
from oubli.core.tree.split import split_score, squares_of, total_of
from oubli.core.tree.state import ROOT, TreeArrays
from oubli.core.tree.workspace import STACK_SIZE


class SingleTreeLook(RecordLook):
    """Reads the tree.

    Parameters
    ----------
    tree : without tags.
    class_order : codes of the classes held, in the order of the classes.
    is_whole : whether class counts are of weights that are whole.
    """

    facts = TreeFacts("classes")
    root = ROOT

    def __init__(self, tree: TreeArrays, class_order: Ints, *, is_whole: bool) -> None:
        self.nodes = tree.nodes
        self._counts = tree.counts
        self._order = class_order
        self._is_whole = is_whole

    def says(self, node: int) -> tuple[list[float] | None, float | None]:
        return as_weights(self._counts[node][self._order], is_whole=self._is_whole), None


@dataclass(frozen=True)
class ShownNode:
    """A node as text shows it: the answer of a leaf, or the question that those going left answer with yes."""

    row: int
    depth: int
    title: str
    n_samples: int
    shares: list[str]  # "class share" for each class that it has samples of
    children: tuple[int, int] | None

    @property
    def size(self) -> str:
        """The number of samples as text."""
        return f"{self.n_samples} sample{'s' if self.n_samples != 1 else ''}"


def shown_nodes(
    look: TreeLook, classes: Sequence[str], question: Callable[[Split], str], decimals: int
) -> Iterator[ShownNode]:
    """Yield all nodes of a tree, each before its left subtree, and that before its right one.

    Parameters
    ----------
    look : the tree.
    classes : names of the classes held, in their order.
    question : returns the text of a split.
    decimals : of the shares, which are percentages: two fewer.
    """
    # A leaf that has lost all its samples answers as the node above it does.
    waiting = [(look.root, 0, "nothing")]
    while waiting:
        row, depth, label = waiting.pop()
        n_samples, (counts, _), left = look.n_samples(row), look.says(row), look.left(row)
        shares = [
            f"{name} {100 * count / sum(counts or ()):.{max(decimals - 2, 0)}f}%"
            for name, count in zip(classes, counts or (), strict=True)
            if count
        ]
        if n_samples and counts:
            label = classes[counts.index(max(counts))]
        if left is None:
            yield ShownNode(row, depth, label, n_samples, shares, None)
            continue
        yield ShownNode(row, depth, question(look.split(row)), n_samples, shares, (left, left + 1))
        waiting += [(child, depth + 1, label) for child in (left + 1, left)]


def as_text(nodes: Iterable[ShownNode]) -> str:
    """The tree as indented text: a question, below it what holds if the answer is yes, and what holds otherwise."""
    lines: list[str] = []
    open_questions: list[int] = []  # rows of the right children that are to come
    for node in nodes:
        if open_questions and node.row == open_questions[-1]:
            open_questions.pop()
            lines.append("    " * (node.depth - 1) + "else")
        line = "    " * node.depth + node.title
        if node.children is None:
            line += f" ({node.size}){': ' if node.shares else ''}{', '.join(node.shares)}"
        else:
            open_questions.append(node.children[1])
        lines.append(line)
    return "\n".join(lines)


def as_graphviz(nodes: Iterable[ShownNode]) -> str:
    """The tree in DOT: boxes with question, samples and class shares, and arrows for yes and no."""
    lines = ["digraph tree {", '    node [shape=box, fontname="sans-serif"];', '    edge [fontname="sans-serif"];']
    for node in nodes:
        # JSON's strings are DOT's: quotes and backslashes are escaped alike, and \n is a new line.
        text = json.dumps("\n".join([node.title, node.size, *node.shares]), ensure_ascii=False)
        lines.append(f"    node{node.row} [label={text}{', style=rounded' if node.children is None else ''}];")
        for child, answer in zip(node.children or (), ("yes", "no"), strict=False):
            lines.append(f'    node{node.row} -> node{child} [label="{answer}"];')
    return "\n".join([*lines, "}"])


@kernel
def add_gains(tree, walk, gains):
    """Add the gain of each split, times its samples by weight, to its column's entry of float64 `gains`; in path order.

    A split whose node or one side has lost all samples has none.
    """
    nodes = tree.nodes
    walk[0] = ROOT
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node = walk[n_waiting]
        child = np.int64(nodes[node]["child"])
        if child == NIL:
            continue
        n_left, n_right = total_of(tree.counts, child), total_of(tree.counts, child + 1)
        if n_left > 0 and n_right > 0:
            score = split_score(squares_of(tree.counts, child), n_left, squares_of(tree.counts, child + 1), n_right)
            before = np.float64(squares_of(tree.counts, node)) / np.float64(n_left + n_right)
            gains[nodes[node]["attribute"]] += max(score - before, 0.0)
        walk[n_waiting] = child + 1
        walk[n_waiting + 1] = child
        n_waiting += 2


def feature_importances(tree: TreeArrays, n_features: int) -> npt.NDArray[np.float64]:
    """Share of each feature in the decrease of the Gini impurity, float64[n_features].

    Sums to 1; zeros when no split gains anything. All tags must have been resolved.
    """
    gains = np.zeros(n_features)
    add_gains(tree, np.empty(STACK_SIZE, np.int64), gains)
    total = gains.sum()
    return gains / total if total > 0 else gains


def weighted_trees(tree: TreeArrays, n_features: int, class_order: Ints) -> WeightedTrees:
    """The tree without what is below nodes that have lost all samples: these answer as the node above. O(nodes)."""
    nodes, answers, shown = tree.nodes, np.arange(len(tree.nodes)), np.zeros(len(tree.nodes), NODE)
    has_children = (nodes["child"] != NIL) & (nodes["n_samples"] > 0)
    level = np.array([ROOT])
    while len(level):
        level = level[has_children[level]]
        left = nodes["child"][level].astype(np.int64)
        for child in (left, left + 1):
            answers[child] = np.where(nodes["n_samples"][child] > 0, child, answers[level])
        level = np.concatenate([left, left + 1])
    for name in ("category", "attribute", "kind"):
        shown[name] = nodes[name]
    shown["child"] = np.where(has_children, nodes["child"], ~answers)
    covers, leaves = totals_of(tree.counts).astype(np.float64), shares_of(tree.counts, class_order)
    return of_one_kind(shown, covers, leaves, np.array([ROOT]), n_features, len(class_order))
