"""What a server that is alone says of the cluster."""

from __future__ import annotations

from oubli.app.service.roles import Role
from tests.unit.app.support import make_service, served


def test_a_server_that_is_alone_cannot_be_removed() -> None:
    service = make_service()
    service.lifecycle.role = Role("me")
    with served(service) as client:
        refused = client.delete("/cluster/nodes/me")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:oubli:problem:node-alive")
        assert "leads" in refused.json()["detail"]
        assert client.delete("/cluster/nodes/other").json()["type"] == "urn:oubli:problem:no-node"
        assert "node-removed" not in client.get("/ledger").text
