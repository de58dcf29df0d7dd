"""Reads a model's tree as it is into the oracle's nodes, so that the two can be compared and checked."""

from typing import Any

from oubli.core.jit.nodes import MISSING_LEFT, NIL, ONE_VS_REST
from oubli.core.tree.state import NEXT, ROOT, TAGGED
from tests.oracles.common import Column
from tests.oracles.splits import Split
from tests.oracles.tree import Node, Sample, sample_of


def columns_of(model: Any) -> tuple[Column, ...]:
    """The columns in the words of the oracle."""
    return tuple(Column(str(column.type), column.dtype or "float32") for column in model.schema_.columns)


def samples_of(model: Any) -> dict[str, Sample]:
    """What a model holds."""
    held, columns = map(model.samples_.get, model.samples_.ids()), columns_of(model)
    return {one.id: sample_of(one.features, one.label, columns) for one in held}


def read(model: Any, held: dict[str, Sample] | None = None) -> Node:
    """The model's tree, with tags if there are some; resolves nothing.

    Parameters
    ----------
    model
        A fitted DynamicTreeClassifier.
    held
        What the model should hold: the nodes name their samples, what these are like is taken from here.
    """
    held = samples_of(model) if held is None else held
    return _Reader(model, held).node(ROOT, 0)


class _Reader:
    def __init__(self, model: Any, held: dict[str, Sample]) -> None:
        self.arrays = model.engine_.tree
        self.held = held
        self.names = {slot: name for name, slot in zip(held, model.samples_.find(list(held)).tolist(), strict=True)}

    def node(self, row: int, depth: int) -> Node:
        fields = self.arrays.nodes[row]
        assert fields["depth"] == depth
        node = Node(depth, int(fields["built"]), int(fields["touched"]), tagged=bool(fields["flags"] & TAGGED))
        child = int(fields["child"])
        if child == NIL:
            slot = int(fields["head"])
            while slot != NIL:
                node.samples[self.names[slot]] = self.held[self.names[slot]]
                slot = int(self.arrays.links[slot, NEXT])
            assert len(node.samples) == fields["n_samples"]
            return node
        feature, kind = int(fields["attribute"]), fields["kind"]
        if kind == ONE_VS_REST:
            node.split = Split(feature, category=int(fields["category"]))
        else:
            node.split = Split(feature, float(fields["threshold"]), missing_left=bool(kind == MISSING_LEFT))
        node.children = (self.node(child, depth + 1), self.node(child + 1, depth + 1))
        return node


def difference(one: Node, other: Node, path: str = "root") -> str | None:
    """Where two trees differ first, and in what; None where they are the same."""
    mine = (one.depth, one.s, one.c, one.tagged, one.split, set(one.samples))
    theirs = (other.depth, other.s, other.c, other.tagged, other.split, set(other.samples))
    if one.tagged and other.tagged:  # s(v) and c(v) mean nothing until it is built
        mine, theirs = (mine[0], *mine[3:]), (theirs[0], *theirs[3:])
    if mine != theirs:
        return f"{path}: {mine} against {theirs}"
    for side, (a, b) in enumerate(zip(one.children or (), other.children or (), strict=True)):
        found = difference(a, b, f"{path}, {'right' if side else 'left'}")
        if found is not None:
            return found
    return None
