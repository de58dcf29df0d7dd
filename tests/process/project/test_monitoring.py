"""The files for Prometheus and Grafana below docker/: Prometheus accepts them, and what they ask for is measured."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from oubli.app.http.monitoring.metrics import OTHERS, TABLE
from tests.serving import ROOT

FILES = ROOT / "docker" / "prometheus"
GRAFANA = ROOT / "docker" / "grafana"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FILES / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
BOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "oubli.json").read_text())
COMPARISON = re.compile(r"(?P<number>.+) (?P<sign>[<>]) (?P<limit>[\d.]+)", re.DOTALL)


def needs(program: str) -> Any:
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"{program} is not installed (Debian: apt-get install prometheus)"
    )


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=FILES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs("promtool")
def test_rules_and_configuration_are_sound_and_rules_fire_when_they_should_and_only_then() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts.test.yml")


def test_rules_compare_a_number_with_a_limit_say_what_it_means_and_are_tested() -> None:
    tests = yaml.safe_load((FILES / "alerts.test.yml").read_text())["tests"]
    (fire,) = [one for one in tests if one["name"] == "every rule fires"]
    assert fire["promql_expr_test"][0]["exp_samples"][0]["value"] == len(RULES)
    for rule in RULES:
        assert COMPARISON.fullmatch(rule["expr"]), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


def test_compose_mounts_what_is_there() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name in ("prometheus", "grafana"):
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        sources = {volume.split(":")[0] for volume in services[name]["volumes"]}
        assert all((ROOT / source).exists() for source in sources - {"prometheus-data"})
    target = yaml.safe_load((FILES / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == [f"{services['oubli']['environment']['OUBLI_ALLOWED_HOSTS']}:8000"]


# --- a real Prometheus that scrapes a real server


def test_rules_and_dashboard_ask_for_series_that_there_are() -> None:
    """By the names of the metrics, and of the parts that Prometheus makes of a histogram or a counter."""
    known = {series.name for series in TABLE} | {name for name, *_ in OTHERS}
    asked = [rule["expr"] for rule in RULES]
    asked += [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    named = {name for text in asked for name in re.findall(r"\boubli_\w+", text)}
    assert len(named) > 20
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} <= known
