"""Keys: how their file is kept, what they open, and what a server makes of a file that is damaged or gone."""

import errno
import hashlib
import json
import threading
from itertools import product
from pathlib import Path

import pytest

from oubli.app.access import keys as keys_module
from oubli.app.access.keys import FILE_NAME, MARK_NAME, AccessKeys, KeyFileError, create_key, read_keys, revoke_key
from oubli.app.access.scopes import ALL_SCOPES

NOW = 1_900_000_000_000


class Watched:
    """The keys of a directory, with clocks that stand still until they are moved."""

    def __init__(self, path) -> None:
        self.path = path
        self.now = NOW
        self.seconds = 0.0
        self.keys = AccessKeys(path, now_ms=lambda: self.now, monotonic=lambda: self.seconds)

    def wait(self) -> None:
        self.seconds += keys_module.SECONDS_BETWEEN_LOOKS

    def grants_after(self, given: bytes) -> object:
        """What a key grants after the next look at the file."""
        self.wait()
        return self.keys.grants(given)

    def make(self, *scopes: str, expires_ms: int | None = None) -> tuple[str, bytes]:
        key, text = create_key(self.path, name="n", scopes=scopes, expires_ms=expires_ms)
        return key.id, text.encode()


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path / FILE_NAME)


def test_without_keys_nobody_is_asked(watched):
    nowhere = AccessKeys(None)
    for keys, given in ((watched.keys, b""), (nowhere, b"oubli_00000000_" + b"0" * 64)):
        assert (keys.asked_for, keys.grants(given)) == (False, None)
    assert nowhere.look_at == float("inf")


def test_a_key_opens_what_its_scopes_say_and_a_new_one_is_known_before_the_next_look_is_due(watched):
    _, reading = watched.make("read")
    assert watched.grants_after(reading) == {"read"}
    assert watched.keys.asked_for
    _, admin = watched.make("admin")
    assert watched.keys.grants(admin) is None  # the file was looked at just now
    watched.seconds += keys_module.LEAST_BETWEEN_LOOKS
    assert watched.keys.grants(admin) == ALL_SCOPES
    revoke_key(watched.path, admin.split(b"_")[1].decode())
    assert watched.keys.grants(admin) == ALL_SCOPES
    assert watched.grants_after(admin) is None


def test_unknown_keys_do_not_have_the_file_read_again(watched, monkeypatch):
    looks = []
    monkeypatch.setattr(keys_module, "_version_of", lambda path: looks.append(path))
    for _ in range(100):
        assert watched.keys.grants(b"unknown") is None
        watched.seconds += keys_module.LEAST_BETWEEN_LOOKS / 10
    assert 5 <= len(looks) <= 11


def test_what_is_no_key_opens_nothing(watched):
    key_id, text = watched.make("read")
    other_id, other = watched.make("read")
    watched.wait()
    secret = text.rpartition(b"_")[2]
    prefix = b"oubli_" + key_id.encode() + b"_"
    stolen = watched.path.read_text().partition('"secret_sha256": "')[2][:64].encode()
    for given in (
        *(b"", b"_", b"__", b"\xff" * 80, bytes(32), b"oubli" + secret, b"oubli__" + secret),
        *(text[:-1], text + b"0", text.upper(), text + b" ", b"x" + text, prefix, prefix + stolen),
        b"oubli_" + other_id.encode() + b"_" + secret,
        b"other_" + key_id.encode() + b"_" + secret,
    ):
        assert watched.keys.grants(given) is None, given
    assert watched.keys.grants(text) == watched.keys.grants(other) == {"read"}


def test_a_file_that_could_not_be_opened_is_read_again(watched, monkeypatch, caplog):
    _, text = watched.make("read")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refused)
        for _ in range(3):
            assert watched.grants_after(text) is None
            assert watched.keys.asked_for
    assert (caplog.text.count("cannot be read"), watched.grants_after(text)) == (1, {"read"})


def refused(path):
    raise OSError(errno.EMFILE, "Too many open files")


def test_the_epoch_grows_when_something_has_changed(watched):
    def look():
        watched.wait()
        assert watched.keys.look_at <= watched.seconds
        watched.keys.look()
        return watched.keys.epoch

    empty = look()
    assert look() == empty
    watched.make("read", expires_ms=NOW + 1000)
    key_id, _ = watched.make("read", expires_ms=NOW + 2000)
    epochs = [empty]
    for watched.now in (NOW, NOW + 1000, NOW + 2000):  # made, one has ended, both have
        epochs.append(look())
        assert look() == epochs[-1] > epochs[-2]
    watched.now = NOW + 10**9
    assert look() == epochs[-1]
    revoke_key(watched.path, key_id)
    assert look() > epochs[-1]


def test_a_damaged_file_turns_everybody_away_and_says_so(watched, caplog):
    _, text = watched.make("admin")
    assert watched.grants_after(text) is not None
    watched.path.write_bytes(b"{")
    assert watched.grants_after(text) is None
    assert watched.keys.asked_for
    assert watched.grants_after(text) is None
    assert caplog.text.count("is damaged") == 1
    assert str(watched.path.parent) not in caplog.text
    later = Watched(watched.path)
    assert later.keys.asked_for, "from the start"
    later.path.unlink()
    _, text = later.make("read")
    assert later.grants_after(text) == {"read"}


@pytest.mark.parametrize("lost", ["revoked", "gone", "emptied"])
def test_without_its_keys_a_directory_still_asks_for_one(watched, caplog, lost):
    key_id, text = watched.make("read")
    assert watched.grants_after(text) is not None
    if lost == "revoked":
        revoke_key(watched.path, key_id)
    elif lost == "gone":
        watched.path.unlink()
    else:
        keys_module.write_keys(watched.path, ())
    assert watched.grants_after(text) is None
    assert watched.keys.asked_for
    assert ("no keys any more" in caplog.text) == (lost != "revoked")
    caplog.clear()
    later = Watched(watched.path)  # a server that starts then
    assert (later.keys.asked_for or lost == "emptied", later.keys.grants(text)) == (True, None)
    for word in (FILE_NAME, "is gone", "restore it from a backup", "oubli keys create", MARK_NAME):
        assert (word in caplog.text) == (lost == "gone")
    assert str(watched.path.parent) not in caplog.text
    _, other = later.make("write")
    assert later.grants_after(other) == {"write"}


def test_keys_of_an_earlier_version_get_the_mark(watched):
    watched.make("read")
    mark = watched.path.with_name(MARK_NAME)
    mark.unlink()
    assert Watched(watched.path).keys.asked_for
    assert mark.stat().st_mode & 0o777 == 0o600
    watched.path.unlink()
    assert Watched(watched.path).keys.asked_for
    mark.unlink()
    assert not Watched(watched.path).keys.asked_for, "who removes both wants a server that asks for no key"


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
    assert secret not in path.read_text() + repr(key)
    assert (key.scopes, read_keys(path), path.stat().st_mode & 0o777) == (("predict", "write"), (key,), 0o600)
    assert make(path)[1] != make(path)[1]


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
    # The time of the first stays.
    assert (read_keys(path), revoke_key(path, key.id), revoke_key(path, "0" * 8)) == ((revoked, other), revoked, None)


ODD = (7, "SECRET", "read", "00", "2030-01-01", [], ["SECRET"], [["read"]])


def test_a_damaged_file_is_no_file_without_keys(path):
    make(path)
    whole = json.loads(path.read_text())
    (key,) = whole["keys"]
    damaged = [{name: value for name, value in key.items() if name != lacking} for lacking in key]
    damaged += [{**key, name: odd} for name, odd in product([*key, "more"], ODD) if name != "name"]
    contents = [{**whole, "keys": keys} for keys in ([key, key], 5, ["SECRET"], *([one] for one in damaged))]
    for content in (*contents, {name: value for name, value in whole.items() if name != "keys"}):
        path.write_text(json.dumps(content))
        with pytest.raises(KeyFileError, match="is damaged") as caught:
            read_keys(path)
        assert "SECRET" not in str(caught.value)


def test_what_is_no_key_file_at_all_is_not_written_to(path):
    for content in (b"", b"{", b"[]", b"null", b"\xff", bytes(100), b'{"format": "1", "keys": []}'):
        path.write_bytes(content)
        for touch in (read_keys, make):
            with pytest.raises(KeyFileError):
                touch(path)
        assert path.read_bytes() == content
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

    monkeypatch.setattr("oubli.app.access.keys.os.fsync", refused)
    with pytest.raises(OSError, match="Too many"):
        keys_module.write_keys(path, ())
    assert path.read_bytes() == before
    assert {found.name for found in path.parent.iterdir()} == {FILE_NAME, MARK_NAME}
