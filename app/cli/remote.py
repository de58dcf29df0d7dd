"""A running server, as the command line asks it: a few requests with what Python brings along."""

import http.client
import json
import os
import shutil
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oubli.app.errors import StartError
from oubli.app.storage.directory import flush_directory

_TIMEOUT_SECONDS = 600  # a snapshot of a large model is long work


class RefusalError(StartError):
    """A problem that the server has answered with.

    Parameters
    ----------
    problem
        Its document.

    Attributes
    ----------
    detail, errors
        Of the problem; pairs of a JSON pointer and what is wrong there.
    """

    def __init__(self, problem: dict[str, Any]) -> None:
        self.detail = str(problem.get("detail") or problem.get("title") or "it does not say why")
        self.errors = [(str(one["pointer"]), str(one["detail"])) for one in problem.get("errors", ())]
        super().__init__(self.detail)


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

    def get(self, path: str) -> dict[str, Any]:
        """GET an object."""
        with self._open("GET", path, None) as answer:
            result: dict[str, Any] = json.load(answer)
        return result

    @contextmanager
    def exchange(
        self, path: str, pieces: Iterable[bytes], content_type: str, accept: str
    ) -> Iterator[http.client.HTTPResponse]:
        """POST a body of any length while its answer is read; the server takes no more than its answers are taken in.

        Parameters
        ----------
        path
            Of the route.
        pieces
            The body; made in a thread.
        content_type, accept
            Media types of body and answer.

        Raises
        ------
        RefusalError
            When the answer is a problem.
        """
        parts = urllib.parse.urlsplit(self._url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            raise self._no_answer(error) from None
        connection.auto_open = 0  # one connection, or none
        sender = None
        try:
            connection.putrequest("POST", parts.path + path)
            headers = {"Content-Type": content_type, "Accept": accept, "Transfer-Encoding": "chunked"}
            for name, value in {**self._headers, **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            sender = _Sender(connection, pieces)
            sender.start()
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise RefusalError(_problem_of(answer))
            yield answer
        except (OSError, http.client.HTTPException) as error:
            if sender is not None and sender.error is not None:
                raise sender.error from None
            if isinstance(error, OSError):
                raise self._no_answer(error) from None
            raise
        finally:
            connection.close()
            if sender is not None:
                sender.stop()

    def _no_answer(self, error: OSError) -> StartError:
        return StartError(f"no server answers at {self._url} ({error}): start it, or name it with --url")

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


class _Sender(threading.Thread):
    """Sends a body while its answer is read.

    Attributes
    ----------
    error
        What the pieces could not be made for.
    """

    def __init__(self, connection: http.client.HTTPConnection, pieces: Iterable[bytes]) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._connection = connection
        self._socket: socket.socket = connection.sock
        self._pieces = pieces

    def run(self) -> None:
        """Send all pieces, in chunks."""
        try:
            for piece in filter(None, self._pieces):  # an empty one would be the end
                self._socket.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            self._socket.sendall(b"0\r\n\r\n")
        except OSError:
            pass  # the server has closed the connection; its answer says why
        except BaseException as error:
            self.error = error
            self.stop(wait=False)

    def stop(self, *, wait: bool = True) -> None:
        """Send no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if wait:
            self.join()


def _problem_of(answer: http.client.HTTPResponse) -> dict[str, Any]:
    try:
        content = json.load(answer)
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {"detail": answer.reason}


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
