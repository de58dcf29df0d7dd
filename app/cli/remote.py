"""A running server, as the command line asks it: a few requests with what Python brings along."""

import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from oubli.app.errors import StartError
from oubli.app.storage.directory import flush_directory

_TIMEOUT_SECONDS = 600  # a snapshot of a large model is long work


class Server:
    """A server's address and the key to it.

    Raises
    ------
    StartError
        From every method: when the server cannot be reached, or its answer is an error.
    """

    def __init__(self, url: str, key_file: Path | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise StartError("the server's address must begin with http:// or https://")
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if key_file is not None:
            try:
                self._headers["Authorization"] = f"Bearer {key_file.read_text(encoding='ascii').strip()}"
            except (OSError, UnicodeDecodeError):
                raise StartError(f"the key file {key_file} cannot be read") from None

    def post(self, path: str) -> dict[str, Any]:
        """POST an empty object and return the answer."""
        with self._open("POST", path, b"{}") as answer:
            result: dict[str, Any] = json.load(answer)
        return result

    def download(self, path: str, target: Path) -> int:
        """GET a file and return its size; the target is written only when all of it has arrived."""
        partial = target.with_name(target.name + ".part")
        try:
            # It holds samples: for its owner's eyes only, from the first byte on.
            partial.unlink(missing_ok=True)
            with self._open("GET", path, None) as answer, os.fdopen(_private(partial), "wb") as file:
                shutil.copyfileobj(answer, file, 1024 * 1024)
                file.flush()
                os.fsync(file.fileno())
                expected = answer.headers.get("Content-Length")
            if expected is not None and int(expected) != partial.stat().st_size:
                raise StartError(f"the download from {self._url}{path} was cut short: try again")
            partial.replace(target)
            flush_directory(target.parent)
        finally:
            partial.unlink(missing_ok=True)
        return target.stat().st_size

    def _open(self, method: str, path: str, body: bytes | None) -> Any:
        # Only http and https get past __init__.
        request = urllib.request.Request(  # noqa: S310
            self._url + path, data=body, headers=self._headers, method=method
        )
        try:
            return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)  # noqa: S310
        except urllib.error.HTTPError as error:
            with error:
                raise StartError(f"{self._url}{path} answered {error.code}: {_detail(error)}") from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise StartError(f"no server answers at {self._url} ({reason}): start it, or name it with --url") from None


def _private(path: Path) -> int:
    """Create a file that only its owner can read, and return its descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _detail(error: urllib.error.HTTPError) -> str:
    """The text of a problem document, or the status's own words."""
    try:
        document = json.load(error)
        return str(document.get("detail") or document["title"])
    except (ValueError, KeyError, AttributeError):
        return str(error.reason)
