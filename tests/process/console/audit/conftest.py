"""Servers with receipts and a ledger, which many tests look at; some may change theirs."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.process.console.audit.worlds import Told, World, world_in
from tests.process.console.support import make_key
from tests.serving import Running


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world whose model stays as it is; erasures may be added."""
    with world_in(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world whose model tests change."""
    with world_in(tmp_path_factory.mktemp("changing")) as world:
        yield world


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The server of a world that asks for keys."""
    with world_in(tmp_path_factory.mktemp("guarded")) as world:
        make_key(world.server, "admin")
        yield world.server


@pytest.fixture(scope="module")
def blank(browser: Browser, world: World) -> Iterator[Page]:
    """A page without a view, in which modules of the console can be used."""
    page = browser.new_page()
    page.goto(f"{world.server.url}/console/lib/canonical.js")
    yield page
    page.close()


@pytest.fixture(scope="session")
def told(world: World) -> Told:
    """Receipts, keys and entries of a server, of which the last erasure is not finished yet."""
    world.server.ask("POST", "/samples/batch-delete", {"ids": [world.take()]})
    return world.receipts(), world.public_keys(), world.entries()
