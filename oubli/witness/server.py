"""A witness over HTTP."""

from __future__ import annotations

import http.server
import re

from oubli.witness.witness import Answer, Witness

_LARGEST_BODY = 128 * 1024
_SECONDS = 15.0  # that a client may take
_CHECKPOINT = re.compile(r"/([0-9a-f]{64})/checkpoint")


class WitnessServer(http.server.ThreadingHTTPServer):
    """Serves a witness: `serve_forever` does so until `shutdown`.

    Parameters
    ----------
    address
        Host and port to listen on; port 0 takes a free one.
    witness
        That is served.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], witness: Witness) -> None:
        super().__init__(address, _Handler)
        self.witness = witness

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that have gone."""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])


class _Handler(http.server.BaseHTTPRequestHandler):
    server: WitnessServer
    timeout = _SECONDS
    wbufsize = -1  # head and body are sent together
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take a checkpoint."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            self.close_connection = True
            self._answer(Answer(413, "send Content-Length, and at most 128 KiB\n"))
            return
        body = self.rfile.read(int(length))
        if self.path != "/add-checkpoint":
            self._answer(Answer(404, "a witness takes POST /add-checkpoint\n"))
            return
        self._answer(self.server.witness.add_checkpoint(body))

    def do_GET(self) -> None:
        """Answer the last checkpoint of a log."""
        found = _CHECKPOINT.fullmatch(self.path)
        if found is None:
            self._answer(Answer(404, "a witness answers GET /<SHA-256 of the origin>/checkpoint\n"))
            return
        self._answer(self.server.witness.checkpoint(found[1]))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: there is no need to keep who asks."""

    def _answer(self, answer: Answer) -> None:
        body = answer.body.encode("utf-8")
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
