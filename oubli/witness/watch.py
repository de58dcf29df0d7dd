"""Watches the log of a server: each time it must go on from what was seen the last time, which is kept in a file."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from oubli.verifier.checkpoints import Checkpoint, check_checkpoint, read_checkpoint
from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.merkle import ProofError, check_consistency
from oubli.verifier.notes import decode_or_fail
from oubli.verifier.policies import Policy
from oubli.witness.files import write_whole

_SECONDS = 30.0
_LARGEST = 1024 * 1024


class Watch:
    """Compares the log of a server with what was seen before.

    Parameters
    ----------
    url
        Of the server.
    policy
        Whom to trust.
    kept
        File of the last checkpoint; made at the first look.
    key
        A key with the scope `read`, when the server asks for one.
    """

    def __init__(self, url: str, policy: Policy, kept: Path, key: str | None = None) -> None:
        self._url = urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise UncheckableError("the URL must begin with http:// or https://")
        self._policy = policy
        self._kept = kept
        self._key = key

    def look(self) -> Checkpoint:
        """Compare once, and keep the checkpoint when it holds.

        Raises
        ------
        FailedError
            When the log does not go on from what was seen before, or is not signed.
        UncheckableError
            When the server or the file cannot be read.
        """
        text = self._ask("/log/checkpoint")
        now = read_checkpoint(text)
        check_checkpoint(now, self._policy)
        before = self._before()
        if before is not None:
            self._compare(before, now)
        try:
            write_whole(self._kept, text.encode("utf-8"))
        except OSError as error:
            raise UncheckableError(f"{self._kept} cannot be written: {error.strerror}") from None
        return now

    def _before(self) -> Checkpoint | None:
        try:
            return read_checkpoint(self._kept.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, FailedError):
            raise UncheckableError(f"{self._kept} holds no checkpoint") from None

    def _compare(self, before: Checkpoint, now: Checkpoint) -> None:
        if before.origin != now.origin:
            raise FailedError(
                "log",
                f"the server has another log, {now.origin}: it went on without entries that were lost. Look at the "
                f"entry that begins it, then remove {self._kept}",
            )
        if now.size < before.size:
            raise FailedError("truncated", f"the log has {now.size} entries, and had {before.size}")
        proof: list[bytes] = []
        if 0 < before.size < now.size:
            proof = self._proof(before.size, now.size)
        try:
            check_consistency(before.size, now.size, proof, before.root, now.root)
        except ProofError:
            raise FailedError(
                "consistency", f"the log of {now.size} entries does not go on from that of {before.size}"
            ) from None

    def _proof(self, old: int, new: int) -> list[bytes]:
        try:
            content = json.loads(self._ask(f"/ledger/consistency?from={old}&to={new}"))
            lines = content["proof"]
        except (ValueError, KeyError, TypeError):
            raise FailedError("format", "the server's proof is none") from None
        return [decode_or_fail(str(line), "a hash of the proof") for line in lines]

    def _ask(self, path: str) -> str:
        host, port = str(self._url.hostname), self._url.port
        connection: http.client.HTTPConnection
        if self._url.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
        headers = {} if self._key is None else {"X-API-Key": self._key}
        try:
            connection.request("GET", self._url.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            body = answer.read(_LARGEST)
        except (OSError, http.client.HTTPException):
            raise UncheckableError("the server cannot be reached: start it, or correct --url") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise UncheckableError(f"the server answered {answer.status} to GET {path.partition('?')[0]}")
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            raise FailedError("format", "the server's answer is no text") from None
