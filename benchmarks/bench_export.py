"""Whether exported models answer as ours do: rows that differ through LightGBM, treelite and ONNX.

python -m benchmarks.bench_export [--data DIR] [--quick] [--libraries DIR] [--write-results]

treelite, onnxmltools and onnxruntime are no dependencies: `pip install --target DIR treelite onnxmltools onnxruntime`
puts them, with what they need, into a folder for `--libraries`. Without them the rows are of LightGBM alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import lightgbm
import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks import sections
from benchmarks.boosting.datasets import REGRESSION, Split, load_split, take
from benchmarks.results import Row, at_most
from benchmarks.sections import Bench, Section
from oubli.core import lightgbm_rows
from oubli.core.data.values import Task
from oubli.core.errors import InputError
from oubli.core.estimators import KINDS

Reals = npt.NDArray[np.float64]

SETS = (
    *("adult", "bank", "heart", "purchase", "electricity", "vaccine"),
    *("letter", "covtype-first", "poker", "abalone", "wine", "california_housing"),
)
ROWS, TREES = 4_000, 25
CLOSE, CLOSE_FLOAT32 = 1e-12, 1e-5  # of the answers' size, or of 1
HEAD = ("set:", "model:", "answers", "refused", "ONNX", "ONNX, other class", "differ")
TEXT = (
    "{rows:,} samples are learned, a tenth of them deleted, and as many other rows answered, by models with {trees} "
    "trees (iterations) and defaults. An answer is a row's prediction, or the probability of a class; where treelite "
    "computes probabilities in float32, its raw scores are compared. `differ`: answers of LightGBM or treelite, which "
    "compute in float64, that are further than 1e-12 of their size from ours. ONNX computes in float32: answers that "
    "are further than 1e-5, and rows with another class. `refused`: rows with a category that no sample has, of which "
    "LightGBM's form cannot say where it goes."
)


@dataclass(frozen=True)
class Exports(Bench):
    """What is exported."""

    group: ClassVar[str] = "export"
    sets: Sequence[str]
    rows: int
    trees: int


def _table(table: Any) -> pd.DataFrame:
    return (table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))).reset_index(drop=True)


def some_of(split: Split, n: int) -> Split:
    """So many rows of both parts, drawn."""
    draw = np.random.default_rng(0)
    learned, tested = (draw.permutation(len(y))[:n] for y in (split.y, split.y_test))
    parts = {"X": split.table(learned), "y": split.y[learned], "X_test": take(split.X_test, tested)}
    return replace(split, **parts, y_test=split.y_test[tested])


def fitted(kind: str, task: Task, split: Split, n_trees: int) -> Any:
    """Return a model of a kind that has learned some samples and forgotten a tenth of them."""
    parameters = {} if kind == "tree" else {"n_estimators": n_trees, "random_state": 0}
    X = _table(split.X)
    model = KINDS[kind, task](**parameters)
    model.fit(X, split.y, ids=[f"{i}" for i in X.index], categorical_features=split.categorical or None)
    model.delete([f"{i}" for i in range(0, len(X), 10)])
    return model


def answered(model: Any, rows: pd.DataFrame) -> Reals:
    """What an export should answer, float64[n, outputs]: values, or a probability a class, of two the second's."""
    found = model.query(rows)
    if found.probabilities is None:
        return np.asarray(found.labels)[:, np.newaxis]
    return np.asarray(found.probabilities[:, 1:] if found.probabilities.shape[1] == 2 else found.probabilities)


def texts_of(model: Any, n_outputs: int) -> list[str]:
    """The texts that together say all outputs to programs that know no averages of many classes."""
    if n_outputs == 1 or model.is_boosted:
        return [model.to_lightgbm()]
    return [model.to_lightgbm(of_class=label) for label in model.classes_.tolist()]


def _by_lightgbm(text: str, X: Reals) -> Reals:
    return np.asarray(lightgbm.Booster(model_str=text).predict(X)).reshape(len(X), -1)


def _by_treelite(text: str, X: Reals, *, as_scores: bool) -> Reals:
    import treelite

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.txt"
        path.write_text(text)
        model = treelite.frontend.load_lightgbm_model(str(path))
    return np.asarray(treelite.gtil.predict(model, X, pred_margin=as_scores), np.float64).reshape(len(X), -1)


def _by_onnx(text: str, X: Reals) -> Reals:
    import onnxmltools
    import onnxruntime
    from onnxmltools.convert.common.data_types import FloatTensorType

    booster, types = lightgbm.Booster(model_str=text), [("x", FloatTensorType([None, X.shape[1]]))]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    converted = onnxmltools.convert_lightgbm(booster, initial_types=types, zipmap=False).SerializeToString()
    outputs = onnxruntime.InferenceSession(converted, options).run(None, {"x": X.astype(np.float32)})
    found = np.asarray(outputs[-1], np.float64).reshape(len(X), -1)
    return found[:, 1:] if found.shape[1] == 2 else found


def differing(found: Reals, expected: Reals, close: float) -> npt.NDArray[np.bool_]:
    """Which answers are not as close to ours as that."""
    return np.asarray(np.abs(found - expected) > close * np.maximum(1.0, np.abs(expected)))


def classes_of(answers: Reals) -> npt.NDArray[np.intp]:
    """The classes that are answered."""
    return np.asarray(answers[:, 0] > 0.5, np.intp) if answers.shape[1] == 1 else answers.argmax(axis=1)


def accepted(text: str, rows: pd.DataFrame) -> tuple[pd.DataFrame, Reals, int]:
    """Return the rows that an export takes, as its numbers, and how many it refuses."""
    n_refused = 0
    while True:
        try:
            return rows, lightgbm_rows(text, rows), n_refused
        except InputError as error:
            if error.row is None:
                raise
            rows, n_refused = rows.drop(index=rows.index[error.row]).reset_index(drop=True), n_refused + 1


def compared(split: Split, kind: str, n_trees: int, *, has_others: bool) -> Row:
    """Compare a model of a kind on one data set with its exports."""
    model = fitted(kind, Task.REGRESSION if split.task == REGRESSION else Task.CLASSIFICATION, split, n_trees)
    text = model.to_lightgbm()
    rows, X, n_refused = accepted(text, _table(split.X_test))
    expected = answered(model, rows)
    wrong = differing(_by_lightgbm(text, X), expected, CLOSE)
    onnx, others = "", ""
    if has_others:
        texts = texts_of(model, expected.shape[1])
        as_scores = model.is_boosted and expected.shape[1] > 1
        target = model.raw_scores(rows) if as_scores else expected
        found = np.concatenate([_by_treelite(one, X, as_scores=as_scores) for one in texts], axis=1)
        wrong |= differing(found, target, CLOSE)
        narrow = np.concatenate([_by_onnx(one, X) for one in texts], axis=1)
        onnx = f"{differing(narrow, expected, CLOSE_FLOAT32).sum():,}"
        if split.task != REGRESSION:
            others = f"{(classes_of(narrow) != classes_of(expected)).sum():,}"
    cells = (split.name, kind, f"{expected.size:,}", f"{n_refused:,}", onnx, others)
    return Row(cells, float(wrong.sum()), at_most(0))


def rows_of(bench: Exports) -> Iterator[Row]:
    """Rows of all data sets and kinds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        has_others = all(find_spec(name) for name in ("treelite", "onnxmltools", "onnxruntime"))
        for name in bench.sets:
            split = some_of(load_split(name, bench.data, bench.cache), bench.rows)
            for kind, task in KINDS:
                if (task is Task.REGRESSION) == (split.task == REGRESSION):
                    row = compared(split, kind, bench.trees, has_others=has_others)
                    print(*row.cells, row.figure, flush=True)
                    yield row


def rows_that_differ(bench: Exports) -> Section:
    """Answers of exports that are not ours."""
    text = TEXT.format(rows=bench.rows, trees=bench.trees)
    return Section("Answers that differ", text, HEAD, list(rows_of(bench)))


QUESTIONS: dict[str, Callable[[Exports], Section]] = {"rows": rows_that_differ}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask, print the tables, and write them when asked."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--libraries", type=Path, help="a folder with treelite, onnxmltools and onnxruntime")

    options = sections.parse(__doc__, list(QUESTIONS), arguments, add_options)
    if options.libraries is not None:
        sys.path.append(str(options.libraries))
    sets, rows, trees = (SETS[6:8], 300, 3) if options.quick else (SETS, ROWS, TREES)
    sections.ask(QUESTIONS, Exports(*sections.folders(options), sets, rows, trees), options)


if __name__ == "__main__":
    main()
