import json

import pytest

from app.errors import StartError
from app.store.directory import DataDirectory
from app.store.reservations import BLOCK, FILE_NAME, Marks, Reservations


@pytest.fixture
def directory(tmp_path):
    directory = DataDirectory(tmp_path)
    yield directory
    directory.close()


def test_begins_at_nothing(directory):
    assert Reservations(directory).marks == Marks(0, 0)


def test_reserves_a_block_ahead_and_remembers_it(directory):
    reservations = Reservations(directory)
    assert not reservations.covers(Marks(5, 1))
    reservations.reserve(Marks(5, 1))
    assert Reservations(directory).marks == Marks(5 + BLOCK, 1 + BLOCK)
    assert reservations.covers(Marks(5 + BLOCK, 1 + BLOCK))
    assert not reservations.covers(Marks(6 + BLOCK, 1))


def test_a_covered_reservation_writes_nothing(directory):
    reservations = Reservations(directory)
    reservations.reserve(Marks(5, 1))
    (directory.path / FILE_NAME).unlink()
    reservations.reserve(Marks(6, 2))
    assert not (directory.path / FILE_NAME).exists()


def test_settles_at_what_a_snapshot_holds(directory):
    reservations = Reservations(directory)
    reservations.reserve(Marks(5, 1))
    reservations.settle(Marks(7, 3))
    assert Reservations(directory).marks == Marks(7, 3)


def test_without_a_directory_everything_is_covered():
    reservations = Reservations(None)
    reservations.reserve(Marks(5, 1))
    reservations.settle(Marks(5, 1))
    assert reservations.covers(Marks(10**9, 10**9))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 1, "next_id": "x"}', "\xff"])
def test_a_damaged_file_is_named_with_the_remedy(directory, content):
    (directory.path / FILE_NAME).write_text(content)
    with pytest.raises(StartError, match=r"reserved.json cannot be read: restore it"):
        Reservations(directory)


def test_a_newer_format_is_not_guessed_at(directory):
    (directory.path / FILE_NAME).write_text(json.dumps({"format": 2, "next_id": 1, "model_version": 1}))
    with pytest.raises(StartError, match="newer version of Oubli"):
        Reservations(directory)
