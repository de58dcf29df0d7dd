"""A witness that listens, for tests of what asks one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oubli.verifier.notes import VerifierKey
from oubli.witness import Witness, WitnessServer, read_or_make_key


@contextmanager
def witnessing(
    folder: Path, *logs: VerifierKey, name: str = "witness.example", port: int = 0
) -> Iterator[WitnessServer]:
    """A witness of some logs; its key and what it has seen are in a folder."""
    folder.mkdir(exist_ok=True)
    witness = Witness(read_or_make_key(folder / "key.pem", name), logs, folder / "seen")
    server = WitnessServer(("127.0.0.1", port), witness)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
