"""Many histories of journals."""

import pytest

from tests.exact.app.storage.test_histories import run

pytestmark = pytest.mark.long


def test_many_histories() -> None:
    run(600)
