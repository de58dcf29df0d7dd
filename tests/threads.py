"""More threads than the machine may have, and no work too short for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from oubli.core.concurrency.threads import sharing_all

NUMBERS = (1, 2, 3, 7)


@contextmanager
def many_threads() -> Iterator[None]:
    """Let models have up to seven threads, for whatever they do."""
    with mock.patch("oubli.core.concurrency.threads.usable_cores", return_value=max(NUMBERS)), sharing_all():
        yield
