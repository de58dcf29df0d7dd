import base64
import errno
import hmac
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.errors import StartError
from oubli.app.ledger.entries import keyed_hash, sign
from oubli.app.ledger.keys import HASHING, SIGNING, HashingKey, KeyNames, LedgerKeys, files_of, is_signed

START = 1_763_700_000_000


def open_keys(directory: Path, now: int = START) -> LedgerKeys:
    return LedgerKeys(directory, lambda: now)


@pytest.fixture
def keys(tmp_path: Path) -> LedgerKeys:
    return open_keys(tmp_path)


def test_are_made_once_and_for_their_owner_only(tmp_path):
    directory = tmp_path / "deep" / "keys"
    first, again = open_keys(directory), open_keys(directory, START + 5)
    made = (first.signing.id, START, first.hashing, first.positions)
    assert (again.signing.id, again.signing.created_ms, again.hashing, again.positions) == made
    assert directory.stat().st_mode & 0o777 == 0o700
    files = sorted(directory.iterdir())
    names = [f"hashing-{first.hashing[0].id}.key", f"positions-{first.positions.id}.key"]
    assert [file.name for file in files] == [*names, f"signing-{first.signing.id}.pem"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert sign(first.signing, b"x") == sign(again.signing, b"x")
    private = load_pem_private_key(files[-1].read_bytes(), None)  # as others read it
    assert isinstance(private, Ed25519PrivateKey)
    assert private.public_key().public_bytes_raw() == first.signing.public


def test_files_and_directory_are_flushed_before_a_key_is_used(tmp_path, monkeypatch):
    flushed: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        flushed.append("file" if is_file else str(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))  # noqa: PTH115
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    keys = tmp_path / "deep" / "keys"
    open_keys(keys)
    # From the top down: that `tmp_path` is in its parent, `deep` in `tmp_path`, `keys` in `deep`.
    made = [str(tmp_path.parent), str(tmp_path), str(keys.parent)]
    assert flushed == [*made, *["file", str(keys)] * 3]
    flushed.clear()
    open_keys(keys)
    assert flushed == [str(keys.parent)], "anyone who made it may have been killed before it was flushed"


def test_keys_are_missing_unless_they_were_destroyed_on_purpose(keys, tmp_path):
    keys.rotate("signing")
    keys.rotate("hashing")
    named = KeyNames({key["key_id"] for key in keys.public_keys()}, {key.id for key in keys.hashing})
    keys.destroy_hashing_key(keys.hashing[1].id, None)
    assert not LedgerKeys(tmp_path, complete=False).missing(named)
    before = sorted(tmp_path.iterdir())
    for path in [*files_of(tmp_path, SIGNING), *files_of(tmp_path, HASHING)]:
        content = path.read_bytes()
        path.unlink()
        found = LedgerKeys(tmp_path, complete=False)
        assert found.missing(named).files() == [path.name]
        with pytest.raises(StartError, match=rf"{path.name}.*--key-dir.*--accept-missing keys"):
            found.require(named)
        path.write_bytes(content)
        path.chmod(0o600)
    assert sorted(tmp_path.iterdir()) == before, "nothing was made in their place"
    assert LedgerKeys(tmp_path / "nowhere", complete=False).missing(named) == named
    assert not (tmp_path / "nowhere").exists()


def test_rotated_signing_keys_overlap(keys, tmp_path):
    old, signature = keys.signing, sign(keys.signing, b"receipt")
    new = keys.rotate("signing")
    for known in (keys, open_keys(tmp_path)):
        assert known.signing.id == new != old.id
        assert known.signer(old.id).id == new, "a retired key signs nothing"
        listed = known.public_keys()
        told = [(key["key_id"], key["status"], key["retired_at"] is None) for key in listed]
        assert told == [(new, "current", True), (old.id, "retired", False)]
        public = base64.b64decode(listed[1]["public_key"])
        Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature), b"receipt")
        signed = ((signature, b"receipt"), (signature, b"another"), ("no base64!", b"receipt"))
        assert [is_signed(public, *one) for one in signed] == [True, False, False]
    texts = {path.name: path.read_text() for path in files_of(tmp_path, SIGNING)}
    assert "PRIVATE" not in texts[f"signing-{old.id}.pem"]
    with pytest.raises(ValueError, match="retired"):
        sign(open_keys(tmp_path)._signing[1], b"x")


@given(st.binary(max_size=200))
def test_hashes_are_half_of_an_hmac(content):
    key = HashingKey.new(START)
    for known in (key, key.retired(START + 1)):
        assert keyed_hash(known, content) == hmac.digest(key.secret, content, "sha256")[:16].hex()


def test_rotated_hashing_keys_find_old_hashes(keys, tmp_path):
    before = keyed_hash(keys.hashing[0], b"person")
    keys.rotate("hashing")
    keys.rotate("hashing")
    again = open_keys(tmp_path).hashing
    found = [(key.id, key.retired_ms is None, keyed_hash(key, b"person") == before) for key in again]
    new, middle, old = (key.id for key in keys.hashing)
    assert found == [(new, True, False), (middle, False, False), (old, False, True)]


@pytest.mark.parametrize("kind", ["signing", "hashing"])
def test_a_rotation_that_was_cut_short_is_finished(keys, kind, tmp_path):
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    new = keys.rotate(kind)
    for path, content in files.items():
        path.write_bytes(content)
    again = open_keys(tmp_path)
    assert new == (again.signing.id if kind == "signing" else again.hashing[0].id)
    names = [key["status"] for key in again.public_keys()]
    retired = [key.retired_ms is not None for key in again.hashing]
    expected = (["current", "retired"], [False]) if kind == "signing" else (["current"], [False, True])
    assert (names, retired) == expected
    assert open_keys(tmp_path).public_keys() == again.public_keys()


def test_a_key_is_destroyed_only_when_no_snapshot_of_its_time_is_left(keys, tmp_path):
    old = keys.hashing[0].id
    for name, why in ((old, "in use"), ("0" * 16, "no hashing key")):
        with pytest.raises(StartError, match=why):
            keys.destroy_hashing_key(name, None)
    keys.rotate("hashing", START + 1000)
    retired = keys.hashing[1].retired_ms
    assert retired == START + 1000
    for since in (START, retired):
        with pytest.raises(StartError, match="snapshot"):
            keys.destroy_hashing_key(old, since)
    assert len(files_of(tmp_path, HASHING)) == 2
    with next(path for path in files_of(tmp_path, HASHING) if old in path.name).open("rb") as file:
        secret = bytes.fromhex(file.read().split()[-1].decode())
        keys.destroy_hashing_key(old, retired + 1)
        file.seek(0)
        assert secret.hex().encode() not in file.read(), "the old blocks were overwritten"
    assert [key.id for key in keys.hashing] == [key.id for key in open_keys(tmp_path).hashing] != [old]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_touch_is_refused(mode, tmp_path):
    open_keys(tmp_path)
    path = next(tmp_path.iterdir())
    path.chmod(mode)
    with pytest.raises(StartError, match="chmod 600") as caught:
        open_keys(tmp_path)
    assert path.name in str(caught.value)
    path.chmod(0o400)
    open_keys(tmp_path)


@pytest.mark.parametrize("kind", ["signing", "hashing", "positions"])
def test_a_flipped_byte_in_a_key_file_is_refused(kind: str, tmp_path: Path) -> None:
    """Whatever it makes of the file: the message names the file and the remedy."""
    open_keys(tmp_path)
    (path,) = files_of(tmp_path, kind)
    content, n_refused = path.read_bytes(), 0
    for damaged in (content[:-20], b""):
        path.write_bytes(damaged)
        with pytest.raises(StartError, match="damaged"):
            open_keys(tmp_path)
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            open_keys(tmp_path)
        except StartError as error:
            n_refused += str(error) == f"the key file {path} is damaged: restore it from a backup"
    assert n_refused > 0.6 * len(content), "what is left are other times, and capitals in hexadecimal digits"
    path.write_bytes(content)
    path.rename(path.with_name(f"{kind}-{'0' * 16}{path.suffix}"))  # the name of another key
    with pytest.raises(StartError, match="damaged"):
        open_keys(tmp_path)


def test_a_key_directory_that_cannot_be_used_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the remedy would be to continue without its keys."""
    LedgerKeys(tmp_path / "keys")
    monkeypatch.setattr(Path, "iterdir", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(StartError, match=r"key directory .*keys cannot be used \(Permission denied\)"):
        LedgerKeys(tmp_path / "keys", complete=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="--key-dir"):
        open_keys(tmp_path / "file" / "keys")
