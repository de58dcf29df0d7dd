"""`GET /metrics`: formats, what is counted, and what no label says."""

import platform
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from starlette.testclient import TestClient

from oubli.app.errors import StopReason
from oubli.app.http.monitoring.metrics import COMMITS, OTHERS, REQUESTS, TABLE, RequestMetrics
from oubli.app.http.monitoring.observer import ALONE
from oubli.app.times import Histogram
from oubli.app.version import VERSION
from tests.unit.app.support import make_service, samples, served

pytestmark = pytest.mark.anyio


def scraped(client: TestClient) -> dict[tuple[str, Any], float]:
    """Every sample of the text format, by its name and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    families = read_text(answer.text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for each in families for one in each.samples}


def test_requests_are_counted_as_a_histogram_counts_them() -> None:
    requests, histogram = RequestMetrics(), Histogram()
    for seconds in (1e-5, 7e-5, 0.3, 99.0):
        requests.observe("GET", "/model", 200, seconds, b"x", ALONE)
        histogram.observe(seconds)
    ((counted, found),) = requests.copy().items()
    assert counted == ("GET", "/model", 200)
    assert (found.counts, found.total) == (histogram.counts, histogram.total)


def test_both_formats_can_be_read_and_say_the_same_under_names_that_follow_the_conventions() -> None:
    with served() as client:
        client.post("/predict", json={"instances": [[1, "a", True]]})
        plain = client.get("/metrics")
        accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        strict = client.get("/metrics", headers={"Accept": accept})
        for kind in ("text/plain;version=SECRET", "application/openmetrics-text;version=9.SECRET"):
            assert "SECRET" not in str(client.get("/metrics", headers={"Accept": kind}).headers)
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert strict.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert plain.headers["cache-control"] == "no-store"
    families = list(read_text(plain.text))
    names = {one.name for family in families for one in family.samples}
    assert names == {one.name for family in read_openmetrics(strict.text) for one in family.samples}
    ours = {family.name: family for family in families if family.name.startswith("oubli_")}
    for family in ours.values():
        assert family.documentation.endswith(".")
        assert (family.type == "counter") == any(one.name.endswith("_total") for one in family.samples)
    told = {name.removesuffix("_total") for name, *_ in (*OTHERS, *TABLE)}
    # Without a snapshot, a scrub or a comparison there is no time of one.
    absent = {name for name in told if name.endswith("_timestamp_seconds")} | {"oubli_verify_ok"}
    absent |= {name for name in told if name.startswith("oubli_cluster_")}  # of a server that is alone
    assert told - absent <= set(ours) <= told


def test_the_service_is_measured(tmp_path: Path) -> None:
    service = make_service(directory=tmp_path / "data")
    with served(service) as client:
        before = scraped(client)
        client.post("/samples", json=samples(2))
        client.delete("/samples/n1")
        changed = scraped(client)
        client.post("/predict", json={"instances": [[i, "abc"[i % 3], True] for i in range(40)]})
        predicted = scraped(client)
        for kind in ("verify", "scrub"):
            client.get(f"/jobs/{client.post(f'/model/{kind}').json()['id']}/events")
        after = scraped(client)
        service.model.state.hindered = StopReason.DISK_FULL
        stopped = scraped(client)
        service.model.state.hindered = None
    assert changed[f"{COMMITS}_count", ()] >= 2
    assert changed[f"{REQUESTS}_count", (("method", "DELETE"), ("route", "/samples/{id}"), ("status", "200"))] == 1
    plain = "samples ready durable snapshot_lag_records"
    assert [before[f"oubli_{name}", ()] for name in plain.split()] == [60, 1, 1, 0]
    assert before["oubli_build_info", (("python", platform.python_version()), ("version", VERSION))] == 1
    assert before["oubli_model_info", (("guarantee", "exact"), ("kind", "forest"), ("task", "classification"))] == 1
    assert ("oubli_verify_ok", ()) not in before
    counted = "samples snapshot_lag_records erasures_pending erasures_overdue"
    assert [changed[f"oubli_{name}", ()] for name in counted.split()] == [61, 2, 1, 0]
    assert changed["oubli_model_version", ()] == before["oubli_model_version", ()] + 2
    assert changed["oubli_journal_bytes", ()] > before["oubli_journal_bytes", ()]
    assert changed["oubli_lazy_tags", ()] > 0
    resolved = changed["oubli_lazy_tags", ()] - predicted["oubli_lazy_tags", ()]
    assert predicted["oubli_resolved_tags_total", ()] == changed["oubli_resolved_tags_total", ()] + resolved
    assert resolved > 0
    assert after["oubli_resolved_tags_total", ()] >= changed["oubli_lazy_tags", ()]
    assert [after[f"oubli_{name}", ()] for name in ("lazy_tags", "verify_ok", "erasures_pending")] == [0, 1, 0]
    started = before["process_start_time_seconds", ()]
    for name in ("snapshot", "scrub", "verify"):
        assert after[f"oubli_{name}_timestamp_seconds", ()] > started
    for reason in StopReason:
        assert stopped["oubli_changes_stopped", (("reason", reason),)] == (reason is StopReason.DISK_FULL)
