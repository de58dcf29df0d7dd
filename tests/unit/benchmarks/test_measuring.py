"""What is measured is what is said: peers, data, rounds that leave a model as it was, and clients of servers."""

from __future__ import annotations

import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_audit, bench_sets, bench_v2
from benchmarks.serving.client import RefusedError, load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import adult
from oubli.core import DynamicForestClassifier
from oubli.verifier import FailedError
from tests.unit.app.http.routes.test_inference import outputs
from tests.unit.app.support import forest, make_service, served

# --- models of others, and sets


# --- our models


# --- servers


def test_what_a_server_gives_out_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_audit, "PAGE", 25)
    assert bench_audit.write_files(forest(60)) == 3
    assert bench_audit.audit().total > 0
    assert bench_audit.audit(2).total > 0
    export = bench_audit.EXPORT.read_text()
    bench_audit.EXPORT.write_text(export.replace('"yes"', '"no"', 1))
    with pytest.raises(FailedError):
        bench_audit.audit()


def test_a_small_set_is_measured() -> None:
    rows = bench_sets.measure(300)
    assert {row.cells[0] for row in rows} == {"300"}
    assert len({row.cells[1] for row in rows}) == len(rows)
    assert all(row.figure > 0 for row in rows)
    for ask in (bench_sets.log, bench_sets.signed, bench_sets.nonces):
        title, text, table = ask(300)
        assert title
        assert text
        assert len(table.splitlines()) > 3


def test_requests_of_the_inference_protocol_are_such_as_a_server_answers() -> None:
    X, y = bench_v2.as_numbers(adult())
    model, other = (DynamicForestClassifier(n_estimators=3, random_state=0).fit(X[:200], y[:200]) for _ in range(2))
    with served(make_service(model), model_name="adult") as client:
        for n_rows in (1, 100):
            head, _, body = bench_v2.requests_of(X, n_rows, 2)[1].partition(b"\r\n\r\n")
            assert head.startswith(b"POST %b HTTP/1.1\r\n" % bench_v2.TARGET.encode())
            answer = client.post(bench_v2.TARGET, content=body)
            assert np.array_equal(outputs(answer)["probabilities"], other.predict_proba(X[n_rows : 2 * n_rows]))


ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@contextmanager
def answering(answer: bytes, stops_at: int = 0) -> Iterator[int]:
    """A server that answers each piece that it receives, in two pieces; one of them after a second."""
    count = itertools.count(1)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self.request.recv(65536):
                if next(count) == stops_at:
                    time.sleep(1)
                self.request.sendall(answer[:20])
                self.request.sendall(answer[20:])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_the_client_takes_whole_answers_and_measures_no_refusals() -> None:
    with answering(ANSWER) as port:
        measured = load(port, [b"one", b"two"], 1, 50)
        assert measured.rate > 0
        assert 0 < measured.p50 <= measured.p99
    requests = itertools.repeat(b"GET / HTTP/1.1\r\n\r\n")
    with answering(ANSWER.replace(b"200 OK", b"409 Conflict")) as port:
        with pytest.raises(RefusedError, match="409 Conflict"):
            load(port, [b"one"], 1, 5)
        with pytest.raises(RefusedError):
            list(paced(port, requests, 50, 3, 1, 1))


def test_a_server_that_stands_still_delays_all_that_is_due_meanwhile() -> None:
    with answering(ANSWER, stops_at=30) as port:
        told = list(paced(port, itertools.repeat(b"GET / HTTP/1.1\r\n\r\n"), 50, 3, 1, 1))
    assert max(one.longest for one in told) >= 1
    # Some fifty requests were due in that second, and each of them waited.
    assert max(one.p99 for one in told) > 0.3
    assert all(one.p50 <= one.p99 <= one.longest for one in told)
