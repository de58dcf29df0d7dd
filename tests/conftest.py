"""What all tests share: the kernel cache, and one real server."""

import gc
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from oubli.app.service.compiling import use_kernel_cache

use_kernel_cache()  # before anything imports Numba

from tests.budget import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401
from tests.serving import EXAMPLE, Running, serving  # noqa: E402

settings.register_profile("tests", deadline=None)  # a busy machine may take long for an example
settings.load_profile("tests")

pytest_plugins = ("tests.browser", "tests.closing", "tests.postgres", "tests.recorder", "tests.tiers")

# A million objects come with the tests and stay to the end: searching them for garbage again and again takes a
# quarter of the time that it takes to collect the tests, and half a second each time afterwards.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a tenth of the time of many tests would be spent in it
    gc.enable()


# A shell that runs the tests in the background has them ignore Ctrl-C, and so would everything that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
WATCHED = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGPIPE") if hasattr(signal, name)]
HANDLERS = {number: signal.getsignal(number) for number in WATCHED}


# What compiles the same kernels runs in one worker, one file after the other: two would compile them twice.
TOGETHER = ("tests/exact/core/boosting/", "tests/exact/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give workers whole files, as `--dist loadfile` does, and those of some folders at once."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Name the test that changes how this process takes signals: a later one would be killed without a word."""
    yield
    changed = [number for number, handler in HANDLERS.items() if signal.getsignal(number) is not handler]
    for number in changed:
        signal.signal(number, HANDLERS[number])
    assert not changed, f"{item.nodeid} changed the handlers of {', '.join(number.name for number in changed)}"


@pytest.fixture(scope="session")
def adult_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server process on the example data, as the README starts it but with fewer trees."""
    folder = tmp_path_factory.mktemp("adult")
    with serving("--data", str(EXAMPLE), "--target", "income", "--n-estimators", "5", cwd=folder) as server:
        yield server
