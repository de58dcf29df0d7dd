import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from oubli.app.access.scopes import needed_scopes
from oubli.app.http.app import create_app
from oubli.app.http.auth import is_open
from oubli.app.http.monitoring.observer import new_request_id
from oubli.app.http.openapi import MAIN, PARTS
from oubli.app.http.problems import KINDS, MEDIA_TYPE, opendsr_status
from tests.unit.app.support import described, make_service, make_settings


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(make_settings(), make_service())


@pytest.fixture(scope="module")
def page(app: FastAPI) -> dict[str, Any]:
    return described(app)


@pytest.fixture(scope="module", params=[MAIN, *PARTS], ids=lambda name: name or "main")
def part(app: FastAPI, request: pytest.FixtureRequest) -> dict[str, Any]:
    return app.openapi(request.param)


def operations(page: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each operation by method and path, with its errors in place of references to them."""
    return [
        (f"{m} {path}", {**one, "responses": {s: resolved(page, answer) for s, answer in one["responses"].items()}})
        for path, ms in page["paths"].items()
        for m, one in ms.items()
    ]


def resolved(page: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part of a document, or what it refers to."""
    if "$ref" not in part:
        return part
    _, _, kind, name = part["$ref"].split("/")
    return dict(page["components"][kind][name])


def test_a_document_is_small_and_says_where_the_others_are(app: FastAPI) -> None:
    for name in (MAIN, *PARTS):
        page = app.openapi(name)
        assert len(json.dumps(page, separators=(",", ":"))) < (250_000 if name == MAIN else 50_000), name
        assert len(operations(page)) <= (48 if name == MAIN else 12), name
        others = [f"/openapi/{other}.json" for other in PARTS] if name == MAIN else ["/openapi.json"]
        assert all(other in page["info"]["description"] for other in others)
    assert app.openapi("nowhere") is None


def test_documents_are_served_and_selected_on_the_page(client: TestClient) -> None:
    shown = re.findall(r'<option value="([^"]+)">', client.get("/docs").text)
    assert shown == ["openapi.json", *(f"openapi/{name}.json" for name in PARTS)]
    for path in shown:
        assert client.get(f"/{path}").json()["paths"], path
    assert client.get("/openapi/nowhere.json").status_code == 404


def test_every_route_is_there(app: FastAPI, page: dict[str, Any]) -> None:
    pages_and_nodes = re.compile(r"/(console/.*|cluster/node/.*|docs.*|keys|openapi.*)?")
    routes = {(method, path) for path, _, methods in app.state.routes._routes for method in methods - {"HEAD"}}
    documented = {(method.upper(), path) for path, methods in page["paths"].items() for method in methods}
    assert documented == {one for one in routes if not pages_and_nodes.fullmatch(one[1])}
    ids = [operation["operationId"] for _, operation in operations(page)]
    assert len(set(ids)) == len(ids) > 50
    assert all(re.fullmatch("[a-z_]+", one) for one in ids)
    assert "HTTPValidationError" not in str(page)


def test_every_error_has_an_example(page: dict[str, Any]) -> None:
    shown = set()
    for name, operation in operations(page):
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                continue
            is_inference, is_opendsr = (name.split()[1].startswith(start) for start in ("/v2", "/opendsr/"))
            [(media_type, content)] = answer["content"].items()
            assert media_type == ("application/json" if is_inference or is_opendsr else MEDIA_TYPE), name
            assert content["examples"], (name, status)
            for slug, shown_at in content["examples"].items():
                example = resolved(page, shown_at)
                assert int(status) == (opendsr_status(KINDS[slug]) if is_opendsr else KINDS[slug].status)
                if is_inference:
                    assert list(example["value"]) == ["error"]
                else:
                    told = example["value"]["error"]["code"] if is_opendsr else example["value"]["status"]
                    assert told == int(status)
                shown.add(slug)
    # These three answer requests that belong to no operation.
    assert shown == set(KINDS) - {"no-such-route", "wrong-method", "bad-request"}


def test_every_operation_is_described_shows_its_answers_and_may_be_named(page: dict[str, Any]) -> None:
    parameter, header = page["components"]["parameters"]["RequestId"], page["components"]["headers"]["RequestId"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("X-Request-ID", "header", False)
    assert re.fullmatch(header["schema"]["pattern"], new_request_id().decode())
    for name, operation in operations(page):
        assert all(operation[key] for key in ("summary", "description")), name
        assert next(answer for status, answer in operation["responses"].items() if status[0] == "2")["content"], name
        assert operation["parameters"].count({"$ref": "#/components/parameters/RequestId"}) == 1, name
        for answer in operation["responses"].values():
            assert answer["headers"]["X-Request-ID"] == {"$ref": "#/components/headers/RequestId"}, name


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_shape_is_named_and_every_name_is_used(part: dict[str, Any]) -> None:
    page, components = part, part["components"]
    named = {
        f"#/components/{kind}/{name}" for kind in components.keys() - {"securitySchemes"} for name in components[kind]
    }
    for name, schema in components["schemas"].items():  # a default makes no field required
        assert not any("default" in field for field in schema.get("properties", {}).values()), name
    assert named == references(page)
    for name, operation in operations(page):
        for answer in operation["responses"].values():
            for kind, content in answer.get("content", {}).items():
                if kind.endswith(("/json", "+json")):
                    assert set(content["schema"]) == {"$ref"}, name


def test_keys_are_described_as_they_are_checked(key_file: Path) -> None:
    for settings, asks in ((make_settings(), False), (make_settings(api_key_file=key_file), True)):
        page = described(create_app(settings, make_service()))
        for name, operation in operations(page):
            method, path = name.split()
            ways = operation["security"]
            if is_open(path):
                assert ways == []
                assert not {"401", "403"} & set(operation["responses"])
                continue
            assert ({} in ways) is not asks, name
            named = [(scheme, frozenset(scopes)) for way in ways for scheme, scopes in way.items()]
            assert {scheme for scheme, _ in named} == set(page["components"]["securitySchemes"])
            needed = needed_scopes(method.upper(), path)
            assert {scopes for _, scopes in named} == ({frozenset([one]) for one in needed} or {frozenset()})


def test_examples_are_requests_that_the_model_takes_and_bodies_are_described(client: TestClient) -> None:
    page = described(client.app)
    for name, operation in operations(page):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if name in ("post /predict", "post /samples", "put /samples/{id}", "post /samples/batch-delete"):
            found = resolved(page, content["schema"])
            for one in found.get("anyOf", [found]):
                shape = resolved(page, one)
                assert shape["properties"], name
                assert shape["additionalProperties"] is False, name
        if "example" in content:
            method, path = name.split()
            path = path.replace("{id}", "c1").replace("{model_name}", "oubli")
            query = "?id=c1" if name == "put /samples" else ""
            assert client.request(method, path + query, json=content["example"]).is_success, name
    [limit] = [one for one in dict(operations(page))["get /ledger"]["parameters"] if one.get("name") == "limit"]
    assert limit["schema"]["maximum"] == limit["schema"]["default"] == 50, "the limit in force"
