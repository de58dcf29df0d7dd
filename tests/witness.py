"""A witness of logs over HTTP (c2sp.org/tlog-witness), for tests of programs that ask one.

It keeps what it has seen in memory, as long as the object lives: stop `witnessing` and start it again with the same
object for a witness that was away.
"""

import base64
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oubli.verifier.checkpoints import check_signature, read_checkpoint
from oubli.verifier.merkle import EMPTY_ROOT, ProofError, check_consistency
from oubli.verifier.notes import COSIGNATURE, FailedError, VerifierKey, cosigned_message, decode, key_of


class LocalWitness:
    """Cosigns checkpoints of some logs.

    Attributes
    ----------
    key
        The public key, as policies take it.
    seen
        The last cosigned checkpoint of each log, with its cosignature, by origin.
    port
        Where it listens; 0 before the first time.
    """

    def __init__(self, name: str, *logs: VerifierKey) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.key = key_of(name, COSIGNATURE, self._private.public_key().public_bytes_raw())
        self._logs = logs
        self._lock = threading.Lock()
        self.seen: dict[str, str] = {}
        self.port = 0

    def cosign(self, text: str, at: int) -> str:
        """Return the line of a cosignature."""
        signature = self._private.sign(cosigned_message(text, at))
        encoded = base64.b64encode(self.key.id + at.to_bytes(8, "big") + signature).decode("ascii")
        return f"— {self.key.name} {encoded}\n"

    def add_checkpoint(self, body: bytes) -> tuple[int, str]:
        """Answer `POST /add-checkpoint`: a status, and the cosignature or the size that was seen last."""
        try:
            head, _, note = body.decode().partition("\n\n")
            first, *lines = head.split("\n")
            old, proof = int(first.removeprefix("old ")), [decode(line) for line in lines]
            checkpoint = read_checkpoint(note)
        except (ValueError, FailedError):
            return 400, "no request of c2sp.org/tlog-witness"
        try:
            check_signature(checkpoint, self._logs)
        except FailedError as error:
            return (404 if error.rule == "log" else 403), str(error)
        with self._lock:
            last = read_checkpoint(self.seen[checkpoint.origin]) if checkpoint.origin in self.seen else None
            size, root = (0, EMPTY_ROOT) if last is None else (last.size, last.root)
            if old != size:
                return 409, f"{size}\n"
            try:
                check_consistency(size, checkpoint.size, proof, root, checkpoint.root)
            except ProofError:
                return 422, "inconsistent"
            line = self.cosign(checkpoint.note.text, int(time.time()))
            self.seen[checkpoint.origin] = note + line
        return 200, line

    def checkpoint(self, origin_hash: str) -> tuple[int, str]:
        """Answer `GET /<SHA-256 of the origin>/checkpoint`."""
        for origin, note in self.seen.items():
            if hashlib.sha256(origin.encode()).hexdigest() == origin_hash:
                return 200, note
        return 404, "nothing was cosigned for this log"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, witness: LocalWitness, *arguments: object) -> None:
        self.witness = witness
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(*(self.witness.add_checkpoint(body) if self.path == "/add-checkpoint" else (404, "")))

    def do_GET(self) -> None:
        self._answer(*self.witness.checkpoint(self.path.split("/")[1]))

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/x.tlog.size" if status == 409 else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def witnessing(witness: LocalWitness) -> Iterator[LocalWitness]:
    """Serve a witness until the end of the block, on the same port each time."""
    with ThreadingHTTPServer(("127.0.0.1", witness.port), partial(_Handler, witness)) as server:
        server.daemon_threads = True
        witness.port = int(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield witness
        finally:
            server.shutdown()
            thread.join()
