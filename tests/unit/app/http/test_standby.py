"""What is answered while there is no application, and by whom a port is taken."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from oubli.app.access.keys import FILE_NAME
from oubli.app.errors import StartError
from oubli.app.http.console_files import read_file
from oubli.app.http.standby import Standby, bind
from oubli.app.settings import Settings
from tests.unit.app.http.connections import make_key


@contextmanager
def standing_by(directory: Path, phase: Any = "starting", **settings: Any) -> Iterator[Standby]:
    with Standby(bind("127.0.0.1", 0), Settings(data_dir=directory, **settings)) as standby:
        standby.start(phase)
        yield standby


def ask(standby: Standby, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    """Ask on a new connection; it waits until somebody answers. One that has asked too late is closed: ask again."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", standby.port, timeout=60)
        with closing(connection), suppress(OSError):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()


def until_told(standby: Standby, detail: str) -> None:
    """Ask until the phase has changed: a connection may have come before."""
    while json.loads(ask(standby, "/readyz")[2])["detail"] != detail:
        pass


def samples_of(text: str, parser: Any = parse) -> dict[tuple[str, ...], float]:
    return {(one.name, *one.labels.values()): one.value for family in parser(text) for one in family.samples}


def test_metrics_tell_the_phase_and_the_process(tmp_path: Path) -> None:
    with standing_by(tmp_path) as standby:
        for accept, parser in (("*/*", parse), ("application/openmetrics-text", parse_openmetrics)):
            status, headers, content = ask(standby, "/metrics", Accept=accept)
            assert (status, headers["Connection"], headers["Cache-Control"]) == (200, "close", "no-store")
            found = samples_of(content.decode(), parser)
            assert found["oubli_ready",] == 0
            assert [found["oubli_phase", phase] for phase in ("starting", "ready", "stopping")] == [1, 0, 0]
            assert found["process_resident_memory_bytes",] > 0
            assert not any("samples" in name for name, *_ in found)
        assert ask(standby, "/metrics", "HEAD")[::2] == (200, b"")
        assert json.loads(ask(standby, "/v2/health/live")[2]) == {"live": True}
        status, _, content = ask(standby, "/v2/health/ready")
        assert (status, json.loads(content)) == (503, {"error": "The server is starting."})
        for method, path in (("POST", "/metrics"), ("GET", "/model"), ("GET", "/readyz"), ("DELETE", "/samples/a")):
            status, headers, content = ask(standby, path, method)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert json.loads(content)["detail"] == "The server is starting."
        standby.start("stopping")
        until_told(standby, "The server is stopping.")
        assert samples_of(ask(standby, "/metrics")[2].decode())["oubli_phase", "stopping"] == 1


def test_the_console_is_there_and_may_be_kept(tmp_path: Path) -> None:
    with standing_by(tmp_path) as standby:
        status, headers, content = ask(standby, "/")
        assert (status, headers["Content-Type"], headers["Connection"]) == (200, "text/html; charset=utf-8", "close")
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert content == read_file("/").content
        assert ask(standby, "/", **{"If-None-Match": headers["ETag"]})[::2] == (304, b"")
        assert ask(standby, "/console/app.js", "HEAD")[::2] == (200, b"")
        assert ask(standby, "/console/no-such-file.js")[0] == ask(standby, "/", "POST")[0] == 503


def test_metrics_take_a_key_where_there_are_keys_and_health_does_not(tmp_path: Path) -> None:
    """That of the settings may change between two phases."""
    path, key, first, second = tmp_path / "key", make_key(tmp_path, "predict"), "first-0123456789", "second-0123456789"
    path.write_text(first)
    with standing_by(tmp_path, api_key_file=path) as standby:

        def statuses() -> list[int]:
            return [ask(standby, "/metrics", Authorization=f"Bearer {one}")[0] for one in (key, first, second)]

        status, _, content = ask(standby, "/metrics")
        assert (status, json.loads(content)["type"]) == (401, "urn:oubli:problem:key-needed")
        assert b"oubli_" not in content
        assert statuses() == [200, 200, 401]
        assert ask(standby, "/metrics", Host="evil.example", Authorization=f"Bearer {key}")[0] == 421
        path.write_text(second)
        standby.start("stopping")
        assert statuses() == [200, 401, 200]
        path.unlink()
        assert statuses() == [503, 503, 503]
        assert ask(standby, "/healthz")[0] == 200
    with standing_by(tmp_path) as standby:
        assert ask(standby, "/metrics")[0] == 401
        (tmp_path / FILE_NAME).unlink()
        standby.start("stopping")
        assert ask(standby, "/metrics")[0] == 401, "a server that has asked for keys keeps asking for them"


def test_it_begins_when_it_is_hurried_or_after_its_delay_and_not_when_it_is_stopped_before(tmp_path: Path) -> None:
    with standing_by(tmp_path) as standby:
        standby.start("stopping", delay=600)
        standby.hurry()
        until_told(standby, "The server is stopping.")
        standby.stop()
        standby.hurry()  # no one is there any more
        standby.start("starting", delay=0.01)
        until_told(standby, "The server is starting.")
    with Standby(bind("127.0.0.1", 0), Settings(data_dir=tmp_path)) as standby:  # it never answers
        before = set(threading.enumerate())  # those of other tests may not have ended
        standby.start("starting", delay=600)
        (waiting,) = (one for one in threading.enumerate() if one.name == "standby" and one not in before)
        standby.stop()
        waiting.join(60)
        assert not waiting.is_alive()


def test_a_port_belongs_to_one_server_from_the_beginning() -> None:
    (first,) = bind("127.0.0.1", 0)
    with first:
        port = first.getsockname()[1]
        with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1 port {port}"):
            bind("127.0.0.1", port)
    (again,) = bind("localhost", port)
    again.close()
    with pytest.raises(StartError, match=r"cannot listen on 203\.0\.113\.1"):
        bind("203.0.113.1", 0)
