"""HTTP by hand, for servers that break off."""

import socket


def received(connection: socket.socket) -> bytes:
    """Return a whole message with a length; an empty one when the other side has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(lines.get(b"content-length", 0)):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
