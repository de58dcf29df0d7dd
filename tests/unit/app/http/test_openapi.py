from __future__ import annotations

from typing import Any

import pytest

from oubli.app.http.app import create_app
from oubli.app.http.problems import KINDS, MEDIA_TYPE
from tests.unit.app.support import make_service, make_settings

ROUTES = {
    "/predict": {"post"},
    "/influence": {"post"},
    "/influence/{id}": {"get"},
    "/samples": {"get", "post", "delete"},
    "/samples/search": {"post"},
    "/samples/batch-delete": {"post"},
    "/samples/{id}": {"get", "put", "delete"},
    "/snapshot": {"get", "post"},
    "/snapshot/file": {"get", "put"},
    "/erasures": {"get"},
    "/erasures/{id}": {"get"},
    "/ledger": {"get"},
    "/keys": {"get"},
    "/model": {"get"},
    "/model/verify": {"post"},
    "/model/scrub": {"post"},
    "/model/fit": {"post"},
    "/jobs": {"get"},
    "/jobs/{id}": {"get"},
    "/jobs/{id}/events": {"get"},
    "/expiry/confirm": {"post"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return create_app(make_settings(), make_service()).openapi()


def operations(page: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{m} {path}", operation) for path, ms in page["paths"].items() for m, operation in ms.items()]


def test_every_route_is_there(page):
    assert {path: set(methods) for path, methods in page["paths"].items()} == ROUTES


def test_every_operation_is_described_and_shows_its_answers(page):
    for name, operation in operations(page):
        assert operation["summary"], name
        assert operation["description"], name
        [success] = [answer for status, answer in operation["responses"].items() if status[0] == "2"][:1]
        assert success["content"], name


def test_every_error_has_an_example(page):
    shown = set()
    for name, operation in operations(page):
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                continue
            examples = answer["content"][MEDIA_TYPE]["examples"]
            assert examples, (name, status)
            for slug, example in examples.items():
                assert example["value"]["status"] == int(status)
                shown.add(slug)
    # These three answer requests that belong to no operation.
    assert shown == set(KINDS) - {"no-such-route", "wrong-method", "bad-request"}


def test_bodies_are_described_where_routes_parse_them_themselves(page):
    for name in ("post /predict", "post /samples", "put /samples/{id}", "post /samples/batch-delete"):
        operation = dict(operations(page))[name]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["properties"], name
        assert schema["additionalProperties"] is False, name
        assert "$ref" not in str(schema)
    assert dict(operations(page))["put /snapshot/file"]["requestBody"]


def test_parameters_are_described(page):
    def names(operation: str) -> set[tuple[str, str]]:
        return {(p["in"], p["name"]) for p in dict(operations(page))[operation]["parameters"]}

    assert names("delete /samples") == {("query", "id"), ("query", "subject"), ("query", "ref")}
    assert names("get /samples") == {("query", "subject"), ("query", "cursor"), ("query", "limit"), ("query", "format")}
    assert names("put /samples/{id}") == {("path", "id"), ("query", "ref")}


def test_no_operation_shows_frameworks_own_errors(page):
    assert "HTTPValidationError" not in str(page)
