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
    is_name,
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


def test_the_file_is_for_its_owner_and_nothing_is_left_beside_it(path):
    make(path)
    make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert {found.name for found in path.parent.iterdir()} == {FILE_NAME, MARK_NAME}


def test_keys_are_different(path):
    texts = {make(path)[1] for _ in range(5)}
    assert len(texts) == 5
    assert len({key.id for key in read_keys(path)}) == 5


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


def test_no_file_means_no_keys(path):
    assert read_keys(path) == ()


def damaged(path, change):
    make(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("keys"),
        lambda content: content.update(keys=5),
        lambda content: content.update(keys=["SECRET"]),
        lambda content: content["keys"][0].pop("revoked_at"),
        lambda content: content["keys"][0].update(more=1),
        lambda content: content["keys"][0].update(id="SECRET"),
        lambda content: content["keys"][0].update(id=7),
        lambda content: content["keys"][0].update(scopes=[]),
        lambda content: content["keys"][0].update(scopes="read"),
        lambda content: content["keys"][0].update(scopes=["SECRET"]),
        lambda content: content["keys"][0].update(scopes=[["read"]]),
        lambda content: content["keys"][0].update(expires_at="2030-01-01"),
        lambda content: content["keys"][0].update(expires_at=5),
        lambda content: content["keys"][0].update(secret_sha256="00"),
        lambda content: content["keys"].append(content["keys"][0]),
    ],
)
def test_a_damaged_file_is_no_file_without_keys(path, change):
    with pytest.raises(KeyFileError, match="is damaged") as caught:
        read_keys(damaged(path, change))
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"format": "1", "keys": []}'])
def test_what_is_no_key_file_at_all(path, content):
    path.write_bytes(content)
    with pytest.raises(KeyFileError):
        read_keys(path)


def test_a_file_of_another_version_is_told(path):
    with pytest.raises(KeyFileError, match="another version"):
        read_keys(damaged(path, lambda content: content.update(format=2)))


def test_a_file_that_cannot_be_read(path):
    path.mkdir()
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_keys(path)


def test_a_key_is_not_added_to_a_damaged_file(path):
    path.write_text("{")
    with pytest.raises(KeyFileError):
        make(path)
    assert path.read_text() == "{"


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


@pytest.mark.parametrize("text", ["a", "shop-1.eu_west", "x" * 64])
def test_names(text):
    assert is_name(text)


@pytest.mark.parametrize("text", ["", "x" * 65, "Jane Doe", "jane@example.org", "é", "a\n"])
def test_what_is_no_name(text):
    assert not is_name(text)
