"""The tree of errors knows every problem of the server."""

from __future__ import annotations

import pytest

from oubli.app.http.problems import KINDS, TYPE_PREFIX, ProblemError
from oubli.client import errors
from oubli.client.errors import problem_of


@pytest.mark.parametrize("slug", KINDS)
def test_every_problem_has_an_error_of_its_own_kind(slug: str) -> None:
    sent = ProblemError(slug, errors=KINDS[slug].example)
    found = problem_of(sent.kind.status, sent.content(), None, None)
    assert found.kind == slug
    assert found.detail in str(found)
    assert [tuple(one) for one in found.errors] == list(sent.errors)
    # Only what has no remedy of its own is of the base.
    assert type(found) is not errors.ProblemError or sent.kind.status in (405, 408)


def test_the_prefix_is_the_servers() -> None:
    assert errors.TYPE_PREFIX == TYPE_PREFIX


@pytest.mark.parametrize("content", [None, [], "x", {"type": 3, "errors": [1, {"pointer": 2}]}, {"errors": {"a": 1}}])
def test_what_is_no_problem_document_is_an_error_all_the_same(content: object) -> None:
    found = problem_of(502, content, None, None)
    assert (type(found), found.kind) == (errors.UnavailableError, "")
