"""The files for Prometheus and Grafana below docker/, tried with Debian's Prometheus and a real server."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from oubli.app.http.monitoring.metrics import OTHERS, TABLE
from tests.serving import ROOT, Running, free_port, output_of, serving, small_table, wait_for

FILES = ROOT / "docker" / "prometheus"
GRAFANA = ROOT / "docker" / "grafana"
GROUPS: list[dict[str, Any]] = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
BOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "oubli.json").read_text())
OF_NODES = "oubli_cluster_"  # what these series tell is there on nodes of a cluster only
COMPARISON = re.compile(r"(?P<number>.+) (?P<sign>[<>]) (?P<limit>[\d.]+)", re.DOTALL)
OF_THE_MACHINE = {"OubliJournalSlow", "OubliSlowPredictions"}  # a busy one may be as slow as that


def needs(program: str) -> Any:
    why = f"{program} is not installed (Debian: apt-get install prometheus)"
    return pytest.mark.skipif(shutil.which(program) is None, reason=why)


@needs("promtool")
def test_rules_and_configuration_are_sound_and_rules_fire_when_they_should_and_only_then() -> None:
    for words in ("check rules alerts.yml", "check config prometheus.yml", "test rules alerts.test.yml"):
        output_of("promtool", *words.split(), cwd=FILES)


def test_rules_compare_a_number_with_a_limit_say_what_it_means_and_are_tested() -> None:
    tests = yaml.safe_load((FILES / "alerts.test.yml").read_text())["tests"]
    (fire,) = [one for one in tests if one["name"] == "every rule fires"]
    assert fire["promql_expr_test"][0]["exp_samples"][0]["value"] == len(RULES)
    for rule in RULES:
        assert COMPARISON.fullmatch(rule["expr"]), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


def test_compose_mounts_what_is_there() -> None:
    for service in (SERVICES["prometheus"], SERVICES["grafana"]):
        assert service["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert re.fullmatch(r".+:v?\d+\.\d+\.\d+", service["image"])
        assert service["read_only"]
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source == "prometheus-data"
    target = yaml.safe_load((FILES / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == [f"{SERVICES['oubli']['environment']['OUBLI_ALLOWED_HOSTS']}:8000"]


def test_grafana_finds_the_dashboard_and_its_source() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "oubli.yml").read_text())["providers"]
    assert any(volume.endswith(f":{provider['options']['path']}:ro") for volume in SERVICES["grafana"]["volumes"])
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/oubli.json"
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"] if panel["type"] != "row"} == {source["uid"]}


# --- a real Prometheus that scrapes a real server


def ask(url: str, path: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:  # noqa: S310
        content = json.load(answer)
    assert content["status"] == "success"
    return content["data"]


def series(url: str, expression: str) -> list[Any]:
    """Evaluate an expression now; an error of it is an `HTTPError`."""
    found: list[Any] = ask(url, "/query", query=expression)["result"]
    return found


@contextmanager
def scraping(port: int, folder: Path) -> Iterator[str]:
    """Run Prometheus with our configuration, but for the address of the server and the pace; yield where it answers."""
    config = yaml.safe_load((FILES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "500ms"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(FILES / "alerts.yml", folder)
    own = free_port()
    words = ("--config.file=prometheus.yml", "--storage.tsdb.path=series", f"--web.listen-address=127.0.0.1:{own}")
    output = (folder / "prometheus.txt").open("w")
    with output, subprocess.Popen(["prometheus", *words], cwd=folder, stdout=output, stderr=output) as run:
        try:
            yield f"http://127.0.0.1:{own}/api/v1"
        finally:
            run.terminate()
            run.wait(timeout=60)


def use(server: Running) -> None:
    """Ask for something of every sort."""
    server.ask("POST", "/predict", {"instances": [[7, "a"]]})
    server.ask("POST", "/predict", {"instances": "none"})
    _, added = server.ask("POST", "/samples", {"samples": [{"features": [3, "a"], "label": "yes"}]})
    server.ask("PUT", f"/samples/{added['ids'][0]}", {"features": [4, "b"], "label": "no"})
    server.ask("DELETE", f"/samples/{added['ids'][0]}")
    server.get("/model")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("monitored")
    with serving(*small_table(folder, 200), cwd=folder) as server, scraping(server.port, folder) as url:

        def has_scraped() -> bool:
            with suppress(OSError):  # it does not listen yet
                return bool(series(url, "oubli_ready"))
            return False

        wait_for(has_scraped, "Prometheus scrapes something")
        server.finish("/model/verify")
        server.finish("/model/scrub")
        for _ in range(4):
            use(server)
            time.sleep(0.5)
        wait_for(lambda: series(url, "rate(oubli_journal_commit_duration_seconds_count[1m])"), "there is a rate")

        def healths() -> set[str]:
            return {rule["health"] for group in ask(url, "/rules")["groups"] for rule in group["rules"]}

        wait_for(lambda: healths() == {"ok"}, "each rule is evaluated without an error")
        yield url


def test_series_of_nodes_are_there_and_a_server_alone_has_none() -> None:
    known = {series.name for series in TABLE} | {name for name, *_ in OTHERS}
    asked = [rule["expr"] for rule in RULES]
    asked += [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    named = {name for text in asked for name in re.findall(rf"{OF_NODES}\w+", text)}
    assert named
    assert named <= known


@needs("prometheus")
def test_rules_dashboard_and_its_variable_find_what_they_ask_for(prometheus: str) -> None:
    for rule in RULES:
        assert not series(prometheus, rule["expr"]) or rule["alert"] in OF_THE_MACHINE, "this server is sound"
        if OF_NODES not in rule["expr"]:  # of a server alone nothing is known
            compared = COMPARISON.fullmatch(rule["expr"])
            assert compared is not None
            found = series(prometheus, compared["number"])
            assert found, rule["alert"]
            assert all(one["value"][1] != "NaN" for one in found), rule["alert"]

    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".+")
            assert "$" not in asked
            found = series(prometheus, asked)
            assert OF_NODES in asked or any(one["value"][1] != "NaN" for one in found), (panel["title"], asked)

    (target,) = ask(prometheus, "/targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    (variable,) = BOARD["templating"]["list"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
    assert len({one["metric"][label] for one in series(prometheus, metric)}) == 1
