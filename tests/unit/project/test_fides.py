"""The connector for Fides asks routes that there are, and gets from them what it expects."""

from typing import Any

import yaml

from tests.serving import ROOT
from tests.unit.app.support import make_service, served

FOLDER = ROOT / "examples" / "fides"


def _ask(client: Any, request: dict[str, Any], **values: str) -> Any:
    """Send a request of the connector with its placeholders filled in, as Fides does."""

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(f"<{name}>", value)
        return text

    headers = {one["name"]: one["value"] for one in request.get("headers", ())}
    body = filled(request["body"]) if "body" in request else None
    return client.request(request["method"], filled(request["path"]), content=body, headers=headers)


def test_access_and_erasure_as_fides_asks_for_them(tmp_path):
    config = yaml.safe_load((FOLDER / "oubli_config.yml").read_text())["saas_config"]
    endpoints = {one["name"]: one["requests"] for one in config["endpoints"]}
    read, delete = endpoints["samples"]["read"], endpoints["subject"]["delete"]
    service = make_service()
    with served(service, page_size_max=1000) as client:
        rows = _ask(client, read, email="s1").json()[read["data_path"]]
        assert len(rows) == 12
        fields = yaml.safe_load((FOLDER / "oubli_dataset.yml").read_text())["dataset"][0]["collections"][0]["fields"]
        assert {one["name"] for one in fields} <= rows[0].keys()
        receipt = _ask(client, delete, email="s1").json()
        assert receipt["unlearned"] == 12
        status = delete["async_config"]["configuration"]["status_request"]
        found = _ask(client, status, correlation_id=receipt[delete["correlation_id_path"]]).json()
        assert (found[status["status_path"]], status["status_completed_value"]) == ("unlearned", "erased")
        assert _ask(client, read, email="s1").json()[read["data_path"]] == []
