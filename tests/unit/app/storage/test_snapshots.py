import pytest

from oubli.app.errors import NoSnapshotError, StartError, StorageError
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.snapshots import Facts, SnapshotStore, describe
from tests.closing import closed_at_the_end
from tests.unit.app.support import forest


@pytest.fixture
def directory(tmp_path):
    return closed_at_the_end(DataDirectory(tmp_path / "data"))


@pytest.fixture
def store(directory):
    return SnapshotStore(directory)


def write(store, model=None, version=1):
    """Write as the service does: a new one, then the oldest goes."""
    facts = Facts(version, 7, "line", 5, seq=10 * version, exports=2, ledger_index=3, ledger_hash="ab")
    written = store.write(model or forest(10), facts)
    store.keep_newest()
    return written


def files(directory):
    return sorted(path.name for path in directory.path.iterdir())


def test_what_is_written_is_recovered(directory, store):
    model = forest(10)
    written = write(store, model, 3)
    recovered = SnapshotStore(directory).recover()
    assert recovered.model.digest() == model.digest() == written.digest
    assert recovered.model.samples_.subject("c1") == "s1"
    assert (recovered.snapshot, recovered.notes, written.model_version) == (written, (), 3)
    assert written.facts == Facts(3, 7, "line", 5, 30, 2, 3, "ab")
    assert written.bytes == written.path.stat().st_size
    forest(10).save(directory.path / "model")  # by no service
    assert describe(directory.path / "model").facts == Facts()


def test_there_is_none_at_first_and_then_two_generations_for_the_owner_only(directory, store):
    assert (store.holds_model(), store.newest_seq()) == (False, None)
    with pytest.raises(NoSnapshotError):
        _ = store.newest
    for version in range(1, 5):
        assert write(store, version=version).path.stat().st_mode & 0o077 == 0
    assert files(directory) == ["lock", "snapshot-00000003.safetensors", "snapshot-00000004.safetensors"]
    assert store.newest_seq() == 40
    store.write(forest(3), Facts(5, seq=50))
    assert store.keep_newest() == 40, "the journal is needed from the older generation on"


def test_what_was_written_since_can_be_taken_back(directory, store):
    kept = write(store)
    number = store.newest_number()
    write(store, version=2)
    store.take_back(number, kept)
    assert files(directory) == ["lock", kept.path.name]
    assert store.newest == kept


def test_a_first_snapshot_that_reads_back_wrong_is_removed(directory, store):
    damaged = store.write(forest(20), Facts(1), check_later=True)
    assert store.is_unchecked
    damaged.path.write_bytes(damaged.path.read_bytes()[:-1])
    with pytest.raises(StorageError):
        store.check()
    assert files(directory) == ["lock"]
    store.write(forest(20), Facts(1), check_later=True)
    store.check()
    assert not store.is_unchecked


def test_a_snapshot_can_be_written_twice(directory, store):
    for version in (1, 2):
        write(store, version=version)
    model = forest(20)
    written = store.write(model, Facts(3, seq=30))
    store.write_again()
    assert store.keep_newest() == 30
    assert files(directory) == ["lock", "snapshot-00000003.safetensors", "snapshot-00000004.safetensors"]
    written.path.unlink()
    assert SnapshotStore(directory).recover().model.digest() == model.digest()


DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "altered": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "foreign": lambda _: b"foreign",
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_file_is_named_and_the_one_before_is_used(directory, store, damage):
    write(store, forest(10), 1)
    newest = write(store, forest(20), 2).path
    newest.write_bytes(DAMAGE[damage](newest.read_bytes()))
    again = SnapshotStore(directory)
    recovered = again.recover()
    assert (recovered.model.n_samples_, recovered.snapshot.model_version) == (10, 1)
    assert "snapshot-00000002.safetensors cannot be read" in recovered.notes[0]
    assert "fell back to snapshot-00000001.safetensors" in recovered.notes[1]
    assert write(again, version=3).path.name == "snapshot-00000003.safetensors"
    assert again.recover().snapshot.model_version == 3


def test_a_newer_format_is_never_fallen_back_from_and_no_sound_file_is_an_error(directory, store, newer_file):
    older, newest = (write(store, version=version).path for version in (1, 2))
    newest.write_bytes(newer_file)
    with pytest.raises(StartError, match=r"snapshot-00000002.*upgrade oubli"):
        SnapshotStore(directory).recover()
    for path in (older, newest):
        path.write_bytes(b"")
    with pytest.raises(StartError, match=r"snapshot-00000002.*snapshot-00000001.*backup.*--data-dir"):
        SnapshotStore(directory).recover()


@pytest.mark.parametrize("message", ["damaged", "No space left"])
def test_a_file_that_reads_back_wrong_or_does_not_fit_leaves_what_was_there(directory, store, message):
    write(store, version=1)

    class Model:
        def save(self, path, extra):
            if message != "damaged":
                path.write_bytes(b"half")
                raise OSError(28, message)
            forest(10).save(path, extra=extra)
            path.write_bytes(DAMAGE["altered"](path.read_bytes()))

    with pytest.raises(StorageError, match=message):
        write(store, Model(), 2)
    assert files(directory) == ["lock", "snapshot-00000001.safetensors"]
    assert (store.newest_seq(), store.recover().snapshot.model_version) == (10, 1)
