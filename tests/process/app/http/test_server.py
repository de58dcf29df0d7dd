"""The server as a process: signals, restarts, logs."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Running, serving

FLAGS = ("--target", "income", "--id", "name", "--subject", "who", "--n-estimators", "5", "--random-state", "0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"p{i},SECRET{i % 50},{i % 90},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(400)]
    (tmp_path / "people.csv").write_text("\n".join(["name,who,age,job,income", *lines]) + "\n")
    return tmp_path


def serve(folder: Path) -> Any:
    return serving("--data", "people.csv", *FLAGS, cwd=folder)


def predictions(server: Running) -> Any:
    return server.ask("POST", "/predict", {"instances": [[i, "abc"[i % 3]] for i in range(60)]})[1]


def test_stopped_and_started_again_it_is_the_same_model(folder):
    with serve(folder) as server:
        server.ask("POST", "/samples", {"samples": [{"id": "x", "features": [3, "new"], "label": "maybe"}]})
        assert server.ask("DELETE", "/samples?subject=SECRET7")[1]["unlearned"] == 8
        before = predictions(server)
        assert server.stop(signal.SIGTERM) == 0
    with serve(folder) as server:
        assert "is not read again" in server.output.replace("\n", " ")
        assert predictions(server) == before
        assert before["model_version"] == 3
        assert server.get("/samples?subject=SECRET7")[1]["samples"] == []
        assert server.stop(signal.SIGINT) == 0
    names = [path.name for path in (folder / "oubli-data").glob("snapshot-*")]
    assert len(names) == 2, "both written after the last deletion"


def test_a_signal_under_load_loses_nothing_that_was_answered(folder):
    with serve(folder) as server:
        acknowledged: list[str] = []
        refused: dict[str, Any] = {}
        threads = [threading.Thread(target=_load, args=(server, n, acknowledged, refused)) for n in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(acknowledged) <= 20:
            assert time.monotonic() < deadline, refused
            time.sleep(0.01)
        assert server.stop(signal.SIGTERM) == 0
        for thread in threads:
            thread.join()
    # A connection opened after the last was closed is told to try again later; nothing else is refused.
    assert set(refused.values()) <= {"not-ready"}
    with serve(folder) as server:
        assert server.get("/model")[1]["n_samples"] == 400 + len(acknowledged)
        for name in acknowledged[-4:]:
            assert server.get(f"/samples/{name}")[0] == 200
        for name in refused:
            assert server.get(f"/samples/{name}")[0] == 404


def _load(server: Running, number: int, acknowledged: list[str], refused: dict[str, Any]) -> None:
    """Add samples on one connection until the server closes or refuses it; a request that was sent must be answered."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        for i in range(100_000):
            name = f"load{number}-{i}"
            body = json.dumps({"samples": [{"id": name, "features": [i % 90, "a"], "label": "yes"}]})
            try:
                connection.request("POST", "/samples", body, {"Content-Type": "application/json"})
            except OSError:
                return
            try:
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                return  # closed while idle: the request came too late to be read
            if answer.status != 201:
                refused[name] = json.loads(content)["type"].rpartition("/")[2]
                return
            acknowledged.append(name)
