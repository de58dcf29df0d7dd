"""TLS on a real server, and health checks from its first moment to its last."""

import http.client
import json
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.process.project.test_docker import check_health
from tests.serving import Running, free_port, serving, small_table, wait_for
from tests.unit.app.outgoing.certificates import authority, certificate

HEADERS = {"Content-Type": "application/json"}
TLS = ("--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem")
PREDICT = json.dumps({"instances": [[3, "a"]]})


def make_certificate(folder: Path) -> None:
    """Write a certificate with that of its authority, and its key."""
    issuer = authority()
    pem = certificate(folder, issuer, "127.0.0.1")[0].read_bytes() + issuer.pem.encode()
    (folder / "cert.pem").write_bytes(pem)


def connect(port: int, certificate: bytes) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cadata=certificate.decode())
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)


class Tls(Running):
    """A server that is asked by TLS."""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        with closing(connect(self.port, (self.folder / "cert.pem").read_bytes())) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), {**HEADERS, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    make_certificate(tmp_path)
    flags = (*small_table(tmp_path), "--ephemeral")
    with serving(*flags, *TLS, cwd=tmp_path, running=Tls, TEST_FIXED='{"head_timeout": 2}') as running:
        yield running


def test_tls_with_a_certificate_that_is_renewed(server: Running) -> None:
    folder = server.folder
    first = (folder / "cert.pem").read_bytes()
    assert f"https://127.0.0.1:{server.port}" in server.output
    with closing(connect(server.port, first)) as kept:
        for _ in range(3):  # the second request has the head of the first: the fast path
            kept.request("POST", "/predict", PREDICT, HEADERS)
            answer = kept.getresponse()
            assert (answer.status, len(json.loads(answer.read())["predictions"])) == (200, 1)
        sample = {"samples": [{"id": "t", "features": [1, "a"], "label": "yes"}]}
        assert server.ask("POST", "/samples", sample, Origin=f"https://127.0.0.1:{server.port}")[0] == 201
        assert server.ask("DELETE", "/samples/t", Origin=f"http://127.0.0.1:{server.port}")[0] == 403

        (folder / "key.pem").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "nothing was reloaded: tls_cert_file" in server.output, "a refusal")
        assert server.get("/model")[0] == 200

        make_certificate(folder)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded certificates, keys and log level" in server.output, "another certificate")
        assert server.get("/model")[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError), closing(connect(server.port, first)) as refused:
            refused.connect()
        kept.request("GET", "/healthz")
        assert kept.getresponse().status == 200, "connections continue"
    assert server.stop() == 0


def test_the_health_check_of_the_image_speaks_tls(server: Running) -> None:
    assert [check_health(port) for port in (server.port, free_port())] == [0, 1]


def test_a_handshake_that_does_not_come_is_ended(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
        started = time.monotonic()
        assert silent.recv(1) == b""
        assert 1 < time.monotonic() - started < 20


@pytest.mark.parametrize(("n_flags", "says"), [(4, "tls_cert_file"), (2, "belong together")])
def test_a_certificate_that_cannot_be_used_is_refused_at_once(tmp_path: Path, n_flags: int, says: str) -> None:
    for name, text in (("cert.pem", "no certificate"), ("key.pem", "no key"), ("data.csv", "a,b\n1,2\n")):
        (tmp_path / name).write_text(text)
    refused = pytest.raises(AssertionError, match=f"(?s)the server ended with 2.*{says}")
    with refused, serving("--data", "data.csv", "--target", "b", *TLS[:n_flags], cwd=tmp_path):
        pass
