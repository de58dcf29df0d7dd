"""Trees as people look at them: walking one by its questions leads where predictions come from, in every kind."""

import re
from typing import Any

import numpy as np
import pytest

from oubli import core
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.drawing import MOST_LEVELS, look_at_tree

COLUMNS = (
    Column("size", ColumnType.NUMERIC), Column("place", ColumnType.CATEGORICAL), Column("new", ColumnType.BOOLEAN),
    Column("age", ColumnType.NUMERIC),
)  # fmt: skip
CLASSES = Schema(COLUMNS, Task.CLASSIFICATION, LabelType.STRING, label_name="y", named=True)
NUMBERS = Schema(COLUMNS, Task.REGRESSION, LabelType.NUMBER, label_name="y", named=True)
N = 120


def rows(n: int = N, seed: int = 3) -> list[list[Any]]:
    draw = np.random.default_rng(seed)
    return [
        [
            None if draw.random() < 0.1 else float(draw.integers(0, 60)) / 4,
            None if draw.random() < 0.1 else "uvwxyz"[int(draw.integers(6))],
            None if draw.random() < 0.1 else bool(draw.integers(2)),
            float(draw.integers(0, 9)),
        ]
        for _ in range(n)
    ]


def labels(n: int, n_classes: int) -> list[Any]:
    return [("no", "yes", "perhaps")[(i * i + i // 3) % n_classes] for i in range(n)]


def fitted(estimator: Any, n_classes: int = 2, **parameters: Any) -> Any:
    model = estimator(random_state=0, **parameters)
    is_numbers = model.task is Task.REGRESSION
    y = [float(i % 17) for i in range(N)] if is_numbers else labels(N, n_classes)
    model.fit(rows(), y, schema=NUMBERS if is_numbers else CLASSES)
    model.delete([str(i) for i in range(0, N, 9)])
    model.resolve()
    return model


MODELS: dict[str, Any] = {
    "forest": lambda: fitted(core.DynamicForestClassifier, 3, n_estimators=6),
    "forest of numbers": lambda: fitted(core.DynamicForestRegressor, n_estimators=6, max_depth=5),
    "tree": lambda: fitted(core.DynamicTreeClassifier, 3),
    "incremental": lambda: fitted(core.IncrementalBoostingClassifier, n_estimators=4, min_child_weight=0.1),
    "incremental with statistics": lambda: fitted(
        core.IncrementalBoostingClassifier, 3, n_estimators=4, min_child_weight=0.1, category_statistics=4
    ),
    "incremental of three": lambda: fitted(core.IncrementalBoostingClassifier, 3, n_estimators=3, min_child_weight=0.1),
    "incremental without grids": lambda: fitted(core.IncrementalBoostingRegressor, n_estimators=3, quantization=None),
    "online": lambda: fitted(core.OnlineBoostingClassifier, n_estimators=4),
}


def holds(split: dict[str, Any], row: list[Any], model: Any) -> bool:
    """What a person reads off a question."""
    value = row[[column.name for column in COLUMNS].index(split["feature"])]
    if split["type"] == "statistic":
        read, _ = model.engine_.read_queries(*model.samples_.encode_queries([row]))
        return bool(read[0, len(COLUMNS) + split["statistic"]] <= split["threshold"])
    if value is None:
        return split["type"] == "missing" or split.get("missing") == "left"
    match split["type"]:
        case "known":
            return True
        case "missing":
            return False
        case "number":
            return bool(value <= split["threshold"])
        case "boolean":
            return value is False
        case "category":
            return bool(value == split["category"])
    return value in split["categories"]


def leaf_of(model: Any, tree: int, row: list[Any]) -> dict[str, Any]:
    """Walk down one tree, a few levels at a time, as a page does."""
    path = ""
    while True:
        found = look_at_tree(model, tree, path, 2)
        assert found is not None
        node = found["node"]
        assert node["path"] == path
        while node["left"] is not None:
            node = node["left"] if holds(node["split"], row, model) else node["right"]
        if node["split"] is None:
            return {**found, "node": node}
        path = node["path"]


@pytest.mark.parametrize("name", MODELS)
def test_the_leaves_that_questions_lead_to_make_the_predictions(name: str) -> None:
    model = MODELS[name]()
    n_trees = model.engine_.n_drawn_trees
    for row in rows(20):
        leaves = [leaf_of(model, tree, row) for tree in range(n_trees)]
        query = model.query([row])
        says = {leaf["says"] for leaf in leaves}
        if says == {"score"}:
            groups = model.engine_.trees.n_groups
            scores = model.raw_scores([row])[0].copy()
            for group in range(groups):
                added = sum(leaf["node"]["value"] for leaf in leaves[group::groups])
                assert model.engine_.trees.base[group] + added == pytest.approx(scores[group])
            assert [leaf["iteration"] for leaf in leaves] == [tree // groups for tree in range(n_trees)]
            assert {leaf["class"] for leaf in leaves} == ({None} if groups == 1 else set(model.classes_))
        elif says == {"mean"}:
            means = [leaf["node"]["value"] for leaf in leaves if leaf["node"]["n_samples"]]
            assert np.mean(means) == pytest.approx(query.labels[0])
        else:
            counts = np.array([leaf["node"]["counts"] for leaf in leaves if leaf["node"]["n_samples"]], float)
            shares = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
            if len(leaves) > 1 or leaves[0]["node"]["n_samples"]:
                assert shares == pytest.approx(query.probabilities[0])


@pytest.mark.parametrize("name", MODELS)
def test_every_node_has_what_its_children_have(name: str) -> None:
    model = MODELS[name]()
    before = model.digest()
    found = look_at_tree(model, 0, "", MOST_LEVELS)
    assert found is not None
    assert model.digest() == before  # looking changes nothing
    model.check_invariants()
    waiting = [found["node"]]
    n_seen = 0
    while waiting:
        node = waiting.pop()
        n_seen += 1
        assert node["depth"] == len(node["path"])
        assert (node["text"] is None) == (node["split"] is None)
        if node["left"] is not None:
            children = [node["left"], node["right"]]
            assert node["n_samples"] == sum(child["n_samples"] for child in children)
            if node["counts"] is not None:
                assert node["counts"] == [a + b for a, b in zip(*(child["counts"] for child in children), strict=True)]
                assert sum(node["counts"]) == node["n_samples"]
            waiting += children
        again = look_at_tree(model, 0, node["path"], 0)
        assert again is not None
        assert again["node"] == {**node, "left": None, "right": None}
    assert n_seen > 3


def test_there_is_nothing_where_there_is_no_tree_or_node() -> None:
    forest = MODELS["forest"]()
    assert look_at_tree(forest, 6, "", 1) is None
    assert look_at_tree(forest, 0, "l" * 200, 1) is None
    empty = core.DynamicForestClassifier(n_estimators=2).start(CLASSES)
    assert look_at_tree(empty, 0, "", 3)["node"]["counts"] == []  # type: ignore[index]
    boosted = core.IncrementalBoostingClassifier(n_estimators=2).start(CLASSES)
    assert look_at_tree(boosted, 0, "", 3) is None


def test_questions_are_in_words() -> None:
    model = core.DynamicForestClassifier(n_estimators=40, random_state=1).fit(rows(), labels(N, 3), schema=CLASSES)
    seen: dict[str, str] = {}
    for tree in range(40):
        waiting = [look_at_tree(model, tree, "", MOST_LEVELS)["node"]]  # type: ignore[index]
        while waiting:
            node = waiting.pop()
            if node["split"] is not None:
                seen.setdefault(node["split"]["type"] + str(node["split"].get("missing")), node["text"])
            waiting += [child for child in (node["left"], node["right"]) if child is not None]
    assert re.fullmatch(r"(size|age) <= [\d.]+ or missing", seen["numberleft"])
    assert seen["booleanright"] == "new is false"
    assert seen["categoryNone"] in {f'place is "{one}"' for one in "uvwxyz"}
    assert seen["categoriesright"].startswith('place is "')
