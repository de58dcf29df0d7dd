"""A server that many tests look at, and the console in a page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.process.console.people import write_people
from tests.process.console.support import Console, looking
from tests.serving import Running, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of a small forest, without keys; an erasure is finished when a test says so, and not by itself."""
    folder = tmp_path_factory.mktemp("console")
    with serving(*write_people(folder), "--n-estimators", "5", "--erasure-deadline", "3600", cwd=folder) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["mouse", "keyboard"])
def console(browser: Browser, server: Running, request: pytest.FixtureRequest) -> Iterator[Console]:
    """The console in a new page, used by mouse or by keyboard."""
    with looking(browser, server, uses_keys=request.param) as console:
        yield console
