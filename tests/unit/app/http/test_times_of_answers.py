"""Every time in an answer has one form, and whatever is not there is answered by what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.app.support import described, forest, make_service, served

TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")
LOOKS_LIKE_ONE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


def times(value: Any, schema: Any, components: dict[str, Any], name: str = "") -> Iterator[tuple[str, str]]:
    """The names and values of an answer that its schema, or their look, says are times."""
    while isinstance(schema, dict) and "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    schema = schema if isinstance(schema, dict) else {}
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if isinstance(value, dict):
        for key, item in value.items():
            yield from times(item, schema.get("properties", {}).get(key), components, key)
    elif isinstance(value, list):
        for item in value:
            yield from times(item, schema.get("items"), components, name)
    elif isinstance(value, str):
        is_time = schema.get("format") == "date-time" or any(one.get("format") == "date-time" for one in branches)
        if is_time or LOOKS_LIKE_ONE.match(value):
            yield name, value
    for branch in branches if isinstance(value, (dict, list)) else ():
        yield from times(value, branch, components, name)


def test_every_time_of_every_answer_is_utc_to_the_millisecond(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef-key")
    with served(make_service(forest(), tmp_path / "data"), api_key_file=tmp_path / "key") as client:
        client.headers["X-API-Key"] = "0123456789abcdef-key"
        page = described(client.app)
        sample = {"id": "m", "subject": "ada", "features": [1, "a", True], "label": "yes"}
        dated = {**sample, "expires_at": "2999-01-31T12:00:00+01:00"}
        asked = [
            ("POST", "/samples", {"samples": [dated]}),
            ("GET", "/samples/m", None),
            ("GET", "/samples", None),
            ("POST", "/subjects/restrict", {"subjects": ["ada"]}),
            ("GET", "/samples?subject=ada", None),
            ("POST", "/subjects/export", {"subject": "ada"}),
            ("POST", "/subjects/release", {"subjects": ["ada"]}),
            ("POST", "/subjects/retain", {"subjects": ["ada"], "seconds": 1000}),
            ("PUT", "/samples/m", {"features": [2, "a", True], "label": "yes"}),
            ("DELETE", "/samples/m", None),
            ("GET", "/erasures", None),
            ("GET", "/ledger", None),
            ("GET", "/ledger/keys", None),
            ("POST", "/snapshot", {}),
            ("GET", "/snapshot", None),
            ("GET", "/model", None),
            ("GET", "/access", None),
            ("GET", "/readyz", None),
            ("GET", "/cluster", None),
        ]
        found: dict[str, set[str]] = {}
        for method, path, body in asked:
            answer = client.request(method, path, json=body)
            assert answer.status_code < 300 or path == "/cluster", (path, answer.text)
            place = (
                path.partition("?")[0].replace("/m", "/{id}")
                if path.startswith("/samples/")
                else path.partition("?")[0]
            )
            operation = page["paths"][place][method.lower()]
            reply = operation["responses"].get(str(answer.status_code), {})
            schema = reply.get("content", {}).get("application/json", {}).get("schema")
            for name, value in times(answer.json(), schema, page["components"]["schemas"]):
                found.setdefault(name, set()).add(path)
                assert TIME.fullmatch(value), (path, name, value)
        csv = client.get("/samples?format=csv").text
        assert all(TIME.fullmatch(text) for text in re.findall(r"\d{4}-\d\d-\d\dT[^,\r\n]*", csv))
        expected = {"created_at", "at", "received_at", "unlearned_at", "expires_at", "restricted_at", "exported_at"}
        assert expected <= found.keys()
        with client.stream("GET", "/events?topic=state") as events:
            told = next(line for line in events.iter_lines() if "snapshot" in line)
        stamps = re.findall(r'"(\d{4}-\d\d-\d\dT[^"]*)"', told)
        assert stamps
        assert all(map(TIME.fullmatch, stamps))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "content"),
    [
        ("GET", "/samples/nobody", None, 404, {}),
        ("GET", "/samples?id=nobody", None, 404, {}),
        ("PUT", "/samples/nobody", {"features": [1, "a", True], "label": "yes"}, 404, {}),
        ("GET", "/erasures/123e4567-e89b-12d3-a456-426614174000", None, 404, {}),
        ("GET", "/jobs/nothing", None, 404, {}),
        ("GET", "/samples?subject=nobody", None, 200, {"samples": [], "next": None}),
        ("POST", "/samples/search", {"subject": "nobody"}, 200, {"samples": [], "next": None}),
        ("POST", "/samples/search", {"ids": ["nobody"]}, 200, {"samples": [], "next": None}),
        ("GET", "/erasures?ref=123e4567-e89b-12d3-a456-426614174000", None, 200, {"erasures": [], "next": None}),
        ("POST", "/subjects/export", {"subject": "nobody"}, 200, {"held": False, "samples": []}),
        ("POST", "/subjects/restrict", {"subjects": ["nobody"]}, 200, {"absent": 1, "samples": 0}),
        ("POST", "/subjects/release", {"subjects": ["nobody"]}, 200, {"absent": 1, "samples": 0}),
        ("DELETE", "/samples/nobody", None, 200, {"absent": 1, "unlearned": 0}),
        ("POST", "/samples/batch-delete", {"subjects": ["nobody"]}, 200, {"absent": 1, "unlearned": 0}),
    ],
)
def test_what_is_not_there_is_answered_by_what_was_asked_for(
    client: TestClient, method: str, path: str, body: Any, status: int, content: dict[str, Any]
) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == status
    assert content.items() <= answer.json().items()
