"""A body that is sent while its answer is read: what a stream of any size needs of a client."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_TIMEOUT = 600.0  # seconds


@contextmanager
def exchange(
    port: int, path: str, pieces: Iterable[bytes], content_type: str, accept: str
) -> Iterator[http.client.HTTPResponse]:
    """POST the pieces in chunks, from a thread; give the answer, which is good, until the end of the block."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    connection.connect()
    line = connection.sock

    def send() -> None:
        with suppress(OSError):  # the server has closed the connection; its answer says why
            for piece in filter(None, pieces):  # an empty one would be the end
                line.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            line.sendall(b"0\r\n\r\n")

    sender = threading.Thread(target=send, daemon=True)
    try:
        connection.putrequest("POST", path)
        for name, value in (("Content-Type", content_type), ("Accept", accept), ("Transfer-Encoding", "chunked")):
            connection.putheader(name, value)
        connection.endheaders()
        sender.start()
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path} answered {answer.status}: {answer.read()[:500]!r}")
        yield answer
    finally:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)  # wakes the sender, too
        connection.close()
        sender.join()
