"""Answers of older and newer servers are read, and what is signed is kept as it came."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from oubli import client
from oubli.api.base import Message
from oubli.api.erasures import Receipt
from oubli.api.model import Model
from oubli.client.errors import UnexpectedAnswerError
from oubli.client.results import read

RECEIPT = {
    **dict.fromkeys(("id", "guarantee", "key_id", "signature", "ledger_head"), "x"),
    **dict.fromkeys(("requested", "unlearned", "absent", "exported_snapshots", "model_version", "ledger_index"), 1),
    **dict.fromkeys(("received_at", "unlearned_at"), "2030-01-31T12:00:00Z"),
    "kind": "a kind of later servers",
    "ref": None,
    "status": "unlearned",
    "erased_at": None,
    "overdue": False,
    "more": {"of": "later servers"},
}
OF_AN_OLDER_SERVER = {
    **dict.fromkeys(("kind", "guarantee", "task"), "x"),
    **dict.fromkeys(
        ("n_samples", "model_version", "lazy_tags", "pending_erasures", "overdue_erasures", "memory_bytes"), 1
    ),
    "parameters": {},
    "features": [],
    "label": {"name": "y", "type": "a type of later servers"},
    "classes": None,
    "durable": True,
}


def test_a_receipt_keeps_what_came() -> None:
    receipt = read(Receipt, RECEIPT)
    assert receipt.content == RECEIPT
    assert (receipt.by, receipt.deadline, receipt.held, receipt.durable) == (None, None, False, True)
    assert "more" not in repr(receipt)
    assert pickle.loads(pickle.dumps(receipt)).content == RECEIPT  # noqa: S301
    with pytest.raises(ValidationError):
        receipt.unlearned = 2  # type: ignore[misc]


def test_fields_that_older_servers_do_not_send_have_defaults() -> None:
    model = read(Model, OF_AN_OLDER_SERVER)
    assert (model.n_restricted, model.changes, model.max_classes) == (0, "accepted", None)
    assert model.schema.names == []


@pytest.mark.parametrize("content", [None, [], {}, {**RECEIPT, "unlearned": "SECRET"}])
def test_what_is_no_receipt_is_refused_and_not_repeated(content: Any) -> None:
    with pytest.raises(UnexpectedAnswerError, match="no Receipt") as refused:
        read(Receipt, content)
    assert "SECRET" not in str(refused.value)


def test_all_messages_of_the_client_have_a_schema_and_a_text() -> None:
    messages = [one for one in vars(client).values() if isinstance(one, type) and issubclass(one, Message)]
    assert len(messages) > 20
    for message in messages:
        assert message.__doc__
        assert message.model_json_schema()["additionalProperties"] is (message is client.LedgerEntry)
