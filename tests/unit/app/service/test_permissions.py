"""A file that this user may not read is told as that: not as damage, and not with the advice to remove something."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from oubli.app.access.keys import FILE_NAME, AccessKeys, create_key
from oubli.app.errors import StartError
from oubli.app.service.build import open_directory
from oubli.app.settings import Settings
from tests.unit.app.support import make_service, samples, served

NOBODY = 65534
ADVICE = ("damaged:", "restore", "remove")


@contextmanager
def not_root() -> Iterator[None]:
    """Anyone who is root may read everything."""
    user = os.geteuid()
    os.seteuid(user or NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory that a server has left, of a user without privileges."""
    with tempfile.TemporaryDirectory(prefix="oubli-permissions-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with served(make_service(directory=folder / "data")) as client:
            assert client.post("/samples", json=samples(2)).status_code == client.post("/snapshot").status_code == 201
            assert client.post("/samples", json=samples(2, "m")).status_code == 201
        for path in (folder / "data", *(folder / "data").rglob("*")):
            give_away(path)
        yield folder / "data"


def give_away(path: Path) -> None:
    """Have a file belong to the user who reads it."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def start(directory: Path) -> None:
    with closing(open_directory(directory)) as opened:
        opened.recover(opened.snapshots.recover())  # type: ignore[union-attr]


def test_no_permission_is_told_as_damage(directory: Path) -> None:
    with not_root():
        start(directory)
        paths = sorted(path for path in directory.rglob("*") if path.name not in ("lock", "journal-reserve"))
        assert len(paths) >= 8
        newest = max(directory.glob("snapshot-*"))
        for path in (directory, *paths):
            mode = path.stat().st_mode
            path.chmod(0o300 if path == directory else 0)
            is_older = path.name.startswith("snapshot-") and path != newest
            try:
                start(directory)
            except StartError as error:
                text = str(error)
                assert "ermission" in text or "owner" in text, (path, text)
                assert not [word for word in (*ADVICE, "Restore", "missing", "accept") if word in text], (path, text)
            else:
                assert is_older or path.name.startswith("journal-0"), f"{path} is not needed"
            finally:
                path.chmod(mode)
        start(directory)


def test_access_keys_that_may_not_be_read_are_not_told_as_damaged(directory, caplog):
    path = directory / FILE_NAME
    create_key(path, name="shop", scopes=["predict"], expires_ms=None)
    path.chmod(0)
    give_away(path)
    with not_root():
        with pytest.raises(StartError) as caught:
            Settings(data_dir=directory).require_servable()
        assert AccessKeys(path).asked_for
    for text in (str(caught.value), caplog.text):
        assert "cannot be read: permission denied for the user that runs the server" in text
        assert "see to its owner and its permissions" in text
        assert not [word for word in (*ADVICE, "backup") if word in text]
