"""Trees and models for people: indented text, Graphviz' DOT language, plots and HTML."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from oubli.core.data.values import Task
from oubli.core.drawing import Questions
from oubli.core.errors import InputError
from oubli.core.export.tables import needed
from oubli.core.export.trees import Node, ReadModel, look_at, nodes_of
from oubli.core.parameters import check_number

_MOST_DECIMALS = 17  # of a float64 that matter
_MOST_CLASSES = 10


@dataclass(frozen=True, slots=True)
class Shown:
    """A node as it is shown.

    Attributes
    ----------
    node : as it was read.
    children : numbers of those that are shown: where an answer of yes leads, and one of no.
    lines : its question, or what a leaf says; how many samples; the share of each class that it has samples of.
    """

    node: Node
    children: tuple[int, ...]
    lines: list[str]


def shown_nodes(
    model: ReadModel, feature_names: Sequence[str] | None, tree: Any, max_depth: int | None, decimals: int
) -> list[Shown]:
    """Put the nodes of a tree into words, in path order; the model has no tags. Raises as the methods of models say."""
    check_number("decimals", decimals, low=0, high=_MOST_DECIMALS)
    if max_depth is not None:
        check_number("max_depth", max_depth, low=0)
    n_features = model.schema_.n_features
    names = list(map(str, model.schema_.names if feature_names is None else feature_names))
    if len(names) != n_features:
        raise InputError(f"feature_names has {len(names)} names: give one for each of {n_features} features")
    classes = list(map(str, model.samples_.classes.values(model.samples_.classes.order())))
    questions = Questions(model.schema_.columns, model.samples_.categories, names, decimals)
    nodes = nodes_of(look_at(model, tree), max_depth)
    shown: list[Shown] = []
    answers: list[str] = []  # a leaf that has lost all its samples answers as the node above it does
    for node in nodes:
        total = sum(node.counts or ())
        shares = [
            f"{name} {100 * count / total:.{max(decimals - 2, 0)}f}%"
            for name, count in zip(classes, node.counts or (), strict=False)
            if count
        ]
        answer = "nothing" if node.parent < 0 else answers[node.parent]
        if node.counts and total:
            answer = classes[node.counts.index(max(node.counts))]
        elif node.value is not None:
            answer = f"{node.value:.{decimals + 2}g}"
        answers.append(answer)
        children = (node.left, node.right) if node.left >= 0 else ()
        title = answer if node.split is None else questions.text(node.split) if children else "..."
        size = f"{node.n_samples} sample{'s' if node.n_samples != 1 else ''}"
        shown.append(Shown(node, children, [title, size, *shares]))
    return shown


def as_text(nodes: Sequence[Shown]) -> str:
    """The tree as indented text: a question, below it what holds if the answer is yes, and what holds otherwise."""
    lines: list[str] = []
    for number, one in enumerate(nodes):
        depth, (title, size, *shares) = one.node.depth, one.lines
        if depth and nodes[one.node.parent].node.right == number:
            lines.append("    " * (depth - 1) + "else")
        if not one.children:
            title += f" ({size}){': ' if shares else ''}{', '.join(shares)}"
        lines.append("    " * depth + title)
    return "\n".join(lines)


def as_graphviz(nodes: Sequence[Shown]) -> str:
    """The tree in DOT: boxes with question, samples and class shares, and arrows for yes and no."""
    lines = ["digraph tree {", '    node [shape=box, fontname="sans-serif"];', '    edge [fontname="sans-serif"];']
    for number, one in enumerate(nodes):
        # JSON's strings are DOT's: quotes and backslashes are escaped alike, and \n is a new line.
        text = json.dumps("\n".join(one.lines), ensure_ascii=False)
        lines.append(f"    node{number} [label={text}{'' if one.children else ', style=rounded'}];")
        for child, answer in zip(one.children, ("yes", "no"), strict=False):
            lines.append(f'    node{number} -> node{child} [label="{answer}"];')
    return "\n".join([*lines, "}"])


def plot(nodes: Sequence[Shown], ax: Any) -> Any:
    """Draw the tree with matplotlib, in new axes when there are none, and return the axes."""
    pyplot = needed("matplotlib.pyplot", "'oubli-server[plot]'")
    n_ends = sum(not one.children for one in nodes)
    n_levels = 1 + max(one.node.depth for one in nodes)
    if ax is None:
        _, ax = pyplot.subplots(figsize=(max(4.0, 1.9 * n_ends), max(2.0, 1.3 * n_levels)))
    places = [0.0] * len(nodes)
    next_place = n_ends
    for number in range(len(nodes) - 1, -1, -1):  # children before their parents, from right to left
        one = nodes[number]
        next_place -= not one.children
        places[number] = sum(places[child] for child in one.children) / 2 if one.children else next_place
        for child, answer in zip(one.children, ("yes", "no"), strict=False):
            across, down = (places[number], places[child]), (-one.node.depth, -one.node.depth - 1)
            ax.plot(across, down, color="gray", linewidth=1, zorder=1)
            ax.text(sum(across) / 2, sum(down) / 2, answer, ha="center", va="center", fontsize=8)
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "gray"}
        words = {"ha": "center", "va": "center", "fontsize": 8, "parse_math": False}
        ax.text(places[number], -one.node.depth, "\n".join(one.lines), bbox=box, **words)
    ax.set(xlim=(-0.5, n_ends - 0.5), ylim=(0.5 - n_levels, 0.5))
    ax.set_axis_off()
    return ax


def as_html(model: ReadModel) -> str:
    """What a notebook shows of a model: a table of what it is and holds; everything is escaped."""
    facts = {"Kind": f"{model.kind}, {model.task.value}"}
    if model.is_usable:
        store = model.samples_
        facts |= {
            "Guarantee": model.guarantee,
            "Samples": f"{len(store):,}",
            "Features": f"{model.schema_.n_features:,}",
        }
        if model.task is Task.CLASSIFICATION:
            labels = list(map(str, store.classes.values(model.samples_.classes.order())))
            more = f" and {len(labels) - _MOST_CLASSES} more" if len(labels) > _MOST_CLASSES else ""
            facts["Classes"] = ", ".join(labels[:_MOST_CLASSES]) + more
        if store.changes.last:
            facts["Last change"] = f"{datetime.fromtimestamp(store.changes.last, UTC):%Y-%m-%d %H:%M:%S} UTC"
    else:
        facts["State"] = "not fitted"
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table><caption><code>{escape(repr(model))}</code></caption>{rows}</table>"
