"""The root over the samples of an export, made in a process of its own while this one fits them.

It is hashed sample by sample in Python, which holds the interpreter for as long as a fit takes. The process is given
the bytes of the export, so that both read the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import orjson

from oubli.verifier.errors import FailedError, Rule
from oubli.verifier.sets import set_root

_FEW_BYTES = 1_000_000  # of an export that is hashed as soon as a process has started


class SetProcess:
    """Makes the root over the samples of an export; `with` ends the process.

    Parameters
    ----------
    export
        Pages of samples, a line each.
    positions_key
        By which the samples have their places.
    """

    def __init__(self, export: bytes, positions_key: bytes) -> None:
        self._export, self._key = export, positions_key
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._answer = b""

    def __enter__(self) -> Self:
        if len(self._export) > _FEW_BYTES:
            root = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
            command = [sys.executable, "-m", __name__]
            self._process = subprocess.Popen(  # noqa: S603 - ours
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
            self._thread = threading.Thread(target=self._ask, args=(self._process,))
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join()

    def root(self) -> bytes:
        """Return the root, when it is there.

        Raises
        ------
        FailedError
            When the export is none of samples, or has an id twice.
        """
        if self._thread is not None:
            self._thread.join()
        if not self._answer:  # it was too little work for a process, or there was none to be had
            return set_root(_samples_in(self._export.splitlines()), self._key)
        answer = json.loads(self._answer)
        if "rule" in answer:
            raise FailedError(cast("Rule", answer["rule"]), answer["text"])
        return bytes.fromhex(answer["root"])

    def _ask(self, process: subprocess.Popen[bytes]) -> None:
        answer, _ = process.communicate(self._key.hex().encode("ascii") + b"\n" + self._export)
        if process.returncode == 0:
            self._answer = answer


def _samples_in(lines: Iterable[bytes]) -> list[Any]:
    """Return the samples of pages that were checked to be some."""
    return [one for line in lines if line.strip() for one in orjson.loads(line)["samples"]]


def main() -> None:
    """Answer with the root over what is asked for."""
    key, *lines = sys.stdin.buffer.read().splitlines()
    try:
        answer = {"root": set_root(_samples_in(lines), bytes.fromhex(key.decode("ascii"))).hex()}
    except FailedError as error:
        answer = {"rule": error.rule, "text": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
