"""Draw the pictures in docs/explanation/figures from real models that this script trains.

    python docs/scripts/figures.py            draw them
    python docs/scripts/figures.py --check    exit 1 if a picture differs from the models

The trees are read from model files; nothing is made up. All text is in boxes with their own background, so
that the pictures can be read on light and on dark pages.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from oubli import DynamicForestClassifier, IncrementalBoostingClassifier

DOCS = Path(__file__).resolve().parent.parent
FIGURES = DOCS / "explanation" / "figures"
EXAMPLE = DOCS.parent / "examples" / "adult.csv.gz"

# A tree of sixteen people: age, hours of work a week, and whether they earn much.
FEATURES = ("age", "hours")
PEOPLE = [
    (22, 20, "low"), (25, 38, "low"), (27, 45, "low"), (31, 40, "high"), (34, 50, "high"), (36, 42, "high"),
    (38, 24, "low"), (41, 55, "high"), (44, 40, "high"), (47, 36, "low"), (50, 48, "high"), (52, 30, "low"),
    (55, 44, "high"), (58, 40, "low"), (61, 20, "low"), (64, 35, "low"),
]  # fmt: skip
SEED = 0
DELETED = 3

WIDTH, HEIGHT, ROW, LEAF = 118, 46, 92, 132  # of a box, and the room for one
LINE = "#7d8590"
FILL = {"plain": "#eaeef2", "path": "#ffe3a3", "rebuilt": "#b6e3ff"}
TEXT = "#1f2328"


@dataclass
class Node:
    """A node of a drawn tree."""

    title: str
    below: str
    children: list[Node]
    split: tuple[int, float] | None = None  # attribute and threshold
    style: str = "plain"
    x: float = 0.0
    depth: int = 0


def people(without: int | None = None) -> tuple[list[list[float]], list[str], list[str]]:
    """Features, labels and ids; without one of the people."""
    kept = [i for i in range(len(PEOPLE)) if i != without]
    rows = [[float(PEOPLE[i][0]), float(PEOPLE[i][1])] for i in kept]
    return rows, [PEOPLE[i][2] for i in kept], [str(i) for i in kept]


def new_forest() -> DynamicForestClassifier:
    """A forest of one small tree that learns every sample."""
    return DynamicForestClassifier(
        n_estimators=1, occurrence=1.0, max_depth=3, max_features=None, n_thresholds=5, random_state=SEED
    )


def read_tree(forest: DynamicForestClassifier) -> Node:
    """The only tree of a forest, from its model file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forest.oubli"
        forest.save(path)
        arrays = {name.removeprefix("forest."): array for name, array in load_file(path).items()}
    thresholds = arrays["nodes.category"].view(np.float64)
    classes = [str(name) for name in forest.classes_]

    def read(row: int) -> Node:
        child = int(arrays["nodes.child"][row])
        n_samples = int(arrays["nodes.n_samples"][row])
        if child < 0:
            counts = arrays["leaves.statistics"][~child].tolist()
            said = ", ".join(f"{count} {name}" for count, name in zip(counts, classes, strict=True) if count)
            return Node(classes[int(np.argmax(counts))], said, [])
        attribute, threshold = int(arrays["nodes.attribute"][row]), float(thresholds[row])
        title = f"{FEATURES[attribute]} ≤ {threshold:.1f}"
        return Node(title, f"{n_samples} samples", [read(child), read(child + 1)], (attribute, threshold))

    return read(0)


def mark_path(node: Node, row: list[float]) -> None:
    """Mark the way of a sample from the root to its leaf."""
    node.style = "path"
    if node.split is not None:
        attribute, threshold = node.split
        mark_path(node.children[row[attribute] > threshold], row)


def mark_changes(node: Node, old: Node | None) -> None:
    """Mark nodes that have other counts, and nodes that were rebuilt."""
    if old is None or node.split != old.split:
        node.style = "rebuilt"
        for child in node.children:
            mark_changes(child, None)
        return
    node.style = "plain" if node.below == old.below else "path"
    for child, before in zip(node.children, old.children, strict=True):
        mark_changes(child, before)


# -- drawing ----------------------------------------------------------------------------------------


def place(node: Node, first: int = 0, depth: int = 0) -> int:
    """Give each node its place, and return how many leaves there are to its left and below it."""
    node.depth = depth
    if not node.children:
        node.x = first * LEAF + LEAF / 2
        return first + 1
    for child in node.children:
        first = place(child, first, depth + 1)
    node.x = (node.children[0].x + node.children[-1].x) / 2
    return first


def all_nodes(node: Node) -> list[Node]:
    """A node and all below it."""
    return [node, *(found for child in node.children for found in all_nodes(child))]


def rect(x: float, y: float, width: float, height: float, fill: str, radius: float = 6, stroke: float = 1) -> str:
    """A rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" '
        f'stroke="{LINE}" stroke-width="{stroke:g}"/>'
    )


def text(x: float, y: float, words: str, more: str = "") -> str:
    """A line of text around a point."""
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(words)}</text>'


def box(node: Node) -> list[str]:
    """A node with its two lines of text."""
    y = 8 + node.depth * ROW
    return [
        rect(node.x - WIDTH / 2, y, WIDTH, HEIGHT, FILL[node.style]),
        text(node.x, y + 20, node.title, ' font-weight="600"'),
        text(node.x, y + 38, node.below),
    ]


def svg(width: float, height: float, title: str, body: list[str]) -> str:
    """A whole picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" font-family="system-ui, sans-serif" font-size="14" fill="{TEXT}" '
        'text-anchor="middle">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *body, "</svg>"]) + "\n"


def draw(root: Node, title: str) -> str:
    """The picture of a tree."""
    n_leaves = place(root)
    nodes = all_nodes(root)
    lines, words = [], []
    for node in nodes:
        bottom = 8 + node.depth * ROW + HEIGHT
        for child, word in zip(node.children, ("yes", "no"), strict=bool(node.children)):
            top = bottom + ROW - HEIGHT
            lines.append(f'<path d="M{node.x:g} {bottom} L{child.x:g} {top}" stroke="{LINE}" stroke-width="2"/>')
            x, y = (node.x + child.x) / 2, (bottom + top) / 2
            words += [rect(x - 17, y - 10, 34, 20, "#ffffff", 10), text(x, y + 4, word, ' font-size="12"')]
    body = [*lines, *words, *(part for node in nodes for part in box(node))]
    return svg(n_leaves * LEAF, 16 + max(node.depth for node in nodes) * ROW + HEIGHT, title, body)


# -- the pictures -----------------------------------------------------------------------------------


def trees() -> dict[str, str]:
    """The tree before a deletion, and after it; the latter is that of training without the sample."""
    rows, labels, ids = people()
    forest = new_forest().fit(rows, labels, ids=ids)
    before = read_tree(forest)
    forest.delete(str(DELETED))
    after = read_tree(forest)
    rest, rest_labels, rest_ids = people(without=DELETED)
    fresh = new_forest().fit(rest, rest_labels, ids=rest_ids)
    if fresh.digest() != forest.digest() or read_tree(fresh) != after:
        raise AssertionError("the tree after the deletion is not that of a fresh fit")
    mark_changes(after, before)
    if after.style == "rebuilt" or all(node.style != "rebuilt" for node in all_nodes(after)):
        raise AssertionError("choose another seed or sample: a split below the root should change, and not the root's")
    mark_path(before, rows[DELETED])
    return {
        "before.svg": draw(before, "A tree before a deletion; the path of the sample is marked"),
        "after.svg": draw(after, "The tree after the deletion; changed counts and the rebuilt subtree are marked"),
    }


def updates() -> dict[str, str]:
    """The first tree that a deletion changes in a boosted model of Adult: one row a deletion, one column a tree."""
    data = pd.read_csv(EXAMPLE, keep_default_na=False, na_values=[""])
    labels = data.pop("income")
    n_rows, n_trees, n_deletions = len(data), 100, 24
    model = IncrementalBoostingClassifier(n_estimators=n_trees, random_state=0).fit(data, labels)
    step, left, top = 9, 92, 44
    body = []
    for i in range(n_deletions):
        model.delete(str(i * (n_rows // n_deletions)))
        update = model.engine_.last_update
        first = n_trees if update.nothing_changed else update.first_tree
        y, x = top + i * step, left + first * step
        if first:
            body.append(rect(left, y, first * step, step - 2, "#eaeef2", 1, 0.5))
        if first < n_trees:
            body.append(rect(x, y, step, step - 2, "#0a5fb4", 1, 0.5))
        if first < n_trees - 1:
            body.append(rect(x + step, y, (n_trees - first - 1) * step, step - 2, "#a8cdf0", 1, 0.5))
    right, height = left + n_trees * step, n_deletions * step - 2
    middle = top + height / 2
    body += [
        rect(left, 8, right - left, 26, "#ffffff"),
        text((left + right) / 2, 26, f"the {n_trees} trees, in order"),
        rect(4, top, 80, height, "#ffffff"),
        text(44, middle - 4, f"{n_deletions} single"),
        text(44, middle + 14, "deletions"),
    ]
    title = "The first tree that each of 24 single deletions changes"
    return {"updates.svg": svg(right + 4, top + height + 8, title, body)}


def main() -> int:
    """Draw the pictures, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when a picture is another")
    is_check = parser.parse_args().check
    status = 0
    for name, picture in {**trees(), **updates()}.items():
        path = FIGURES / name
        if path.exists() and path.read_text(encoding="utf-8") == picture:
            continue
        if is_check:
            status = 1
            sys.stdout.write(f"{name} is not what the models give: make docs draws it\n")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(picture, encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
