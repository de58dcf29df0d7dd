from __future__ import annotations

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
    assert keys.get(one.id) is None
    assert keys.get(other.id) == other


def test_a_key_that_is_not_here_is_fetched_once_and_kept(tmp_path: Path) -> None:
    keys, key = SegmentKeys(tmp_path / "segments"), SegmentKey("0123456789abcdef", bytes(range(32)))
    assert keys.fetched(key.id, lambda _: None) is None
    assert keys.fetched(key.id, lambda _: key.secret) == key
    assert keys.fetched(key.id, lambda _: None) == keys.get(key.id) == key


def test_a_destroyed_key_is_overwritten_before_its_name_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = SegmentKeys(tmp_path / "segments")
    key = keys.new()
    (path,) = (tmp_path / "segments").iterdir()
    flushed: list[Path] = []
    monkeypatch.setattr("oubli.app.storage.segment_keys.flush_directory", flushed.append)
    with path.open("rb") as file:
        assert file.read() == key.secret.hex().encode()
        keys.destroy([key.id])
        assert flushed == [tmp_path / "segments"]
        file.seek(0)
        assert file.read() == bytes(64)
    assert not path.exists()


def test_what_a_kill_left_is_overwritten(tmp_path: Path) -> None:
    SegmentKeys(tmp_path / "segments")
    left = tmp_path / "segments" / ".abc.tmp"
    left.write_bytes(b"half a key")
    with left.open("rb") as file:
        SegmentKeys(tmp_path / "segments")
        assert file.read() == bytes(10)
    assert not left.exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    keys = SegmentKeys(tmp_path / "segments")
    key = keys.new()
    (path,) = (tmp_path / "segments").iterdir()
    for text in (b"", b"abc", b"\xff" * 64, key.secret.hex()[:-2].encode()):
        path.write_bytes(text)
        with pytest.raises(StartError, match=rf"{key.id}\.key is damaged"):
            keys.get(key.id)


def test_nothing_else_is_an_id(tmp_path: Path) -> None:
    keys = SegmentKeys(tmp_path / "segments")
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
