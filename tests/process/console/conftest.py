"""A server that many tests look at, and the console in a page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.process.console.people import write_people
from tests.process.console.support import Console, looking
from tests.servers import module_server
from tests.serving import Running

# A server of a small forest, without keys; an erasure is finished when a test says so, and not by itself.
server = module_server(lambda folder: (*write_people(folder), "--n-estimators", "5", "--erasure-deadline", "3600"))


@pytest.fixture(params=[False, True], ids=["mouse", "keyboard"])
def console(browser: Browser, server: Running, request: pytest.FixtureRequest) -> Iterator[Console]:
    """The console in a new page, used by mouse or by keyboard."""
    with looking(browser, server, uses_keys=request.param) as console:
        yield console
