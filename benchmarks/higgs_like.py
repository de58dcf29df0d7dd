"""Generated data that stand in for HIGGS: 28 numeric features, two classes, Bayes error 25 %.

    python -m benchmarks.higgs_like [--n-train 500000] [--cache .benchmarks]

21 features are normal, 7 log-normal. The log-odds of the label are a sum of terms of one and two features each, most
of them not linear; thirteen features take part and the others are noise. Always the same data for the same sizes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

N_FEATURES = 28
N_TRAIN = 500_000
N_TEST = 100_000
BAYES_ERROR = 0.25
CACHE = Path(".benchmarks")
_N_NORMAL = 21
_N_CALIBRATION = 50_000  # first rows, which decide centre and slope of the log-odds
_AT_ONCE = 2**16  # rows that are drawn in one step, so that beside the data there is never much else in memory

Floats = npt.NDArray[np.float32]


class HiggsLike(NamedTuple):
    """The data, float32 features and 0/1 labels."""

    X: Floats
    y: npt.NDArray[np.int8]
    X_test: Floats
    y_test: npt.NDArray[np.int8]


def generate(n_train: int = N_TRAIN, n_test: int = N_TEST, seed: int = 0) -> HiggsLike:
    """Draw the data."""
    random = np.random.default_rng(seed)
    n = n_train + n_test
    X, y = np.empty((n, N_FEATURES), np.float32), np.empty(n, np.int8)
    parts = [slice(start, min(start + _AT_ONCE, n)) for start in range(0, n, _AT_ONCE)]
    for part in parts:
        X[part] = random.standard_normal(X[part].shape)
        X[part, _N_NORMAL:] = np.exp(0.5 * X[part, _N_NORMAL:])
    head = _score(X[:_N_CALIBRATION])
    centre, width = np.median(head), head.std()
    slope = _slope((head - centre) / width)
    for part in parts:
        chance = _logistic(slope * ((_score(X[part]) - centre) / width))
        y[part] = random.random(len(chance)) < chance
    return HiggsLike(X[:n_train], y[:n_train], X[n_train:], y[n_train:])


def cached(directory: Path = CACHE, n_train: int = N_TRAIN, n_test: int = N_TEST) -> Path:
    """Return the .npz file that holds the data, written when it is not there yet."""
    path = directory / f"higgs_like_{n_train}_{n_test}.npz"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp.npz")
        np.savez(unfinished, **generate(n_train, n_test)._asdict())
        unfinished.replace(path)
    return path


def load(directory: Path = CACHE, n_train: int = N_TRAIN, n_test: int = N_TEST) -> HiggsLike:
    """Read the data, generated once."""
    with np.load(cached(directory, n_train, n_test)) as file:
        return HiggsLike(*(file[name] for name in HiggsLike._fields))


def _score(X: Floats) -> npt.NDArray[np.floating]:
    """What decides the label, before centre and slope."""
    x = X.T
    interactions = x[0] * x[1] - 0.5 * x[5] * (x[6] > 0) + 0.8 * np.tanh(x[8] + x[9]) + 0.5 * x[22] * (x[10] > 0.3)
    curves = np.sin(2 * x[2]) + np.abs(x[3]) + 0.42 * (x[7] ** 2 - 1) + 1.2 * np.log(x[21])
    total: npt.NDArray[np.floating] = interactions + curves + 0.7 * x[4]
    return total


def _logistic(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    chance: npt.NDArray[np.floating] = 1 / (1 + np.exp(-values))
    return chance


def _slope(score: npt.NDArray[np.floating]) -> float:
    """The slope of the log-odds at which the best possible classifier errs as often as it should."""
    low, high = 0.1, 10.0
    for _ in range(50):
        slope = (low + high) / 2
        chance = _logistic(slope * score)
        if np.minimum(chance, 1 - chance).mean() > BAYES_ERROR:
            low = slope
        else:
            high = slope
    return slope


def main() -> None:
    """Write the file and say what is in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--n-train", type=int, default=N_TRAIN)
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    data = load(options.cache, options.n_train)
    print(f"{cached(options.cache, options.n_train)}: {data.X.shape}, positives {data.y.mean():.3f}")


if __name__ == "__main__":
    main()
