from pathlib import Path

import pytest

from oubli.app.errors import StartError
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys


def test_keys_are_kept_until_they_are_destroyed(tmp_path: Path) -> None:
    directory = tmp_path / "keys" / "segments"
    keys = SegmentKeys(directory)
    one, other = keys.new(), keys.new()
    assert "secret" not in repr(one)
    third = SegmentKey("0123456789abcdef", bytes(range(32)))
    keys.add(third)
    keys.add(third)
    assert keys.ids() == sorted([one.id, other.id, third.id])
    assert SegmentKeys(directory).get(third.id) == third
    assert keys.get("0" * 16) is None
    keys.destroy([one.id, third.id, "0" * 16])
    assert keys.ids() == [other.id]
    assert (keys.get(one.id), keys.get(other.id)) == (None, other)
    # One that is not here is fetched once and kept.
    assert keys.fetched(third.id, lambda _: None) is None
    assert keys.fetched(third.id, lambda _: third.secret) == third
    assert keys.fetched(third.id, lambda _: None) == keys.get(third.id) == third


def test_a_destroyed_key_is_overwritten_before_its_name_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that a kill has left."""
    left = tmp_path / ".abc.tmp"
    left.write_bytes(b"half a key")
    with left.open("rb") as file:
        keys = SegmentKeys(tmp_path)
        assert file.read() == bytes(10)
    key = keys.new()
    (path,) = tmp_path.iterdir()
    flushed: list[Path] = []
    monkeypatch.setattr("oubli.app.storage.segment_keys.flush_directory", flushed.append)
    with path.open("rb") as file:
        assert file.read() == key.secret.hex().encode()
        keys.destroy([key.id])
        assert flushed == [tmp_path]
        file.seek(0)
        assert file.read() == bytes(64)
    assert not [*tmp_path.iterdir()]


def test_a_damaged_file_is_named_and_nothing_else_is_an_id(tmp_path: Path) -> None:
    keys = SegmentKeys(tmp_path / "segments")
    key = keys.new()
    (path,) = (tmp_path / "segments").iterdir()
    for text in (b"", b"abc", b"\xff" * 64, key.secret.hex()[:-2].encode()):
        path.write_bytes(text)
        with pytest.raises(StartError, match=rf"{key.id}\.key is damaged"):
            keys.get(key.id)

    for name in ("../../secret", "", "0" * 15, "A" * 16):
        with pytest.raises(ValueError, match="16 hexadecimal digits"):
            keys.get(name)
    with pytest.raises(ValueError, match="32 bytes"):
        SegmentKey("0" * 16, bytes(31))


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="give --key-dir a directory"):
        SegmentKeys(tmp_path / "file")
    (tmp_path / "segments").mkdir(0o750)
    with pytest.raises(StartError, match="run `chmod 700"):
        SegmentKeys(tmp_path / "segments")
