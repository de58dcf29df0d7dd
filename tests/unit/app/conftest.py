"""Files that more than one test of the service needs."""

import json
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

import oubli.app.service.recovery.rebuild
from tests.unit.app.support import forest


@pytest.fixture
def anyio_backend() -> str:
    """What runs tests that are coroutines."""
    return "asyncio"


@pytest.fixture
def newer_file(tmp_path: Path) -> bytes:
    """A sound model file, except that its format version is one that no one has written yet."""
    path = tmp_path / "newer.safetensors"
    forest(10).save(path)
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"]["version"] = "999"
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + whole[8 + length :]


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Fits that do not begin before they are let go, in their thread."""
    gate = threading.Event()
    refit = oubli.app.service.recovery.rebuild.refit

    def waiting(*arguments: Any) -> Any:
        assert gate.wait(30)
        return refit(*arguments)

    monkeypatch.setattr(oubli.app.service.recovery.rebuild, "refit", waiting)
    return gate
