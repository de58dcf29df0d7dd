"""The forest of `dare-rf` as a peer that unlearns, in an interpreter of its own; see `operations/dare_rf.py`.

The other interpreter executes this file as a script, so it imports nothing of the project. Its process is fitted once
and forks for each question: `dare-rf` cannot learn a sample again, so a copy unlearns, answers and ends.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

Parts = dict[str, npt.NDArray[np.float32]]
_LENGTH_BYTES = 8


class DareForest:
    """A forest for two classes that can be asked without some of its rows."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.gone: list[int] = []

    def fit(self, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> DareForest:
        """Start the process."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        command = [str(self.python), "-I", str(Path(__file__).resolve())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.asking, self.answering = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        send(self.asking, {"X": X, "y": codes.astype(np.float32)})
        return self

    def delete(self, ids: Sequence[str]) -> None:
        """Answer without some rows from now on."""
        self.gone = [int(name) for name in ids]

    def add(self, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], ids: Sequence[str]) -> None:
        """Answer with all rows again."""
        self.gone = []

    def predict_proba(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Class probabilities."""
        send(self.asking, {"gone": np.array(self.gone, np.float32), "asked": X})
        return receive(self.answering)["answer"]

    def predict(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Classes."""
        labels: npt.NDArray[np.int64] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


def send(file: IO[bytes], parts: Parts) -> None:
    """Write arrays, their length in front."""
    content = io.BytesIO()
    np.savez(content, **parts)  # type: ignore[arg-type]
    file.write(len(content.getvalue()).to_bytes(_LENGTH_BYTES, "big") + content.getvalue())
    file.flush()


def receive(file: IO[bytes]) -> Parts:
    """Read arrays that `send` wrote; EOFError where there are none."""
    length = file.read(_LENGTH_BYTES)
    if not length:
        raise EOFError
    return dict(np.load(io.BytesIO(file.read(int.from_bytes(length, "big")))))


def main() -> None:
    """Fit, and answer questions until there are no more; for the interpreter that has `dare-rf`."""
    import dare  # type: ignore[import-not-found]

    asking, answering = sys.stdin.buffer, sys.stdout.buffer
    parts = receive(asking)
    forest = dare.Forest(random_state=0)
    forest.fit(parts["X"], parts["y"].astype(np.int32))
    while True:
        try:
            question = receive(asking)
        except EOFError:
            return
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        for row in question["gone"].astype(int).tolist():
            forest.delete(row)
        send(answering, {"answer": forest.predict_proba(question["asked"])})
        os._exit(0)


if __name__ == "__main__":
    main()
