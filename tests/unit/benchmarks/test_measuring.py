"""What is measured is what is said: peers, data, rounds that leave a model as it was, and clients of servers."""

from __future__ import annotations

import itertools
import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numba import config

from benchmarks import bench_audit, bench_sets, bench_v2
from benchmarks.boosting.datasets import Split, load_split
from benchmarks.boosting.kinds import INCREMENTAL, Shape, refit
from benchmarks.boosting.peers import CATBOOST, LIGHTGBM, PEERS, Peer, coded
from benchmarks.operations import mutations, stream
from benchmarks.paper import accuracy_after_unlearning
from benchmarks.paper.sets import load_split as load_paper_split
from benchmarks.problems import load_problem
from benchmarks.serving import baselines, wrk
from benchmarks.serving.client import RefusedError, load
from benchmarks.serving.paced import paced
from benchmarks.serving.samples import adult, command, higgs_parquet
from oubli.core import DynamicForestClassifier
from oubli.verifier import FailedError
from tests.unit.app.http.routes.test_inference import outputs
from tests.unit.app.support import forest, make_service, served

SETS = ["adult", "pendigits", "abalone"]
compiles = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="takes minutes when interpreted")

# --- models of others, and sets


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("shape", [Shape(max_leaves=4, n_estimators=20), Shape(max_depth=2, n_estimators=20)], ids=str)
def test_peers_learn_trees_of_the_size_that_is_asked_for(data: Path, name: str, peer: Peer, shape: Shape) -> None:
    pytest.importorskip(peer.module)
    split = load_split(name, data, data)
    trained = peer.train(split, peer.view(split), shape)
    trained.fit()
    constant = split.y.mean() if split.task == "regression" else np.bincount(split.y).argmax()
    assert split.error(trained.predict()) < split.error(np.full(len(split.y_test), constant))
    if peer is LIGHTGBM:
        trees = trained.estimator.booster_.trees_to_dataframe()
        n_leaves = trees[trees["split_feature"].isna()].groupby("tree_index").size()
        assert n_leaves.max() == 4


def test_categories_are_coded_by_the_training_part() -> None:
    frame = pd.DataFrame({"a": pd.Series(["y", None, "x"], dtype=object), "b": [1.0, np.nan, 3.0]})
    asked = pd.DataFrame({"a": pd.Series(["z", "y"], dtype=object), "b": [0.0, 0.0]})
    split = Split("made", "binary", frame, np.array([0, 1, 0]), asked, np.array([0, 1]), ["a"])
    view = coded(split)
    np.testing.assert_array_equal(view.X, np.float32([[1, 1], [np.nan, np.nan], [0, 3]]))
    np.testing.assert_array_equal(view.X_test, np.float32([[np.nan, 0], [1, 0]]))
    assert CATBOOST.view(split).X["a"].tolist() == ["y", "", "x"]


def test_sets_have_codes_for_classes_and_a_test_part_of_their_own(data: Path) -> None:
    people, digits, abalone, encoded = (load_split(name, data, data) for name in (*SETS, "adult-one-hot"))
    assert (people.task, digits.task, abalone.task) == ("binary", "multiclass", "regression")
    assert set(digits.y) == {0, 1, 2}
    assert (len(people), len(abalone), len(abalone.y_test), abalone.categorical) == (600, 240, 60, ["sex"])
    assert len(digits.first(50)) == len(digits.first(50).y_test) == 50
    assert (encoded.categorical, encoded.X.dtype, encoded.X.shape[1] > 50) == ([], np.float32, True)


# --- our models


@compiles
def test_a_refit_is_of_the_samples_held(data: Path) -> None:
    model = INCREMENTAL.fit(load_split("adult", data, data), np.arange(100), n_estimators=3)
    model.delete(["7", "8"])
    fresh = refit(model)
    assert (fresh.n_samples_, fresh.digest()) == (98, model.digest())


@compiles
def test_measuring_leaves_the_samples_as_they_were(tmp_path: Path) -> None:
    problem = load_problem("higgs-like", tmp_path, tmp_path, 300)
    model = problem.fit(problem.forest("fast"))
    digest = model.digest()
    found = mutations.measure(problem, model, n=40, rounds=2, budget=100.0)
    assert (len(found.rounds), found.n_eager >= mutations.FEWEST_EAGER) == (2, True)
    for idle in (False, True):
        waits = stream.measure(problem, model, 10, 2, 100.0, idle=idle)
        assert [len(one.queries) for one in waits] == [20, 20]
    assert (model.n_samples_, model.digest()) == (300, digest)


@compiles
def test_an_unlearned_model_predicts_as_the_retrained_one(data: Path, tmp_path: Path) -> None:
    def load_small(name: str, seed: int = 0) -> Any:
        return load_paper_split(name, data, tmp_path, seed, 400)

    (found,) = accuracy_after_unlearning.measure(load_small, ("adult",), 1)
    assert found.accuracies.keys() == set(accuracy_after_unlearning.SHARES)
    assert set(found.different.values()) == {0}


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


def test_requests_commands_and_baselines(tmp_path: Path) -> None:
    samples, people = higgs_parquet(tmp_path, 300), adult()
    (addition,) = samples.additions([7])
    (sample,) = json.loads(addition.partition(b"\r\n\r\n")[2])["samples"]
    assert sample == {"id": "7", "features": samples.rows[7], "label": samples.labels[7], "readd": True}
    assert samples.deletions([7]) == [b"DELETE /samples/7 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
    durable, without = (command(samples, "defaults", place) for place in (tmp_path / "data", None))
    assert (durable[-2:], without[-1]) == (["--data-dir", str(tmp_path / "data")], "--ephemeral")
    assert b'"probabilities"' in baselines.predicted(people.predictions(1)[0].partition(b"\r\n\r\n")[2])
    assert b'"ids":["7"]' in baselines.added(people.additions(range(7, 8))[0].partition(b"\r\n\r\n")[2])


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


def test_reading_what_wrk_says() -> None:
    text = "  50%  348.00us\n  99%    1.11ms\n127317 requests in 3.10s\nRequests/sec:  41065.67\n"
    measured = wrk.read_report(text)
    assert (measured.rate, measured.p50, measured.p99) == (41065.67, pytest.approx(348e-6), pytest.approx(1.11e-3))
    with pytest.raises(RefusedError, match="17"):
        wrk.read_report(text + "  Non-2xx or 3xx responses: 17\n")
