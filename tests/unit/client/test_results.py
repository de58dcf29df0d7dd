"""Answers of older and newer servers are read, what is signed is kept as it came, and each problem has an error."""

import pickle

import pytest
from pydantic import ValidationError

from oubli import client
from oubli.api.base import Message
from oubli.api.erasures import Receipt
from oubli.api.model import Model
from oubli.app.http.problems import KINDS, TYPE_PREFIX, ProblemError
from oubli.client import errors
from oubli.client.errors import UnexpectedAnswerError, problem_of
from oubli.client.results import read
from tests.unit.client.scripted import receipt

RECEIPT = receipt(kind="a kind of later servers", absent=1, more={"of": "later servers"})
del RECEIPT["durable"]  # as the first servers sent it
NUMBERS = ("n_samples", "model_version", "lazy_tags", "pending_erasures", "overdue_erasures", "memory_bytes")
OF_AN_OLDER_SERVER = {
    **dict.fromkeys(("kind", "guarantee", "task"), "x"), **dict.fromkeys(NUMBERS, 1), "parameters": {}, "features": [],
    "label": {"name": "y", "type": "a type of later servers"}, "classes": None, "durable": True,
}  # fmt: skip


def test_a_receipt_keeps_what_came_and_what_is_none_is_refused_and_not_repeated() -> None:
    found = read(Receipt, RECEIPT)
    assert found.content == RECEIPT
    assert (found.by, found.deadline, found.held, found.durable) == (None, None, False, True)
    assert "more" not in repr(found)
    assert pickle.loads(pickle.dumps(found)).content == RECEIPT  # noqa: S301
    with pytest.raises(ValidationError):
        found.unlearned = 2  # type: ignore[misc]
    for content in (None, [], {}, {**RECEIPT, "unlearned": "SECRET"}):
        with pytest.raises(UnexpectedAnswerError, match="no Receipt") as refused:
            read(Receipt, content)
        assert "SECRET" not in str(refused.value)


def test_fields_that_older_servers_do_not_send_have_defaults() -> None:
    model = read(Model, OF_AN_OLDER_SERVER)
    assert (model.n_restricted, model.changes, model.max_classes, model.schema.names) == (0, "accepted", None, [])


def test_all_messages_of_the_client_have_a_schema_and_a_text() -> None:
    messages = [one for one in vars(client).values() if isinstance(one, type) and issubclass(one, Message)]
    assert len(messages) > 20
    for message in messages:
        assert message.__doc__
        assert message.model_json_schema()["additionalProperties"] is (message is client.LedgerEntry)


def test_every_problem_has_an_error_of_its_own_kind() -> None:
    for slug in KINDS:
        sent = ProblemError(slug, errors=KINDS[slug].example)
        found = problem_of(sent.kind.status, sent.content(), None, "r1")
        assert (found.status, found.kind, found.request_id) == (sent.kind.status, slug, "r1")
        assert [tuple(one) for one in found.errors] == list(sent.errors)
        assert found.pointers == tuple(pointer for pointer, _ in sent.errors)
        for text in (found.detail, *(f"{pointer} {rule}" for pointer, rule in sent.errors if pointer)):
            assert text in str(found)
        # Only what has no remedy of its own is of the base.
        assert type(found) is not errors.ProblemError or sent.kind.status in (405, 408)
        assert errors.TYPE_PREFIX == TYPE_PREFIX


def test_what_is_no_problem_document_is_an_error_all_the_same() -> None:
    for content in (None, [], "x", {"type": 3, "errors": [1, {"pointer": 2}]}, {"errors": {"a": 1}}):
        found = problem_of(502, content, None, None)
        assert (type(found), found.kind) == (errors.UnavailableError, "")
