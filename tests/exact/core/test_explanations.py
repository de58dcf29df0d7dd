"""Attributions are Shapley values of the live trees, in every kind and after any history; changes flip answers."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from oubli import core
from oubli.core.data.schema import ColumnType, Task
from oubli.core.errors import EmptyModelError, InputError, UnavailableError
from oubli.core.rng import MISSING_CATEGORY, hash_text
from tests.exact.core.test_look import CLASSES, COLUMNS, NUMBERS, rows
from tests.histories.kinds import tuned_forest
from tests.oracles import shapley

N = 90
ASKED = 6


def labels(X: list[list[Any]], n_classes: int) -> list[Any]:
    if not n_classes:
        return [(row[0] or 3.0) * (2 if row[1] == "u" else 1) + row[3] for row in X]
    return ["abcdefgh"[int((row[0] or 5) // 5 + (row[1] == "u") + bool(row[2])) % n_classes] for row in X]


def made(estimator: Any, n_classes: int = 0, weights: Any = None, **parameters: Any) -> Any:
    model = estimator(random_state=0, **parameters)
    X, schema = rows(N), NUMBERS if model.task is Task.REGRESSION else CLASSES
    model.fit(X, labels(X, n_classes), schema=schema, ids=[str(i) for i in range(N)], sample_weight=weights)
    model.delete([str(i) for i in range(0, N, 9)])
    more = rows(7, seed=9)
    model.add(more, labels(more, n_classes), ids=[f"more {i}" for i in range(7)])
    return model


WEIGHTS = {"whole": [1 + i % 3 for i in range(N)], "parts": [0.25 * (1 + i % 7) for i in range(N)], "none": None}
MODELS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "forest": (core.DynamicForestClassifier, 2, {"n_estimators": 5}),
    "forest of four": (core.DynamicForestClassifier, 4, {"n_estimators": 5}),
    "forest of numbers": (core.DynamicForestRegressor, 0, {"n_estimators": 5}),
    "tree": (core.DynamicTreeClassifier, 2, {}),
    "tree of four, feasible": (core.DynamicTreeClassifier, 4, {"epsilon": 0.6, "max_depth": 6}),
    "incremental": (core.IncrementalBoostingClassifier, 2, {"n_estimators": 4, "min_child_weight": 0.1}),
    "incremental of four": (core.IncrementalBoostingClassifier, 4, {"n_estimators": 3, "min_child_weight": 0.1}),
    "incremental of numbers": (core.IncrementalBoostingRegressor, 0, {"n_estimators": 4}),
    "incremental without grids": (core.IncrementalBoostingRegressor, 0, {"n_estimators": 3, "quantization": None}),
    "online": (core.OnlineBoostingClassifier, 2, {"n_estimators": 4}),
    "online of four": (core.OnlineBoostingClassifier, 4, {"n_estimators": 3}),
    "online of numbers": (core.OnlineBoostingRegressor, 0, {"n_estimators": 4}),
}


def goes_left(split: Any, row: list[Any]) -> bool:
    value = row[split.feature]
    if split.threshold is not None:
        return bool(split.missing_left if value is None else float(value) <= split.threshold)
    hashed = int(MISSING_CATEGORY) if value is None else hash_text(value)
    return split.goes_left(hashed) if split.goes_left is not None else hashed == split.category


def answers(model: Any, X: list[list[Any]]) -> Any:
    """What is explained."""
    if not model.is_boosted:
        return model.predict(X) if model.task is Task.REGRESSION else model.predict_proba(X)
    found = model.raw_scores(X)
    return found[:, 0] if found.shape[1] == 1 else found


def by_definition(model: Any, row: list[Any]) -> tuple[Any, Any]:
    """The attributions of a row and the base, from trees as people read them."""
    model.resolve()
    store, engine = model.samples_, model.engine_
    held = [store.get(name) for name in store.ids()]
    trees = []
    for number in range(engine.n_drawn_trees):
        look = engine.look(number, model.problem())
        samples = [(one.features, one.weight) for one in held]
        if not model.is_boosted and model.kind == "forest":
            samples = samples_of(engine, number, store)
            if not samples:
                continue

        def says(node: int, look: Any = look) -> Any:
            counts, value = look.says(node)
            if counts is not None:
                return [count / sum(counts) for count in counts] if sum(counts) else None
            n = engine.trees.n_groups if model.is_boosted else 1
            return np.eye(n)[look.facts.group or 0] * (value or 0.0)

        trees.append(shapley.read(look, goes_left, samples, says))
    values, base = shapley.attributions(trees, row, len(COLUMNS))
    if model.is_boosted:
        return values, base + engine.trees.base
    return values / len(trees), base / len(trees)


def samples_of(engine: Any, tree: int, store: Any) -> list[tuple[list[Any], float]]:
    """The samples that a tree of a forest has learned."""
    k, trees = engine.settings.occurrences, engine.trees
    waiting, slots = [tree], []
    while waiting:
        node = waiting.pop()
        child = int(trees.nodes["child"][node])
        if child >= 0:
            waiting += [child, child + 1]
        else:
            start = int(trees.starts[~child])
            slots += (trees.members[start : start + int(trees.nodes["n_samples"][node])] // k).tolist()
    found = [store.get(store.id_of(slot)) for slot in slots]
    return [(one.features, one.weight) for one in found]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", MODELS)
def test_attributions_are_shapley_values_of_the_live_trees(name: str, weights: str) -> None:
    estimator, n_classes, parameters = MODELS[name]
    model = made(estimator, n_classes, WEIGHTS[weights], **parameters)
    asked = [*rows(ASKED, seed=11), [None, None, None, 3.0], [2.5, "never seen", True, -(2.0**90)]]
    found = model.shap_values(asked)
    total = found.base_values + found.values.sum(axis=1)
    scale = max(1.0, float(np.abs(answers(model, asked)).max()))
    assert np.abs(total - answers(model, asked)).max() <= 1e-12 * scale
    for i, row in enumerate(asked):
        values, base = by_definition(model, row)
        assert np.abs(found.values[i].reshape(values.shape) - values).max() <= 1e-10 * scale
        assert np.abs(found.base_values[i] - base).max() <= 1e-10 * scale
    assert (found.feature_names, found.data.tolist()) == ([column.name for column in COLUMNS], asked)
    assert found.output_names == (list(map(str, model.classes_)) if found.values.ndim == 3 else None)


def test_a_class_that_leaves_have_tallies_of_is_explained_alike() -> None:
    plain = made(core.DynamicForestClassifier, 4, n_estimators=5).shap_values(rows(ASKED))
    with tuned_forest(most_counters=1):
        tallied = made(core.DynamicForestClassifier, 4, WEIGHTS["none"], n_estimators=5)
        assert tallied.engine_.has_tallies
        assert np.allclose(tallied.shap_values(rows(ASKED)).values, plain.values, rtol=0, atol=1e-14)
        weighted = made(core.DynamicForestClassifier, 4, WEIGHTS["parts"], n_estimators=5)
        assert np.allclose(weighted.shap_values(rows(1)).values[0], by_definition(weighted, rows(1)[0])[0], atol=1e-12)


def test_statistics_of_categories_belong_to_their_column() -> None:
    model = made(core.IncrementalBoostingClassifier, 2, n_estimators=6, min_child_weight=0.1, category_statistics=4)
    assert len(model.engine_.statistics) == 1
    asked = rows(20, seed=12)
    found = model.shap_values(asked)
    assert found.values.shape == (20, 4)
    assert np.abs(found.base_values + found.values.sum(axis=1) - answers(model, asked)).max() <= 1e-12
    assert np.abs(found.values[:, 1]).max() > 0


@pytest.mark.parametrize("name", ["forest", "forest of numbers", "incremental", "incremental without grids"])
def test_after_a_history_they_are_those_of_a_fresh_fit_bit_for_bit(name: str) -> None:
    estimator, n_classes, parameters = MODELS[name]
    model, asked, draw = made(estimator, n_classes, **parameters), rows(40, seed=21), np.random.default_rng(5)
    target = None if n_classes else 9.0
    for turn in range(12):
        held = model.samples_.ids()
        if turn % 3 == 0:
            model.shap_values(asked[:2])  # what is kept of one version is not read in the next
        model.delete([held[int(i)] for i in draw.choice(len(held), 1 + turn % 4, replace=False)])
        new = rows(2, seed=100 + turn)
        model.add(new, labels(new, n_classes), ids=[f"{turn} {i}" for i in range(2)])
    fresh = model.fresh_fit()
    found, other = model.shap_values(asked), fresh.shap_values(asked)
    assert found.values.tobytes() == other.values.tobytes()
    assert found.base_values.tobytes() == other.base_values.tobytes()
    changes = [one.nearest_change(asked[0], columns=2, target=target) for one in (model, fresh)]
    assert changes[0] == changes[1]


def test_a_row_has_the_same_attributions_alone_and_among_others_and_in_threads() -> None:
    model, asked = made(core.DynamicForestClassifier, 2, n_estimators=40), rows(200, seed=7)
    found = model.shap_values(asked)
    assert model.shap_values(asked[77:78]).values.tobytes() == found.values[77:78].tobytes()
    model.set_params(n_jobs=2)
    assert model.shap_values(asked * 20).values.tobytes() == np.tile(found.values, (20, 1, 1)).tobytes()


def test_more_columns_on_a_way_take_more_points() -> None:
    draw = np.random.default_rng(0)
    X = draw.integers(0, 4, (400, 30)).astype(np.float64)
    y = ["ab"[int(row.sum()) % 2] for row in X]
    model = core.DynamicForestClassifier(10, random_state=0).fit(X, y)
    found = model.shap_values(X[:30])
    assert np.abs(found.base_values + found.values.sum(axis=1) - model.predict_proba(X[:30])).max() <= 1e-12


def test_one_class_adds_nothing_and_no_sample_explains_nothing() -> None:
    X = rows(20)
    for estimator in (core.DynamicForestClassifier, core.DynamicTreeClassifier):
        model = estimator(random_state=0).fit(X, ["a"] * 20, schema=CLASSES)
        found = model.shap_values(X[:3])
        assert found.values.shape == (3, 4, 1)
        assert not found.values.any()
        assert (found.base_values == 1.0).all()
        assert model.nearest_change(X[0]) is None
        model.delete(model.samples_.ids())
        with pytest.raises(EmptyModelError):
            model.shap_values(X[:3])
    boosted = core.IncrementalBoostingClassifier(random_state=0).fit(X, ["a"] * 20, schema=CLASSES)
    assert boosted.shap_values(X[:3]).values.shape == (3, 4, 0)


def test_low_disclosure_explains_nothing() -> None:
    model = made(core.DynamicForestClassifier, 2, n_estimators=4, disclosure="low")
    with pytest.raises(UnavailableError, match="disclosure"):
        model.shap_values(rows(1))
    with pytest.raises(UnavailableError, match="disclosure"):
        model.nearest_change(rows(1)[0])


# -- the nearest change --------------------------------------------------------------------------------


def every_change(model: Any, row: list[Any]) -> list[tuple[float, list[Any]]]:
    """All single changes to values between any two that samples have, with their distances."""
    held = [model.samples_.get(name).features for name in model.samples_.ids()]
    found = []
    for i, column in enumerate(COLUMNS):
        known = sorted({one[i] for one in held if one[i] is not None})
        for value in known:
            if value == row[i]:
                continue
            distance = 1.0
            if column.type is ColumnType.NUMERIC and row[i] is not None:
                distance = abs(value - row[i]) / float(np.std([one[i] for one in held if one[i] is not None]))
            found.append((distance, [*row[:i], value, *row[i + 1 :]]))
    return sorted(found, key=lambda one: one[0])


@pytest.mark.parametrize("name", MODELS)
def test_the_nearest_change_flips_the_answer_and_none_of_the_values_held_is_nearer(name: str) -> None:
    estimator, n_classes, parameters = MODELS[name]
    model, n_found = made(estimator, n_classes, **parameters), 0
    for row in rows(12, seed=31):
        target = None if n_classes else 12.0

        def is_other(other: list[Any], row: list[Any] = row) -> bool:
            now, then = model.predict([row])[0], model.predict([other])[0]
            return bool(now != then) if n_classes else bool((now > 12.0) != (then > 12.0))

        single = model.nearest_change(row, target=target)
        pair = model.nearest_change(row, columns=2, target=target)
        flips = [distance for distance, other in every_change(model, row) if is_other(other)]
        if single is None:
            assert flips == []
        else:
            n_found += 1
            assert is_other(single.row)
            assert len(single.features) == 1
            assert model.predict([single.row])[0] == single.answer
            assert pair is not None
            assert single.distance <= min(flips, default=np.inf) + 1e-6
        if pair is not None:
            assert is_other(pair.row)
            assert [a != b for a, b in zip(row, pair.row, strict=True)].count(True) == len(pair.features) <= 2
            assert pair.distance <= (np.inf if single is None else single.distance)
            places = [[column.name for column in COLUMNS].index(name) for name in pair.features]
            assert [pair.row[place] for place in places] == pair.after
            assert [row[place] for place in places] == pair.before
    assert n_found


def test_a_change_keeps_to_the_columns_and_the_target_that_are_asked_for() -> None:
    model = made(core.DynamicForestClassifier, 4, n_estimators=10)
    found = 0
    for row, wanted in product(rows(6, seed=41), "abcd"):
        now = model.predict([row])[0]
        if now == wanted:
            with pytest.raises(InputError, match="another class"):
                model.nearest_change(row, target=wanted)
            continue
        change = model.nearest_change(row, columns=2, features=["size", "place"], target=wanted)
        if change is not None:
            found += 1
            assert set(change.features) <= {"size", "place"}
            assert change.answer == wanted
    assert found
    whole = model.nearest_change(rows(6, seed=41)[0], features=["age"])
    assert whole is None or isinstance(whole.after[0], int)


@pytest.mark.parametrize(("asked", "rule"), [
    ({"columns": 3}, "1 or 2"), ({"columns": True}, "1 or 2"), ({"features": ["nothing"]}, "no column"),
    ({"target": "z"}, "another class"), ({"target": 3.5}, "label|text|class"),
])  # fmt: skip
def test_wrong_questions_are_refused(asked: dict[str, Any], rule: str) -> None:
    model = made(core.DynamicForestClassifier, 2, n_estimators=3)
    with pytest.raises(InputError, match=rule):
        model.nearest_change(rows(1)[0], **asked)
    with pytest.raises(InputError):
        model.nearest_change([1.0])
    with pytest.raises(InputError):
        made(core.DynamicForestRegressor, n_estimators=3).nearest_change(rows(1)[0])
