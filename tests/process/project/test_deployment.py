"""The examples for Kubernetes and systemd: schemas and systemd accept them, and the server runs with what they say."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from oubli.app.settings import Settings
from tests.serving import EXAMPLE, ROOT, output_of, run_cli, run_program, serving

KUBERNETES = ROOT / "examples" / "kubernetes"
SYSTEMD = ROOT / "examples" / "systemd"
USER = 10001  # of the image
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
CLUSTER = KUBERNETES / "cluster"


def objects(folder: Path = KUBERNETES) -> list[dict[str, Any]]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def the(kind: str, folder: Path = KUBERNETES) -> dict[str, Any]:
    (found,) = [one for one in objects(folder) if one["kind"] == kind]
    return found


def pod_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the example says about a pod, and about the only container in it."""
    spec = the("StatefulSet", folder)["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    return spec, only


# -- Kubernetes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.30", "latest"])
def test_the_schemas_of_kubernetes_accept_every_object(version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    wanted = kubernetes_validate.latest_version() if version == "latest" else version
    assert {one["kind"] for one in objects(CLUSTER)} > {"StatefulSet", "PodDisruptionBudget", "NetworkPolicy"}
    for one in [*objects(), *objects(CLUSTER)]:
        kubernetes_validate.validate(one, wanted, strict=True)
    wrong = the("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, wanted, strict=True)


@pytest.mark.parametrize("folder", [KUBERNETES, CLUSTER], ids=["one", "cluster"])
def test_the_objects_find_each_other(folder: Path) -> None:
    stateful = the("StatefulSet", folder)["spec"]
    (spec, container), labels = pod_of(folder), stateful["template"]["metadata"]["labels"].items()
    services = {one["metadata"]["name"]: one["spec"] for one in objects(folder) if one["kind"] == "Service"}
    selectors = [
        stateful["selector"]["matchLabels"],
        the("PodDisruptionBudget", folder)["spec"]["selector"]["matchLabels"],
        the("NetworkPolicy", folder)["spec"]["podSelector"]["matchLabels"],
        *(service["selector"] for service in services.values()),
        *(one["labelSelector"]["matchLabels"] for one in spec.get("topologySpreadConstraints", ())),
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["http"] == Settings.model_fields["port"].default
    assert {service["ports"][0]["targetPort"] for service in services.values()} <= ports.keys()
    claims = {claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]}
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == claims | volumes
    assert spec["enableServiceLinks"] is False, "a Service named oubli would set OUBLI_PORT"


def test_a_pod_may_do_little() -> None:
    (pod, container), (of_cluster, node) = pod_of(KUBERNETES), pod_of(CLUSTER)
    assert f"USER {USER}:{USER}" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    whole = pod["securityContext"]
    assert (whole["runAsNonRoot"], whole["runAsUser"], whole["fsGroup"]) == (True, USER, USER)
    assert whole["fsGroupChangePolicy"] == "OnRootMismatch", "the server refuses keys that the group may read"
    assert of_cluster["securityContext"] == whole
    assert pod["automountServiceAccountToken"] is of_cluster["automountServiceAccountToken"] is False
    may = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert node["securityContext"] == container["securityContext"] == may
    assert the("NetworkPolicy")["spec"]["egress"] == []
    egress = the("NetworkPolicy", CLUSTER)["spec"]["egress"]
    assert all(rule["to"] for rule in egress), "a rule without `to` lets everything out"
    assert all(node[name] == container[name] for name in PROBES)


def test_the_pod_starts_and_its_probes_are_answered_and_the_empty_key_of_the_example_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(the("ConfigMap")["data"]["schema.json"])
    (tmp_path / "key").write_text(the("Secret")["stringData"]["key"])
    _, container = pod_of(KUBERNETES)
    places = {"/etc/oubli/schema.json": "schema.json", "/run/secrets/oubli/key": "key"}
    command, *arguments = [places.get(argument, argument) for argument in container["args"]]
    assert command == "serve"
    done = run_cli("serve", *arguments, "--port", "0", cwd=tmp_path)
    assert done.returncode != 0
    assert "api_key_file" in done.stderr
    (tmp_path / "key").write_text("k" * 64)
    with serving(*arguments, cwd=tmp_path) as server:
        for name in PROBES:
            path = container[name]["httpGet"]["path"]
            # A probe names the address of the pod, and sends no key.
            assert server.ask("GET", path, Host="10.244.0.7:8000")[0] == 200
        assert server.get("/model")[0] == 401
        assert server.stop() == 0


# -- systemd ----------------------------------------------------------------------------------------


def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    text = (SYSTEMD / "oubli.service").read_text(encoding="utf-8")
    assert "\nExecStart=/opt/oubli/venv/bin/oubli serve " in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "oubli.service"  # with a program that is there
    unit.write_text(text.replace("ExecStart=/opt/oubli/venv/bin/oubli", f"ExecStart={shutil.which('true')}"))
    done = run_program("systemd-analyze", "verify", unit)
    assert (done.returncode, done.stderr) == (0, "")
    output_of("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)  # 1.5 of 10
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "NoNewPrivilege" in run_program("systemd-analyze", "verify", unit).stderr


def test_the_settings_of_the_unit_are_settings(tmp_path: Path) -> None:
    text = (SYSTEMD / "oubli.toml").read_text(encoding="utf-8")
    (tmp_path / "served.toml").write_text(text.replace("/etc/oubli/adult.csv.gz", str(EXAMPLE)))
    with serving("--config", "served.toml", "--n-estimators", "3", cwd=tmp_path) as server:
        assert server.get("/readyz")[0] == 200
        assert server.stop() == 0
    assert (tmp_path / "oubli-data").is_dir()
