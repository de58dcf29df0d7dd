"""Weights of samples in boosting: what one is worth. Histories of weighted samples are in `tests/histories`."""

from typing import Any

import numpy as np
import pytest

from oubli import core


def row(i: int) -> list[Any]:
    return [float(i * 37 % 101), "abcdefgh"[i * i % 8], float(i % 3), None if i % 11 == 0 else i / 7]


def label(task: str, i: int) -> Any:
    if task == "numbers":
        return float(i * 53 % 97) + (40.0 if i % 3 else 0.0)
    return "wxyz"[(i * 31 % 17 + i % 5) % (2 if task == "two classes" else 4)]


def digest_of(task: str, numbers: list[int], weights: list[int] | None) -> str:
    """Of a model of the samples with these numbers."""
    kind = core.IncrementalBoostingRegressor if task == "numbers" else core.IncrementalBoostingClassifier
    model = kind(n_estimators=6, max_depth=3, random_state=3, min_child_weight=0.1, quantization=None)
    model.fit([row(i) for i in numbers], [label(task, i) for i in numbers], sample_weight=weights)
    return str(model.digest())


@pytest.mark.parametrize("task", ["two classes", "four classes", "numbers"])
def test_a_sample_of_weight_two_is_two_samples(task: str) -> None:
    numbers = list(range(160))
    weights = [1 + i * 7 % 4 for i in numbers]
    repeated = [i for i in numbers for _ in range(weights[i])]
    assert digest_of(task, numbers, weights) == digest_of(task, repeated, None)


@pytest.mark.parametrize("kind", [core.OnlineBoostingClassifier, core.OnlineBoostingRegressor])
def test_predictions_of_online_boosting_are_those_of_weighted_means(kind: Any) -> None:
    """Samples like the first row are of a class, or a number, with weight 9 to 1, those like the second with 1 to 9."""
    rows, labels = [[0.0]] * 40 + [[1.0]] * 40, [0, 1] * 20 + [1, 0] * 20
    model = kind(n_estimators=200, learning_rate=0.1, random_state=1, min_child_weight=0.1)
    model.fit(rows, labels, sample_weight=[9.0, 1.0] * 40)
    answer = model.predict if kind is core.OnlineBoostingRegressor else lambda some: model.predict_proba(some)[:, 1]
    assert np.allclose(answer([[0.0], [1.0]]), [0.1, 0.9], atol=0.04)
