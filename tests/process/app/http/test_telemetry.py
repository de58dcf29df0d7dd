"""A server that logs JSON and sends traces: what a program reads of both, and what neither holds."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.process.durability.listener import listening
from tests.serving import Running, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"SECRET{i},{i % 90},{'abc'[i % 3]},{'yes' if i % 4 else 'no'}" for i in range(200)]
    (tmp_path / "people.csv").write_text("\n".join(["name,age,job,income", *lines]) + "\n")
    return tmp_path


def serve(folder: Path, *flags: str, **variables: str) -> Any:
    data = ("--data", "people.csv", "--target", "income", "--id", "name", "--n-estimators", "5")
    return serving(*data, *flags, cwd=folder, **variables)


def send(server: Running, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
    return httpx2.request(method, server.url + path, json=body, headers=headers, timeout=60)


def use(server: Running, **headers: str) -> None:
    """Ask for most things that hold an id or a value."""
    for row in ([7, "SECRET"], ["SECRET", "a"]):
        send(server, "POST", "/predict", {"instances": [row]}, **headers)
    for method, path in (("GET", "/samples/SECRET7"), ("DELETE", "/samples/SECRET7")):
        send(server, method, path, **headers)
    send(server, "DELETE", "/samples?subject=SECRET", **headers)
    send(server, "GET", "/SECRET", **headers)


def test_every_line_of_a_server_that_logs_json_is_an_object(folder: Path) -> None:
    flags = ("--log-format", "json", "--access-log")
    for _ in range(2):  # trained, and recovered
        with serve(folder, *flags) as server:
            use(server, **{"X-Request-ID": "mine"})
            headers = send(server, "GET", "/model").headers
            assert server.stop() == 0
            lines = [json.loads(line) for line in server.output.splitlines()]
        assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
        assert "SECRET" not in server.output
        access = [line for line in lines if line["logger"] == "oubli.access"]
        mine = [(line["method"], line["route"], line["status"]) for line in access if line["request_id"] == "mine"]
        assert mine[:2] == [("POST", "/predict", 200), ("POST", "/predict", 422)]
        assert [route for _, route, _ in mine[2:4]] == ["/samples/{id}"] * 2
        assert mine[5] == ("GET", "unknown", 404)
        assert any(line["request_id"] == headers["X-Request-ID"] for line in access)
        assert any("serves http" in line["message"] for line in lines)


def test_a_start_that_fails_is_told_in_json(folder: Path) -> None:
    (folder / "people.csv").unlink()
    with pytest.raises(AssertionError, match="the server ended with 2"), serve(folder, "--log-format", "json"):
        pass
    lines = [json.loads(line) for line in (folder / "output.txt").read_text().splitlines()]
    assert lines[-1]["level"] == "error"


def test_traces_reach_a_collector_before_the_server_has_stopped(folder: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra `telemetry` is not installed")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    bodies: list[bytes] = []

    def take(path: str, headers: dict[str, str], body: bytes) -> int:
        assert path == "/v1/traces"
        bodies.append(body)
        return 200

    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=SECRET", "X-API-Key": "SECRET"}
    variables = {"OTEL_SERVICE_NAME": "forest-1", "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    with listening(take) as port, serve(folder, "--traces-endpoint", f"http://127.0.0.1:{port}", **variables) as server:
        use(server, **sent)
        assert server.stop() == 0
    resources = [one for body in bodies for one in ExportTraceServiceRequest.FromString(body).resource_spans]
    spans = [span for one in resources for scope in one.scope_spans for span in scope.spans]
    found = [span for span in spans if span.trace_id.hex() == TRACE]
    children = [span for span in found if span.parent_span_id.hex() == PARENT]
    assert len(children) == 6
    assert [span.name for span in found if span.parent_span_id == children[0].span_id] == ["parse", "model", "answer"]
    names = [span.name for span in children]
    assert names[:4] == ["POST /predict", "POST /predict", "GET /samples/{id}", "DELETE /samples/{id}"]
    assert names[5] == "GET"
    (attributes, *_) = [{one.key: one.value for one in span.attributes} for span in children]
    assert attributes["http.route"].string_value == "/predict"
    assert attributes["http.response.status_code"].int_value == 200
    resource = {one.key: one.value.string_value for one in resources[0].resource.attributes}
    assert resource["service.name"] == "forest-1"
    assert b"SECRET" not in b"".join(bodies)


def test_a_collector_that_is_not_there_holds_nothing_up_and_requests_leave_no_line(folder: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra `telemetry` is not installed")
    with serve(folder, "--traces-endpoint", "http://127.0.0.1:9", "--log-level", "warning") as server:
        use(server)
        assert server.stop() == 0
        assert "SECRET" not in server.output
        assert "oubli.access" not in server.output
