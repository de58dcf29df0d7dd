"""Trees as tables, JSON, text and drawings: what they say makes the predictions, in every kind."""

import json
import re
import sys
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from oubli import core
from oubli.core.errors import EmptyModelError, InputError, NotFittedError
from tests.exact.core.test_look import CLASSES, MODELS, N, labels, rows

mpl.use("agg")


def leaf_of(document: dict[str, Any], tree: dict[str, Any], row: list[Any]) -> dict[str, Any]:
    """Follow the questions of the JSON document, as its description says."""
    names = [column["name"] for column in document["columns"]]
    node = tree["nodes"][0]
    while node["split"] is not None:
        split = node["split"]
        place = names.index(split["feature"])
        value = row[place]
        if value is None:
            is_left = split["missing"] == "left"
        elif split["categories"] is not None:
            is_left = value in split["categories"]
        else:
            is_left = float(np.dtype(document["columns"][place]["dtype"]).type(value)) <= split["threshold"]
        node = tree["nodes"][node["left" if is_left else "right"]]
    return dict(node)


def predicted(document: dict[str, Any], row: list[Any]) -> list[float]:
    """What the document says of a row: shares, a mean, or raw scores."""
    leaves = [(tree, leaf_of(document, tree, row)) for tree in document["trees"]]
    if document["trees"][0]["says"] == "score":
        scores = list(document["start_scores"])
        for number, (_, leaf) in enumerate(leaves):
            scores[number % len(scores)] += leaf["value"]
        return scores
    said = [
        [leaf["value"]] if tree["says"] == "mean" else [count / sum(leaf["counts"]) for count in leaf["counts"]]
        for tree, leaf in leaves
        if tree["nodes"][0]["n_samples"]
    ]
    return np.mean(said, axis=0).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", MODELS)
def test_the_document_predicts_as_the_model_does(name: str) -> None:
    model, queries = MODELS[name](), rows(40)
    document = json.loads(model.trees_to_json())
    assert (document["format"], document["kind"], document["guarantee"]) == ("oubli-trees", model.kind, model.guarantee)
    found = model.query(queries)
    expected = found.labels[:, np.newaxis] if found.probabilities is None else found.probabilities
    if document["start_scores"]:
        expected = model.raw_scores(queries)
        assert document["start_scores"] == model.engine_.trees.base.tolist()
    assert [predicted(document, row) for row in queries] == [pytest.approx(one) for one in expected.tolist()]
    assert document["classes"] == (list(model.classes_) if hasattr(model, "classes_") else [])


@pytest.mark.parametrize("name", MODELS)
def test_the_table_has_what_the_document_has(name: str) -> None:
    model = MODELS[name]()
    document, frame = json.loads(model.trees_to_json()), model.trees_to_dataframe()
    nodes = [
        (tree, number, node) for tree, one in enumerate(document["trees"]) for number, node in enumerate(one["nodes"])
    ]
    assert len(frame) == len(nodes)
    for (tree, number, node), row in zip(nodes, frame.itertuples(), strict=True):
        assert (row.tree, row.node, row.depth, row.n_samples) == (tree, number, node["depth"], node["n_samples"])
        assert (row.parent, row.left, row.right) == (node["parent"], node["left"], node["right"])
        assert (plain(row.counts), plain(row.value)) == (node["counts"], node["value"])
        split = node["split"] or dict.fromkeys(("feature", "threshold", "categories", "missing", "text"))
        for column, value in split.items():
            assert plain(getattr(row, column)) == value


def plain(value: Any) -> Any:
    """A cell of a table, None where it is missing."""
    return value if isinstance(value, list) or not pd.isna(value) else None


@pytest.mark.parametrize("name", MODELS)
def test_paths_are_the_nodes_that_questions_lead_through(name: str) -> None:
    model, queries = MODELS[name](), rows(30)
    document = json.loads(model.trees_to_json())
    indicator, offsets = model.decision_path(queries)
    assert (indicator.format, indicator.shape) == ("csr", (30, offsets[-1]))
    assert offsets.tolist() == [0, *np.cumsum([len(tree["nodes"]) for tree in document["trees"]]).tolist()]
    dense = indicator.toarray()
    for row, passed in zip(queries, dense, strict=True):
        for tree, first, behind in zip(document["trees"], offsets, offsets[1:], strict=False):
            numbers = np.flatnonzero(passed[first:behind]).tolist()
            way = [tree["nodes"][number] for number in numbers]
            assert way[0]["parent"] == -1
            assert [node["parent"] for node in way[1:]] == numbers[:-1]
            assert way[-1] == leaf_of(document, tree, row)
    assert set(dense.ravel().tolist()) == {0, 1}


def test_the_text_of_each_kind() -> None:
    X, y = [[1.0], [2.0], [8.0], [9.0], [None]], ["a", "a", "b", "b", "b"]
    assert core.DynamicTreeClassifier().fit(X, y).export_text(["size"]) == (
        "size <= 5.00\n    a (2 samples): a 100%\nelse\n    b (3 samples): b 100%"
    )
    forest = core.DynamicForestRegressor(n_estimators=2, occurrence=1.0, random_state=0, max_depth=1)
    forest.fit([[1.0], [2.0]] * 10, [0.5, 3.25] * 10)
    assert re.fullmatch(
        r"x0 <= 1\.\d\d( or missing)?\n    0.5 \(10 samples\)\nelse\n    3.25 \(10 samples\)",
        forest.export_text(tree=1),
    )
    boosted = core.IncrementalBoostingClassifier(2, random_state=0).fit([[1.0], [9.0]] * 10, ["a", "b"] * 10)
    assert re.fullmatch(
        r"x0 <= [15].000\n    -\d.\d+ \(10 samples\)\nelse\n    \d.\d+ \(10 samples\)", boosted.export_text(decimals=3)
    )


@pytest.mark.parametrize("name", MODELS)
def test_text_and_drawing_have_the_nodes_down_to_a_depth(name: str) -> None:
    model = MODELS[name]()
    frame = model.trees_to_dataframe()
    frame = frame[frame["tree"] == 1 % model.engine_.n_drawn_trees]
    tree = int(frame["tree"].iloc[0])
    for depth in (0, 2, None):
        shown = frame if depth is None else frame[frame["depth"] <= depth]
        inner = shown[(shown["left"] >= 0) & (shown["depth"] < (99 if depth is None else depth))]
        text = model.export_text(tree=tree, max_depth=depth)
        assert len(text.splitlines()) == len(shown) + len(inner)  # "else"
        n_cut = 0 if depth is None else int(((shown["left"] >= 0) & (shown["depth"] == depth)).sum())
        assert text.count("... (") == n_cut
        dot = model.export_graphviz(tree=tree, max_depth=depth)
        assert len(re.findall(r"^    node\d+ \[label=", dot, re.MULTILINE)) == len(shown)
        assert len(re.findall(r"->", dot)) == 2 * len(inner)


def test_a_plot_has_a_box_a_node_and_a_line_an_answer() -> None:
    model = core.DynamicForestClassifier(n_estimators=2, random_state=0).fit(rows(), labels(N, 3), schema=CLASSES)
    ax = model.plot_tree(tree=1, max_depth=2)
    dot = model.export_graphviz(tree=1, max_depth=2)
    boxes = [
        json.loads(one) for one in re.findall(r'^    node\d+ \[label=(".*")(?:, style=rounded)?\];$', dot, re.MULTILINE)
    ]
    texts = [one.get_text() for one in ax.texts]
    assert sorted(texts) == sorted([*boxes, *["yes", "no"] * (len(ax.lines) // 2)])
    assert len(ax.lines) == dot.count("->")
    places = {tuple(one.get_position()) for one in ax.texts}
    assert len(places) == len(texts)
    ax.figure.canvas.draw()
    assert model.plot_tree(ax=ax) is ax
    plt.close(ax.figure)


def test_what_cannot_be_shown_is_said() -> None:
    model = MODELS["forest"]()
    for tree in (6, -1, 1.0, True, "0", None):
        with pytest.raises(InputError, match="'tree': must be the number of one of the model's 6 trees, from 0 on"):
            model.export_text(tree=tree)
    for options, message in (
        ({"max_depth": -1}, "max_depth=-1"),
        ({"decimals": 18}, "decimals=18"),
        ({"feature_names": ["a"]}, "feature_names has 1 names: give one for each of 4 features"),
    ):
        for show in (model.export_text, model.export_graphviz, model.plot_tree):
            with pytest.raises(InputError, match=message):
                show(**options)
    single = core.IncrementalBoostingClassifier().fit([[1.0]], ["a"])
    with pytest.raises(InputError, match="one of the model's 0 trees"):
        single.export_text()
    assert len(single.trees_to_dataframe()) == 0
    assert json.loads(single.trees_to_json())["trees"] == []
    with pytest.raises(NotFittedError):
        core.DynamicForestClassifier().trees_to_json()
    with pytest.raises(EmptyModelError):
        core.DynamicForestClassifier().start(CLASSES).decision_path(rows(1))


@pytest.mark.parametrize(("library", "ask", "extra"), [
    ("pandas", lambda model: model.trees_to_dataframe(), r"pip install 'oubli-server\[pandas\]'"),
    ("matplotlib.pyplot", lambda model: model.plot_tree(), r"pip install 'oubli-server\[plot\]'"),
    ("scipy.sparse", lambda model: model.decision_path(rows(1)), "pip install scipy"),
])  # fmt: skip
def test_a_missing_library_is_named(library: str, ask: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["tree"]()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"needs {library.partition('.')[0]}: {extra}"):
        ask(model)


def test_exports_resolve_and_change_nothing() -> None:
    model = core.DynamicForestClassifier(n_estimators=5, random_state=0).fit(rows(), labels(N, 3), schema=CLASSES)
    model.delete([str(i) for i in range(40)])
    assert model.n_lazy_tags_
    fresh = model.copy()
    fresh.resolve()
    assert (model.trees_to_json(), model.n_lazy_tags_) == (fresh.trees_to_json(), 0)
    assert model.digest() == fresh.digest()


# A notebook's view


def test_a_notebook_shows_what_a_model_is_and_holds() -> None:
    model = core.DynamicForestClassifier(n_estimators=3, random_state=0)
    assert model._repr_html_() == (
        "<table><caption><code>DynamicForestClassifier(n_estimators=3, random_state=0)</code></caption>"
        "<tr><th>Kind</th><td>forest, classification</td></tr><tr><th>State</th><td>not fitted</td></tr></table>"
    )
    model.fit([[float(i)] for i in range(1200)], ["<b>&amp;", *(f"class {i:02}" for i in range(11))] * 100)
    text = model._repr_html_()
    for cell in ("exact", "1,200", "&lt;b&gt;&amp;amp;, class 00, class 01", " and 2 more"):
        assert cell in text
    assert re.search(r"<th>Last change</th><td>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</td>", text)
    assert "<b>" not in text
    model.set_params(criterion="<i>")
    assert "<i>" not in model._repr_html_()
    assert "Classes" not in MODELS["forest of numbers"]()._repr_html_()
