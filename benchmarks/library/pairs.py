"""One question after the other for the libraries of two commits, which take turns.

Each has a process of its own that keeps its model. A question takes seconds, so that what the machine does in the
meantime meets both.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.boosting.datasets import HIGGS_LIKE, load_split
from benchmarks.problems import FAST, one_hot
from benchmarks.results import Mark, Row, at_most

TEXT = (
    "The libraries of this checkout and of commit `{rev}`, in a process each, which answer the same questions in turn: "
    "{rounds} rounds. CPU time, mean over the rounds; both get the same samples. The forests have the setting `fast`; "
    "boosted trees are `incremental-boosting` with its defaults, and a deletion counts without the addition that "
    "takes it back. Codes of heart and purchase are numbers, text is one-hot. *Of a round*: calls, or samples. The "
    "ratio is of the means, after divided by before. *Lowest* and *highest*: 95 % of its values when the rounds are "
    "drawn again. *Answers*: whether both predict the test rows bit for bit the same in the end."
)
HEAD = (
    "model:", "data:", "operation:", "of a round", "before ms", "after ms", "lowest", "highest", "answers:",
    "after / before",
)  # fmt: skip
MODELS = ("forest", "boosting")
SETS = {
    "forest": ("adult-one-hot", "heart", "purchase", HIGGS_LIKE),
    "boosting": ("adult", HIGGS_LIKE),
}
QUESTIONS = {
    "forest": ("fit", "one_by_one", "stream", "batch", "prediction"),
    "boosting": ("deletion",),
}
_EAGER = {"adult-one-hot": 0.4, "heart": 0.65, "purchase": 0.65, HIGGS_LIKE: 0.85}
_QUERY = {"adult-one-hot": 0.4, "heart": 0.7, "purchase": 0.7, HIGGS_LIKE: 0.85}
# What each operation should take beside commit `a67426a`.
MARKS: dict[tuple[str, str], Mark] = {
    **{("eager delete", name): at_most(limit) for name, limit in _EAGER.items()},
    **{("query in a stream", name): at_most(limit) for name, limit in _QUERY.items()},
    ("owed by a delete", "adult-one-hot"): at_most(0.5),
    ("owed by 1 %", "adult-one-hot"): at_most(0.5),
    ("fit", "adult-one-hot"): at_most(0.6),
    ("fit", HIGGS_LIKE): at_most(0.9),
    ("one deletion", "adult"): at_most(0.5),
    ("one deletion", HIGGS_LIKE): at_most(0.5),
}
DRAWS = 2_000

Sides = tuple[Path, Path]  # the interpreters, before and after


@dataclass(frozen=True)
class Work:
    """What a worker is given: the estimator's name and parameters, the data, and how many calls a question has."""

    name: str
    estimator: str
    parameters: dict[str, Any]
    X: Any
    y: npt.NDArray[Any]
    X_test: Any
    categorical: list[str]
    n_lazy: int
    n_eager: int

    @property
    def model(self) -> str:
        """Forest or boosting."""
        return "boosting" if "Boosting" in self.estimator else "forest"

    def calls(self, operation: str) -> int:
        """Calls of a round, or samples of one call."""
        if operation in {"eager delete", "eager add", "one deletion"}:
            return self.n_eager
        if operation in {"lazy delete", "lazy add", "owed by a delete", "owed by an add"}:
            return self.n_lazy
        if operation in {"query in a stream", "prediction, one row"}:
            return 2 * self.n_lazy
        return {"prediction, test rows": len(self.X_test), "fit": len(self.y)}.get(operation, len(self.y) // 100)


def load_work(model: str, name: str, data: Path, cache: Path, n_rows: int | None = None) -> Work:
    """Read a data set as the workers get it.

    Parameters
    ----------
    model
        One of `MODELS`.
    name
        One of its `SETS`.
    data, cache
        Directories of the files and of what is generated.
    n_rows
        Training rows; all when omitted.
    """
    split = load_split(name, data, cache, n_rows=n_rows)
    n_lazy, n_eager = (500, 40) if name == HIGGS_LIKE else (1_000, 200)
    if model == "boosting":
        n_eager = 8 if name == HIGGS_LIKE else 60
        estimator = "IncrementalBoostingClassifier"
        return Work(name, estimator, {}, split.X, split.y, split.X_test, split.categorical, n_lazy, n_eager)
    X, X_test = split.X, split.X_test
    if isinstance(X, pd.DataFrame):
        numbers = one_hot(_codes(pd.concat([X, pd.DataFrame(X_test)])))
        X, X_test = numbers[: len(X)], numbers[len(X) :]
    # The paper's number of attributes a node.
    parameters = FAST.get(name) or {**FAST["adult-one-hot"], "max_features": int(X.shape[1] ** 0.5) + 1}
    return Work(name, "DynamicForestClassifier", parameters, X, split.y, X_test, [], n_lazy, n_eager)


def _codes(frame: pd.DataFrame) -> pd.DataFrame:
    """Text that is a number in all rows as a number."""
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    return frame.assign(**{str(name): numbers[name] for name in frame if numbers[name].notna().all()})


def measure(sides: Sides, work: Work, rounds: int) -> list[Row]:
    """One row an operation; the side that goes first changes every time, and a first round does not count."""
    found: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack, tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps(asdict(work)))
        file.flush()
        workers = [stack.enter_context(_working(python, Path(file.name))) for python in sides]
        for seed in range(rounds + 1):
            for question in QUESTIONS[work.model]:
                first, second = (0, 1) if seed % 2 else (1, 0)
                told = {side: _ask(workers[side], question, seed) for side in (first, second)}
                for operation in told[0] if seed else ():
                    found.setdefault(operation, []).append((told[0][operation], told[1][operation]))
        same = "same" if len({_ask(worker, "answers", 0) for worker in workers}) == 1 else "differ"
    return [_row(work, operation, np.array(seconds), same) for operation, seconds in found.items()]


def _row(work: Work, operation: str, seconds: npt.NDArray[np.float64], answers: str) -> Row:
    """The row of an operation, from the seconds of both sides in each round."""
    before, after = seconds.mean(0)
    drawn = seconds[np.random.default_rng(0).integers(0, len(seconds), (DRAWS, len(seconds)))].mean(1)
    lowest, highest = np.quantile(drawn[:, 1] / drawn[:, 0], (0.025, 0.975))
    cells = (
        work.model, work.name, operation, f"{work.calls(operation):,}", f"{1e3 * before:.4g}", f"{1e3 * after:.4g}",
        f"{lowest:.3f}", f"{highest:.3f}", answers,
    )  # fmt: skip
    return Row(cells, float(after / before), MARKS.get((operation, work.name)))


def _ask(worker: subprocess.Popen[str], question: str, seed: int) -> Any:
    """What a worker answers.

    Raises
    ------
    RuntimeError
        When it has failed; the reason is on stderr.
    """
    if worker.stdin is None or worker.stdout is None:
        raise TypeError("a worker needs pipes")
    print(json.dumps([question, seed]), file=worker.stdin, flush=True)
    if line := worker.stdout.readline():
        return json.loads(line)
    raise RuntimeError(f"the worker failed at {question!r}")


@contextmanager
def _working(python: Path, file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(python), "-I", str(Path(__file__).with_name("worker.py")), str(file)]
    # Kernels are in the cache that belongs to the sources of each side.
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()
