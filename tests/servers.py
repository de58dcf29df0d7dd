"""Servers that the tests of a module share: `server = module_server(flags)` is a fixture."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Running, serving


def module_server(flags: Callable[[Path], Sequence[str]], **options: Any) -> Any:
    """Return a fixture: a server in a folder of its own, with the flags of a function that may write files there."""

    @pytest.fixture(scope="module")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
        folder = tmp_path_factory.mktemp("server")
        with serving(*flags(folder), cwd=folder, **options) as running:
            yield running

    return server
