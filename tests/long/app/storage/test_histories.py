"""Many histories of journals."""

from tests.exact.app.storage.test_histories import run


def test_many_histories() -> None:
    run(600)
