"""The server as a process: signals and restarts."""

import signal
from typing import Any

from tests.serving import Running, serving, small_table


def predictions(server: Running) -> Any:
    return server.ask("POST", "/predict", {"instances": [[i, "abc"[i % 3]] for i in range(60)]})[1]


def test_stopped_and_started_again_it_is_the_same_model(tmp_path):
    flags = small_table(tmp_path, 400)
    with serving(*flags, cwd=tmp_path) as server:
        server.ask("POST", "/samples", {"samples": [{"id": "x", "features": [3, "new"], "label": "maybe"}]})
        assert server.ask("DELETE", "/samples?subject=s7")[1]["unlearned"] == 8
        before = predictions(server)
        assert server.stop(signal.SIGTERM) == 0
    with serving(*flags, cwd=tmp_path) as server:
        assert "is not read again" in server.output.replace("\n", " ")
        assert predictions(server) == before
        assert before["model_version"] == 3
        assert server.get("/samples?subject=s7")[1]["samples"] == []
        assert server.stop(signal.SIGINT) == 0
    names = [path.name for path in (tmp_path / "oubli-data").glob("snapshot-*")]
    assert len(names) == 2, "both written after the last deletion"
