"""Model files on the command line: reading one, and predicting a table with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oubli.app.datasets.frames import Frame
from oubli.app.datasets.loading import Queries
from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent
from oubli.core import load
from oubli.core.errors import EmptyModelError, FileError
from oubli.core.persistence import load_own

_BATCH = 5_000  # rows; small enough that the progress bar moves


def load_model_file(path: Path) -> Any:
    """Read a model file, or the newest snapshot of a data directory.

    Raises
    ------
    StartError
        When there is none, or it cannot be read.
    """
    is_kept = path.is_dir()
    if is_kept:
        # The number has eight digits or more: longer is later.
        found = sorted(path.glob("snapshot-*.safetensors"), key=lambda file: (len(file.name), file.name))
        if not found:
            raise StartError(f"the directory {path} holds no snapshot: name a model file or a server's data directory")
        path = found[-1]
    try:
        return load_own(path).model if is_kept else load(path, verify=False)
    except OSError as error:
        raise StartError(f"the model file {path} cannot be read: {error.strerror}") from None
    except FileError as error:
        raise StartError(f"the model file {path}: {error.rule}") from None


def prediction_rows(estimator: Any, queries: Queries, progress: Progress = silent) -> Iterator[list[Any]]:
    """Yield a header, then one row for each query: id if there are ids, prediction, a probability for each class."""
    if estimator.n_samples_ == 0:
        raise StartError("the model holds no samples, so there is nothing to predict from")
    total = len(queries)
    for start in range(0, total, _BATCH):
        progress("predicting", start, total)
        rows = slice(start, start + _BATCH)
        try:
            result = estimator.query(_rows(queries.X, rows))
        except EmptyModelError as error:
            raise StartError(str(error)) from None
        labels = result.labels.tolist()
        probabilities = result.probabilities.tolist() if result.probabilities is not None else [[] for _ in labels]
        ids = [[sample_id] for sample_id in queries.ids[rows]] if queries.ids is not None else [[] for _ in labels]
        if start == 0:
            classes = [] if result.classes is None else result.classes.tolist()
            head = [] if queries.ids is None else ["id"]
            yield [*head, "prediction", *(f"probability of {name}" for name in classes)]
        for sample_id, label, shares in zip(ids, labels, probabilities, strict=True):
            yield [*sample_id, label, *shares]
    progress("predicting", total, total)


def _rows(X: Any, rows: slice) -> Any:
    if isinstance(X, Frame):
        return Frame({name: X[name][rows] for name in X.columns})
    return X[rows]
