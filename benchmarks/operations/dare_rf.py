"""A delete beside one of DaRE, as `dare-rf` has it.

`dare-rf` 1.1.4 has wheels up to Python 3.10, built for NumPy 1, and no sources to build others from. So it runs in an
interpreter of its own, which executes this file as a script: it imports nothing of the project.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.operations.mutations import Mutations
    from benchmarks.results import Row

TITLE = "Beside dare-rf"
TEXT = (
    "Adult one-hot, CPU time of one delete of one random sample; for `dare-rf` the mean over the number in the "
    "table. *As ours*: the same number of trees, depth, thresholds, attributes per node and minimum split. *Small*: "
    "50 trees, depth 20, 5 thresholds and otherwise its defaults. The mark compares like with like."
)
HEAD = ("dare-rf:", "its deletes", "its fit s", "its delete ms", "ours:", "our delete ms", "times faster")
TIMES_FASTER = 200
LIKE_FOR_LIKE = "as ours"
PARAMETERS: dict[str, dict[str, Any]] = {
    LIKE_FOR_LIKE: {"n_estimators": 100, "max_depth": 20, "k": 30, "max_features": 11, "min_samples_split": 10},
    "small": {"n_estimators": 50, "max_depth": 20, "k": 5},
}
MISSING = (
    "Not measured: `dare-rf` has wheels up to Python 3.10 only, and its source archive lacks the sources. "
    "`--dare-python` names an interpreter that has it; see benchmarks/README.md."
)


@dataclass(frozen=True)
class Dare:
    """CPU seconds of a fit and of one delete on average, over `n` of them."""

    fit: float
    delete: float
    n: int


def measure(python: Path, npz: Path, parameters: dict[str, Any], n: int) -> Dare:
    """Run this file in an interpreter that has `dare-rf`, on the `X` and `y` (0/1) of a file."""
    command = [str(python), "-I", str(Path(__file__).resolve()), str(npz), json.dumps(parameters), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Dare(**json.loads(done.stdout))


def rows(measured: dict[str, Dare], ours: Mutations) -> list[Row]:
    """Each of their settings beside each of our ways to delete, with `fast`."""
    from benchmarks.results import Row, at_least

    ways = {
        "lazily": (ours.seconds("lazy_delete"), at_least(TIMES_FASTER)),
        "lazily, with what is owed": (ours.seconds("lazy_delete") + ours.seconds("owed_by_delete"), None),
        "eagerly": (ours.seconds("eager_delete"), None),
    }
    return [
        Row(
            (name, f"{dare.n:,}", f"{dare.fit:.2f}", f"{1e3 * dare.delete:.3f}", way, f"{1e3 * seconds:.4f}"),
            dare.delete / seconds,
            mark if name == LIKE_FOR_LIKE else None,
        )
        for name, dare in measured.items()
        for way, (seconds, mark) in ways.items()
    ]


def main() -> None:
    """Fit, delete and print; for the interpreter that has `dare-rf`."""
    import dare  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser()
    parser.add_argument("npz", type=Path)
    parser.add_argument("parameters", type=json.loads)
    parser.add_argument("n", type=int)
    options = parser.parse_args()
    with np.load(options.npz) as file:
        X, y = file["X"], file["y"]
    forest = dare.Forest(random_state=1, **options.parameters)
    started = time.process_time()
    forest.fit(X, y)
    fitted = time.process_time()
    for i in np.random.default_rng(1).choice(len(y), options.n, replace=False).tolist():
        forest.delete(i)
    deleted = time.process_time()
    print(json.dumps({"fit": fitted - started, "delete": (deleted - fitted) / options.n, "n": options.n}))


if __name__ == "__main__":
    main()
