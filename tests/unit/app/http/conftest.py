"""A client of a small server, and a server without sockets in the event loop of the test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.service.model import influence
from tests.unit.app.http.connections import KEY, Host, hosting
from tests.unit.app.support import make_service, served


@pytest.fixture
def client() -> Iterator[TestClient]:
    with served() as one:
        yield one


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    """A client of a server that the tests of a module share, with the SETTINGS of the module."""
    with served(**getattr(request.module, "SETTINGS", {})) as one:
        yield one


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a server with a data directory."""
    with served(make_service(directory=tmp_path / "data")) as one:
        yield one


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a server whose key is `KEY`."""
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_text(f"{KEY}\n")
    return path


@pytest.fixture
def hot() -> bool:
    """Whether there is a fast path; tests of both ways parametrize it."""
    return True


@pytest.fixture
def durable() -> bool:
    return False


@pytest.fixture
def options() -> dict[str, Any]:
    return {}


@pytest.fixture
async def host(tmp_path: Path, hot: bool, durable: bool, options: dict[str, Any]) -> AsyncIterator[Host]:
    async with hosting(make_service(directory=tmp_path / "data" if durable else None), hot=hot, **options) as one:
        yield one


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are answered at once, however slow the machine is and long their kernels take to be compiled."""
    monkeypatch.setattr(influence, "is_influence_prepared", lambda model: True)
    monkeypatch.setattr(influence, "_LONG", 120.0)
