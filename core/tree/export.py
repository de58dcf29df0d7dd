"""The tree for people: as indented text, and as a drawing in Graphviz' DOT language."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oubli.core.errors import InputError
from oubli.core.parameters import check_number
from oubli.core.questions import Questions
from oubli.core.tree.look import split_of
from oubli.core.tree.state import NIL, ROOT

if TYPE_CHECKING:
    from oubli.core.tree.estimator import DynamicTreeClassifier

_MOST_DECIMALS = 17  # of a float64 that matter


@dataclass(frozen=True)
class _Node:
    """A node as it is shown: the answer of a leaf, or the question that those going left answer with yes."""

    row: int
    depth: int
    question: str | None
    n_samples: int
    label: str
    shares: list[str]  # "class share" for each class that it has samples of
    children: tuple[int, int] | None

    @property
    def size(self) -> str:
        """The number of samples in words."""
        return f"{self.n_samples} sample{'s' if self.n_samples != 1 else ''}"


class _Reader:
    """Reads nodes of a tree that has no tags."""

    def __init__(self, model: "DynamicTreeClassifier", names: Sequence[str], decimals: int) -> None:
        self.arrays = model.engine_.tree
        self.order = model.class_order()
        self.classes = [str(value) for value in model.samples_.classes.values(self.order)]
        self.decimals = decimals
        self.questions = Questions(model.schema_.columns, model.samples_.categories, names, decimals)

    def nodes(self) -> Iterator[_Node]:
        """Yield all nodes, each before its left subtree, and that before its right one."""
        # A leaf that has lost all its samples answers as the node above it does.
        waiting: list[tuple[int, int, str]] = [(ROOT, 0, "nothing")]
        while waiting:
            row, depth, label = waiting.pop()
            node = self._node(row, depth, label)
            yield node
            if node.children is not None:
                waiting += [(child, depth + 1, node.label) for child in reversed(node.children)]

    def _node(self, row: int, depth: int, label_above: str) -> _Node:
        record = self.arrays.nodes[row]
        counts = self.arrays.counts[row][self.order]
        n_samples, child = int(record["n_samples"]), int(record["child"])
        shares = [
            f"{name} {100 * count / n_samples:.{max(self.decimals - 2, 0)}f}%"
            for name, count in zip(self.classes, counts.tolist(), strict=True)
            if count
        ]
        label = self.classes[int(counts.argmax())] if n_samples else label_above
        if child == NIL:
            return _Node(row, depth, None, n_samples, label, shares, None)
        question = self.questions.text(split_of(record))
        return _Node(row, depth, question, n_samples, label, shares, (child, child + 1))


def _read(model: "DynamicTreeClassifier", feature_names: Sequence[str] | None, decimals: int) -> Iterator[_Node]:
    check_number("decimals", decimals, low=0, high=_MOST_DECIMALS)
    names = model.schema_.names if feature_names is None else list(map(str, feature_names))
    if len(names) != model.n_features_in_:
        raise InputError(f"feature_names has {len(names)} names: give one for each of {model.n_features_in_} features")
    model.resolve()
    return _Reader(model, names, decimals).nodes()


def export_text(model: "DynamicTreeClassifier", feature_names: Sequence[str] | None, decimals: int) -> str:
    """The tree as text: a question, below it what holds if the answer is yes, and what holds else."""
    lines: list[str] = []
    open_questions: list[int] = []  # rows of the right children that are to come
    for node in _read(model, feature_names, decimals):
        if open_questions and node.row == open_questions[-1]:
            open_questions.pop()
            lines.append("    " * (node.depth - 1) + "else")
        indent = "    " * node.depth
        if node.children is None:
            lines.append(f"{indent}{node.label} ({node.size}){': ' if node.shares else ''}{', '.join(node.shares)}")
        else:
            lines.append(indent + str(node.question))
            open_questions.append(node.children[1])
    return "\n".join(lines)


def export_graphviz(model: "DynamicTreeClassifier", feature_names: Sequence[str] | None, decimals: int) -> str:
    """The tree in DOT: boxes with question, samples and class shares, and arrows for yes and no."""
    lines = ["digraph tree {", '    node [shape=box, fontname="sans-serif"];', '    edge [fontname="sans-serif"];']
    for node in _read(model, feature_names, decimals):
        head = node.question if node.children is not None else node.label
        # JSON's strings are DOT's: quotes and backslashes are escaped alike, and \n is a new line.
        text = json.dumps("\n".join([str(head), node.size, *node.shares]), ensure_ascii=False)
        lines.append(f"    node{node.row} [label={text}{', style=rounded' if node.children is None else ''}];")
        if node.children is not None:
            left, right = node.children
            lines += [
                f'    node{node.row} -> node{left} [label="yes"];',
                f'    node{node.row} -> node{right} [label="no"];',
            ]
    return "\n".join([*lines, "}"])
