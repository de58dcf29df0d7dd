from __future__ import annotations

import pytest

from app.erased import ERASED, RECTIFIED, ErasedIds
from app.errors import EphemeralError
from app.store.directory import DataDirectory
from app.store.keeper import Keeper
from app.store.reservations import BLOCK, Marks
from core.errors import FileError
from tests.app.support import forest


@pytest.fixture
def directory(tmp_path):
    directory = DataDirectory(tmp_path / "data")
    yield directory
    directory.close()


def test_a_snapshot_settles_the_reservations(directory):
    keeper = Keeper(directory)
    keeper.reserve(Marks(3, 9))
    assert Keeper(directory).id_floor == 3 + BLOCK
    assert not keeper.is_current(9)
    model = forest(10)
    model.add([[1, "a", True]], ["yes"], ids=["41"])
    keeper.id_floor = 0
    keeper.write(model, 9, epoch=1)
    assert keeper.is_current(9)
    assert Keeper(directory).reservations.marks == Marks(42, 9)


def test_a_snapshot_remembers_ids_that_the_model_does_not(directory):
    keeper = Keeper(directory)
    keeper.id_floor = 77
    assert keeper.write(forest(10), 1, epoch=1).next_id == 77


def test_a_restore_drops_what_went_since(directory, tmp_path):
    keeper, erased = Keeper(directory), ErasedIds()
    file = keeper.write(forest(10), 5, epoch=1).path
    erased.add(["c0"], 5, ERASED)
    erased.add(["c1", "c2"], 6, ERASED)
    erased.add(["c3"], 7, RECTIFIED)
    live = forest(8)
    live.add([[1, "a", True]], ["yes"], ids=["90"])
    model, restored = keeper.restore(file, live, erased, 8, epoch=2)
    assert sorted(model.samples_.ids()) == ["c0", *(f"c{i}" for i in range(4, 10))]
    assert model.n_lazy_tags_ == 0
    assert (restored.dropped_erased, restored.dropped_rectified) == (2, 1)
    assert restored.no_longer_held == 4  # c1, c2, c3 and 90
    assert (restored.snapshot_model_version, restored.model_version, restored.n_samples) == (5, 8, 7)
    assert keeper.id_floor == 91
    assert (keeper.newest.model_version, keeper.newest.epoch, keeper.newest.next_id) == (8, 2, 91)
    fresh = forest(10)
    fresh.delete(["c1", "c2", "c3"])
    assert keeper.newest.digest == fresh.digest()


def test_a_file_that_no_service_wrote_can_be_restored(directory, tmp_path):
    forest(10).save(tmp_path / "model")
    erased = ErasedIds()
    erased.add(["c1"], 1, ERASED)
    _, restored = Keeper(directory).restore(tmp_path / "model", forest(3), erased, 2, epoch=1)
    assert (restored.snapshot_model_version, restored.n_samples, restored.dropped_erased) == (0, 9, 1)


@pytest.mark.parametrize(
    "extra", [{"model_version": "x"}, {"next_id": ""}, {"created_at": "yesterday"}, {"epoch": "-"}]
)
def test_notes_that_make_no_sense_are_refused(directory, tmp_path, extra):
    forest(10).save(tmp_path / "model", extra=extra)
    with pytest.raises(FileError, match="metadata is damaged"):
        Keeper(directory).restore(tmp_path / "model", forest(3), ErasedIds(), 2, epoch=1)


def test_without_a_directory_nothing_is_kept(tmp_path):
    keeper = Keeper(None)
    assert keeper.is_ephemeral
    assert keeper.path is None
    assert keeper.is_current(7)
    keeper.reserve(Marks(10**9, 10**9))
    for refused in (lambda: keeper.newest, lambda: keeper.write(forest(3), 1, epoch=1)):
        with pytest.raises(EphemeralError):
            refused()
    forest(10).save(tmp_path / "model")
    assert keeper.restore(tmp_path / "model", forest(3), ErasedIds(), 2, epoch=1)[1].n_samples == 10
    keeper.close()
