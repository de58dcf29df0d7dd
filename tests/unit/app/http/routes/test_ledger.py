"""The routes of receipts, ledger and keys, over a ledger without a model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from oubli.api.erasures import ErasuresAnswer
from oubli.api.erasures import Receipt as ReceiptAnswer
from oubli.api.ledger import KeysAnswer, LedgerAnswer
from oubli.app.errors import ServiceError
from oubli.app.http.problems import ProblemError, to_problem
from oubli.app.http.routes import erasures
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.downloads import check_ledger, check_receipt, read_public_keys
from oubli.app.ledger.log import read_checkpoint
from oubli.app.service.evidence.publisher import LogPublisher
from oubli.app.service.evidence.receipts import Receipts
from tests.unit.app.ledger.support import WholeLedger, make_ledger
from tests.unit.app.support import require_conforms


@dataclass
class File:
    """The ledger's file, asked here and now."""

    store: LedgerDatabase

    async def read(self, question: Callable[[LedgerDatabase], Any]) -> Any:
        return question(self.store)

    def bell(self) -> asyncio.Event:
        return asyncio.Event()


@dataclass
class Late:
    """What says which erasures are overdue."""

    kept: WholeLedger

    def is_overdue(self, receipt_id: str) -> bool:
        return self.kept.is_overdue(receipt_id)


def service_of(kept: WholeLedger) -> SimpleNamespace:
    """What the routes need of a service."""
    file: Any = File(kept.store)
    late: Any = Late(kept)
    receipts = Receipts(kept.auditor, file, late)
    publisher = LogPublisher(file, (), lambda: None)
    asyncio.run(publisher.compare())
    return SimpleNamespace(
        evidence=SimpleNamespace(publisher=publisher, receipts=receipts),
        disk=SimpleNamespace(ledger=kept.auditor, database=file, is_durable=True),
    )


@pytest.fixture
def kept() -> WholeLedger:
    return make_ledger()


@pytest.fixture
def client(kept) -> Iterator[TestClient]:
    app = FastAPI()
    app.state.context = SimpleNamespace(service=service_of(kept), page_size_max=50)
    app.include_router(erasures.router)

    async def answer(_: Any, error: Exception) -> Any:
        problem = to_problem(error)
        assert problem is not None
        return problem.response()

    for kind in (ProblemError, ServiceError):
        app.add_exception_handler(kind, answer)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def test_a_receipt(client, kept):
    receipt = kept.unlearned("a", ref=str(uuid.uuid4()))
    answer = client.get(f"/erasures/{receipt.id}")
    assert (answer.status_code, answer.json()) == (200, {**receipt.content(), "durable": True})
    assert answer.headers["cache-control"] == "no-store"
    require_conforms(ReceiptAnswer, answer.content)
    assert client.get(f"/erasures/{receipt.id.upper()}").json() == answer.json()
    kept.erased(receipt)
    erased = client.get(f"/erasures/{receipt.id}").json()
    require_conforms(ReceiptAnswer, orjson.dumps(erased))
    assert erased["status"] == "erased"
    check_receipt(erased, check_ledger(kept.entries()))


@pytest.mark.parametrize("name", [str(uuid.UUID(int=0)), "x", "SECRET", "%00", "a" * 999])
def test_no_such_receipt(name, client):
    answer = client.get(f"/erasures/{name}")
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("no-receipt")
    assert "SECRET" not in answer.text


def test_receipts_of_a_case(client, kept):
    ref = uuid.uuid4()
    receipts = [kept.unlearned(name, ref=str(ref)) for name in "ab"]
    kept.unlearned("c")
    for text in (str(ref), str(ref).upper()):
        answer = client.get(f"/erasures?ref={text}")
        require_conforms(ErasuresAnswer, answer.content)
        assert [one["id"] for one in answer.json()["erasures"]] == [receipt.id for receipt in receipts]
    nothing = client.get(f"/erasures?ref={uuid.uuid4()}")
    assert (nothing.status_code, nothing.json()) == (200, {"erasures": [], "next": None})


def test_receipts_page_by_page_and_by_status(client, kept):
    receipts = [kept.unlearned(str(i)) for i in range(7)]
    kept.erased(*receipts[2:4])
    kept.now += 10**7
    kept.unlearned("new")

    def listed(**query):
        found, cursor = [], None
        while True:
            answer = client.get("/erasures", params={**query, **({} if cursor is None else {"cursor": cursor})})
            require_conforms(ErasuresAnswer, answer.content)
            page, cursor = answer.json()["erasures"], answer.json()["next"]
            found += page
            if cursor is None:
                return found

    names = [receipt.id for receipt in receipts]
    for limit in (1, 2, 8, 50):
        assert [one["id"] for one in listed(limit=limit)][:7] == names
        assert [one["id"] for one in listed(limit=limit, order="newest")][1:] == names[::-1]
        assert [one["id"] for one in listed(limit=limit, order="newest", status="erased")] == names[3:1:-1]
        assert [one["id"] for one in listed(limit=limit, status="erased")] == names[2:4]
        assert len(listed(limit=limit, status="unlearned")) == 6
        overdue = listed(limit=limit, status="overdue")
        assert [one["id"] for one in overdue] == names[:2] + names[4:]
        assert all(one["overdue"] and one["status"] == "unlearned" for one in overdue)


def test_wrong_queries(client):
    receipts = "ref= ref=SECRET ref=a&ref=b more=1 status=SECRET order=SECRET order= cursor=SECRET limit=0 limit=51"
    entries = "limit=0 limit=51 limit=x cursor=SECRET cursor=-1 cursor=1e3 x=1"
    for path, queries in (("/erasures", receipts), ("/ledger", entries)):
        for query in queries.split():
            answer = client.get(f"{path}?{query}")
            assert answer.status_code == 422, query
            assert "SECRET" not in answer.text


def test_pages_of_any_size_make_up_the_ledger(client, kept):
    kept.event("begin", **kept.store.log.new_fields())
    for i in range(9):
        kept.unlearned(str(i))
    for limit in (1, 3, 5, 10, 50):
        entries, cursor = [], None
        while True:
            page = client.get("/ledger", params={"limit": limit, **({} if cursor is None else {"cursor": cursor})})
            require_conforms(LedgerAnswer, page.content)
            keyed = page.json()["keyed"]
            for entry in page.json()["entries"]:
                beside = keyed.pop(str(entry["index"]), None)
                entries.append(entry if beside is None else {**entry, "keyed": beside})
            assert keyed == {}
            assert 0 < len(page.json()["entries"]) <= limit
            cursor, checkpoint = page.json()["next"], page.json()["checkpoint"]
            assert checkpoint is None or cursor is None
            if cursor is None:
                break
        assert entries == kept.entries()
        assert checkpoint == kept.store.sign_checkpoint().note
        assert read_checkpoint(checkpoint).size == len(entries)
    check_ledger(entries)


def test_the_public_keys(client, kept):
    receipt = kept.unlearned("a")
    kept.keys.rotate("signing")
    answer = client.get("/ledger/keys")
    require_conforms(KeysAnswer, answer.content)
    assert [key["status"] for key in answer.json()["keys"]] == ["current", "retired"]
    check_receipt(receipt.content(), check_ledger(kept.entries()), read_public_keys(answer.json()))
