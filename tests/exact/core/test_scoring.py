"""Scores of models on samples that were not learned, beside slow and obviously right ones."""

from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor, DynamicTreeClassifier
from oubli.core.data.schema import Schema
from oubli.core.jit.nodes import side_of
from oubli.core.rng import draw_trees
from oubli.core.samples.store import SampleStore
from oubli.core.unseen.folds import FOLDS, answer_fold, take_samples
from oubli.core.unseen.scoring import FEWEST, Answers, out_of_bag, score_of
from tests.exact.core.test_look import CLASSES, NUMBERS, labels, rows

N = 90


def forest(schema: Schema, **parameters: Any) -> Any:
    is_numbers = schema is NUMBERS
    estimator = DynamicForestRegressor if is_numbers else DynamicForestClassifier
    y = [float((i * 7) % 23) for i in range(N)] if is_numbers else labels(N, 3)
    ids = [f"p{i}" for i in range(N)]
    return estimator(n_estimators=8, random_state=5, **parameters).fit(rows(N), y, ids=ids, schema=schema)


@pytest.mark.parametrize("schema", [CLASSES, NUMBERS])
def test_out_of_bag_asks_the_trees_that_have_not_learned_a_sample(schema: Schema) -> None:
    """Each of them alone is a forest of one tree, in which the others' leaves are gone."""
    model = forest(schema, occurrence=0.4)
    model.delete([f"p{i}" for i in range(0, N, 8)])
    model.resolve()
    engine, store = model.engine_, model.samples_
    slots, order = store.slots(), model.class_order()
    found = engine.predict_unseen(model.problem(), slots, order)
    assert found is not None
    answers, known = found
    assert known.all()
    k = engine.settings.occurrences
    for slot, answer in zip(slots.tolist(), answers, strict=True):
        drawn = np.arange(8, dtype=np.int32)
        draw_trees(engine.parameters[0]["seed_key"], store.id_hashes[slot], 8, k, drawn)
        unseen = sorted(drawn[k:].tolist())
        assert len(unseen) == 8 - k
        row = [store.get(store.id_of(slot)).features]
        cells, hashes = store.encode_queries(row)
        expected = []
        for tree in unseen:
            node = tree
            while (left := engine.look(tree, model.problem()).left(node)) is not None:
                node = left + int(side_of(engine.trees.nodes, node, cells, 0, hashes))
            counts, mean = engine.look(tree, model.problem()).says(node)
            expected.append(mean if counts is None else np.array(counts) / sum(counts))
        assert np.mean(expected, axis=0) == pytest.approx(answer)


def test_of_many_samples_those_with_the_smallest_hashes_are_asked() -> None:
    assert out_of_bag(forest(CLASSES, occurrence=1.0), 100) is None, "all trees learn all"
    assert out_of_bag(DynamicTreeClassifier().fit(rows(N), labels(N, 2), schema=CLASSES), 100) is None
    model = forest(CLASSES, occurrence=0.5)
    score = out_of_bag(model, 40)
    assert score is not None
    assert (score.method, score.n_samples) == ("out-of-bag", 40)
    taken = take_samples(model.samples_, 40)
    hashes = np.sort(model.samples_.id_hashes[model.samples_.slots()])[:40]
    assert np.array_equal(np.sort(taken.id_hashes[taken.slots()]), hashes)
    for name in taken.ids():
        assert taken.get(name) == model.samples_.get(name)


def test_a_fold_is_answered_by_a_model_that_has_not_learned_it() -> None:
    model = forest(CLASSES, occurrence=1.0)
    samples = take_samples(model.samples_, 1000)
    fitted: list[Any] = []

    class Watched(DynamicForestClassifier):
        def fit_held(self, store: SampleStore, progress: Any = None) -> Any:
            fitted.append({store.get(name).id for name in store.ids()})
            return super().fit_held(store, progress)

    asked: set[str] = set()
    for number in range(FOLDS):
        answers = answer_fold(lambda: Watched(n_estimators=8, occurrence=1.0, random_state=5), samples, number)
        left_out = set(samples.ids()) - fitted[-1]
        assert len(answers.labels) == len(left_out) > 0
        by_hand = DynamicForestClassifier(n_estimators=8, occurrence=1.0, random_state=5)
        learned = [name for name in samples.ids() if name not in left_out]
        held = [samples.get(name) for name in learned]
        by_hand.fit([one.features for one in held], [one.label for one in held], ids=learned, schema=CLASSES)
        order = [name for name in samples.names(samples.slots()) if name in left_out]
        assert list(answers.predicted) == by_hand.predict([samples.get(name).features for name in order]).tolist()
        assert list(answers.labels) == [samples.get(name).label for name in order]
        asked |= left_out
    assert asked == set(samples.ids())
    assert len(samples) == N  # nothing of it was shredded


def test_scores_are_accuracy_and_r2() -> None:
    some = [Answers(["a"] * 6, ["a"] * 3 + ["b"] * 3), Answers(["b"] * 6, ["b"] * 6)]
    assert score_of(CLASSES.task, some, "5-fold") == (0.75, "5-fold", 12)
    y = [float(i) for i in range(12)]
    assert score_of(NUMBERS.task, [Answers(y, y)], "m").value == 1.0
    assert score_of(NUMBERS.task, [Answers(y, [5.5] * 12)], "m").value == 0.0
    assert score_of(NUMBERS.task, [Answers([1.0] * 12, [1.0] * 11 + [2.0])], "m").value == 0.0
    assert score_of(NUMBERS.task, [Answers([1e308] * 6 + [-1e308] * 6, [0.0] * 12)], "m").value is None
    assert score_of(CLASSES.task, [Answers(["a"] * (FEWEST - 1), ["a"] * (FEWEST - 1))], "m").value is None
    assert score_of(CLASSES.task, [Answers([1] * 10, [True] * 10)], "m").value == 0.0  # another label
