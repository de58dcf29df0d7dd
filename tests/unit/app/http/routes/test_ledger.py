"""The routes of receipts, ledger and keys."""

import uuid
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from oubli.app.ledger.downloads import check_ledger, check_receipt, read_public_keys
from oubli.app.ledger.keys import KEYS_NAME, LedgerKeys
from oubli.app.ledger.log import read_checkpoint
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from tests.unit.app.support import make_service, pick, reopened, served


def paged(client: TestClient, path: str, **query: Any) -> list[dict[str, Any]]:
    """What all pages list."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.get(f"/{path}", params=query).json()
        listed = page["entries" if path == "ledger" else path]
        assert len(listed) <= query["limit"]
        found += listed
        if page["next"] is None:
            return found
        query["cursor"] = page["next"]


def test_a_receipt(kept: TestClient) -> None:
    receipt = kept.delete("/samples/c1", params={"ref": str(uuid.uuid4())}).json()
    answer = kept.get(f"/erasures/{receipt['id']}")
    assert (answer.status_code, answer.json(), answer.headers["cache-control"]) == (200, receipt, "no-store")
    assert kept.get(f"/erasures/{receipt['id'].upper()}").json() == receipt
    assert kept.post("/snapshot").status_code == 201
    erased = kept.get(f"/erasures/{receipt['id']}").json()
    assert erased["status"] == "erased"
    assert kept.get("/erasures", params={"ref": str(uuid.uuid4())}).json() == {"erasures": [], "next": None}
    check_receipt(erased, check_ledger(kept.get("/ledger").json()["entries"]))


def test_receipts_page_by_page_and_by_status(tmp_path: Path) -> None:
    service = make_service(directory=tmp_path, policy=CheckpointPolicy(erasure_deadline=86_400))
    late: set[str] = set()
    service.evidence.receipts._is_overdue = late.__contains__
    with served(service) as client:
        names = [client.delete(f"/samples/c{i}").json()["id"] for i in range(3)]
        assert client.post("/snapshot").status_code == 201
        names += [client.delete(f"/samples/c{i}").json()["id"] for i in range(3, 8)]
        late.update(names[3:6])
        for limit in (1, 2, 8, 50):
            statuses = {"erased": names[:3], "unlearned": names[3:], "overdue": names[3:6], None: names}
            for status, expected in statuses.items():
                query = {"status": status, "limit": limit} if status else {"limit": limit}
                found = paged(client, "erasures", **query)
                assert [pick(one, "id overdue") for one in found] == [(name, name in late) for name in expected]
                assert paged(client, "erasures", **query, order="newest") == found[::-1]


def test_pages_of_any_size_make_up_the_ledger(client: TestClient) -> None:
    for i in range(9):
        client.delete(f"/samples/c{i}")
    whole = client.get("/ledger?limit=50").json()
    assert read_checkpoint(whole["checkpoint"]).size == len(whole["entries"]) > 9
    check_ledger(whole["entries"])
    for limit in (1, 3, 5, 10):
        assert paged(client, "ledger", limit=limit) == whole["entries"]
        page = client.get(f"/ledger?limit={limit}").json()
        indexes = {str(one["index"]) for one in page["entries"]}
        assert page["keyed"] == {index: one for index, one in whole["keyed"].items() if index in indexes}
        assert page["checkpoint"] is None


def test_the_public_keys(tmp_path: Path) -> None:
    with served(make_service(directory=tmp_path)) as client:
        receipt = client.delete("/samples/c1").json()
    LedgerKeys(tmp_path / KEYS_NAME).rotate("signing")
    with served(reopened(tmp_path)) as client:
        keys = client.get("/ledger/keys").json()
        assert [key["status"] for key in keys["keys"]] == ["current", "retired"]
        check_receipt(receipt, check_ledger(client.get("/ledger").json()["entries"]), read_public_keys(keys))
