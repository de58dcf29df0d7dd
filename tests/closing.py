"""Closes what a test opens and no one else closes, at the end of the scope that opened it; a plugin of pytest."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol, TypeVar

import pytest


class Closable(Protocol):
    """What can be closed, more than once."""

    def close(self) -> object: ...


T = TypeVar("T", bound=Closable)
_SCOPES: list[ExitStack] = []  # of the session, the module and the test that is running


def closed_at_the_end(opened: T) -> T:
    """Have something closed at the end of the test, or of the module whose fixture opens it; return it."""
    if _SCOPES:  # else the program has no tests and ends soon
        _SCOPES[-1].callback(opened.close)
    return opened


def _closing() -> Iterator[None]:
    with ExitStack() as scope:
        _SCOPES.append(scope)
        yield
        _SCOPES.remove(scope)


# They are set up before, and torn down after, all other fixtures of their scope.
_closes_with_session = pytest.fixture(_closing, scope="session", autouse=True, name="_closes_with_session")
_closes_with_module = pytest.fixture(_closing, scope="module", autouse=True, name="_closes_with_module")
_closes_with_test = pytest.fixture(_closing, autouse=True, name="_closes_with_test")
