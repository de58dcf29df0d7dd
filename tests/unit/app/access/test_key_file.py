from __future__ import annotations

import hashlib
import json
import threading

import pytest

from oubli.app.access.keys import (
    FILE_NAME,
    MARK_NAME,
    AccessKey,
    KeyFileError,
    create_key,
    read_keys,
    revoke_key,
    write_keys,
)
from oubli.app.access.scopes import ALL_SCOPES


@pytest.fixture
def path(tmp_path):
    return tmp_path / FILE_NAME


def make(path, **changes):
    return create_key(path, **{"name": "shop", "scopes": ["predict"], "expires_ms": None, **changes})


def test_a_key_is_kept_as_a_hash(path):
    key, text = make(path, scopes={"write", "predict"}, expires_ms=4102444800000)
    prefix, key_id, secret = text.split("_")
    assert (prefix, key_id, len(bytes.fromhex(secret))) == ("oubli", key.id, 32)
    assert key.secret_sha256 == hashlib.sha256(secret.encode()).digest()
    assert secret not in path.read_text()
    assert secret not in repr(key)
    assert key.scopes == ("predict", "write")
    assert read_keys(path) == (key,)


def test_keys_are_different_and_the_file_is_for_its_owner(path):
    assert read_keys(path) == ()
    texts = {make(path)[1] for _ in range(5)}
    assert len(texts) == len({key.id for key in read_keys(path)}) == 5
    assert path.stat().st_mode & 0o777 == 0o600
    assert {found.name for found in path.parent.iterdir()} == {FILE_NAME, MARK_NAME}


def test_nobody_overwrites_a_key_that_is_made_at_the_same_time(path):
    threads = [threading.Thread(target=make, args=(path,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_keys(path)) == 8


def test_revoking_keeps_the_record(path):
    key, _ = make(path)
    other, _ = make(path)
    revoked = revoke_key(path, key.id)
    assert revoked is not None
    assert revoked.revoked_ms is not None
    assert read_keys(path) == (revoked, other)
    assert revoke_key(path, key.id) == revoked  # the time of the first stays
    assert revoke_key(path, "00000000") is None


def test_what_a_key_grants_and_when_it_ends():
    key = AccessKey("0" * 8, "n", ("read",), 0, 1000, None, bytes(32))
    assert key.grants == {"read"}
    assert key.is_live(999)
    assert not key.is_live(1000)
    admin = AccessKey("0" * 8, "n", ("admin",), 0, None, None, bytes(32))
    assert admin.grants == ALL_SCOPES
    assert admin.is_live(10**15)
    assert not AccessKey("0" * 8, "n", ("read",), 0, None, 5, bytes(32)).is_live(4)


def both(content):
    content["keys"].append(content["keys"][0])


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("keys"),
        lambda content: content["keys"][0].pop("revoked_at"),
        both,
        *({"keys": keys} for keys in (5, ["SECRET"])),
        *({"id": name} for name in ("SECRET", 7)),
        *({"scopes": scopes} for scopes in ([], "read", ["SECRET"], [["read"]])),
        *({"expires_at": moment} for moment in ("2030-01-01", 5)),
        {"secret_sha256": "00"},
        {"more": 1},
    ],
)
def test_a_damaged_file_is_no_file_without_keys(path, change):
    make(path)
    content = json.loads(path.read_text())
    if callable(change):
        change(content)
    else:
        (content if "keys" in change else content["keys"][0]).update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(KeyFileError, match="is damaged") as caught:
        read_keys(path)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"format": "1", "keys": []}'])
def test_what_is_no_key_file_at_all_is_not_written_to(path, content):
    path.write_bytes(content)
    for touch in (read_keys, make):
        with pytest.raises(KeyFileError):
            touch(path)
    assert path.read_bytes() == content


def test_a_file_of_another_version_or_that_cannot_be_read_is_told(path):
    path.write_text('{"format": 2, "keys": []}')
    with pytest.raises(KeyFileError, match="another version"):
        read_keys(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_keys(path)


def test_a_file_that_cannot_be_written_stays_as_it_is(path, monkeypatch):
    make(path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oubli.app.access.keys.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_keys(path, ())
    assert path.read_bytes() == before
    assert {found.name for found in path.parent.iterdir()} == {FILE_NAME, MARK_NAME}
