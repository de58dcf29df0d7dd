from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import higgs_like


def test_the_same_sizes_give_the_same_data() -> None:
    first, second = (higgs_like.generate(300, 100) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.X.shape == (300, 28)
    assert first.X.dtype == np.float32
    assert first.X_test.shape == (100, 28)
    assert set(first.y.tolist()) == {0, 1}


def test_more_rows_begin_with_the_same_features() -> None:
    np.testing.assert_array_equal(higgs_like.generate(100, 0).X, higgs_like.generate(200, 50).X[:100])


def test_the_best_classifier_errs_on_a_quarter_of_the_rows() -> None:
    # Knowing the features that count and how, no one does better than this: the sign of the log-odds.
    held = higgs_like.generate(20_000, 0)
    score = higgs_like._score(held.X)
    errors = ((score > np.median(score)) != held.y).mean()
    assert abs(errors - higgs_like.BAYES_ERROR) < 0.015


def test_it_is_generated_once(tmp_path: Path) -> None:
    path = higgs_like.cached(tmp_path, 50, 10)
    written = path.stat().st_mtime_ns
    np.testing.assert_array_equal(higgs_like.load(tmp_path, 50, 10).X, higgs_like.generate(50, 10).X)
    assert path.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [path]
