from __future__ import annotations

import re

import pytest

from oubli.app.access.scopes import ALL_SCOPES, SCOPES, needed_scopes, rule_for
from oubli.app.http.app import create_app
from oubli.app.http.auth import is_open
from tests.unit.app.support import described, make_service, make_settings


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("POST", "/predict", {"predict"}),
        ("POST", "/samples", {"write"}),
        ("PUT", "/samples/c1", {"write"}),
        ("PUT", "/samples/search", {"write"}),
        ("DELETE", "/samples/c1", {"erase"}),
        ("DELETE", "/samples/a/b", {"erase"}),
        ("DELETE", "/samples", {"erase"}),
        ("POST", "/samples/batch-delete", {"erase"}),
        ("GET", "/samples", {"read", "audit"}),
        ("GET", "/samples/c1", {"read"}),
        ("HEAD", "/samples/c1", {"read"}),
        ("GET", "/samples/batch-delete", {"read"}),
        ("POST", "/samples/search", {"read"}),
        ("GET", "/snapshot", {"read"}),
        ("GET", "/snapshot/file", {"read"}),
        ("GET", "/ledger", {"read"}),
        ("POST", "/influence", {"read"}),
        ("GET", "/erasures", {"erase", "read"}),
        ("GET", "/erasures/1", {"erase", "read"}),
        ("GET", "/erasures/1/opening", {"erase", "audit"}),
        ("GET", "/ledger/1/proof", {"read"}),
        ("GET", "/ledger/consistency", {"read"}),
        ("GET", "/log/tile/0/000", {"read"}),
        ("POST", "/snapshot", {"admin"}),
        ("PUT", "/snapshot/file", {"admin"}),
        ("POST", "/model/states", {"audit"}),
        ("GET", "/model/states", {"audit"}),
        ("GET", "/model/states/3", {"audit"}),
        ("POST", "/model/fit", {"admin"}),
        ("POST", "/model/scrub", {"admin"}),
        ("POST", "/model/verify", {"admin"}),
        ("POST", "/expiry/confirm", {"admin"}),
        ("DELETE", "/cluster/nodes/three", {"admin"}),
        ("GET", "/model", set()),
        ("GET", "/events", {"read"}),
        ("GET", "/events?topic=metrics", set()),
        ("GET", "/metrics", set()),
        ("GET", "/jobs/1", set()),
        ("DELETE", "/jobs/1", {"read"}),
        ("GET", "/jobs/1/events", set()),
        ("GET", "/jobs/1/result", {"read"}),
        ("POST", "/v2/models/oubli/infer", {"predict"}),
        ("POST", "/v2/models/oubli/versions/1/infer", {"predict"}),
        ("GET", "/v2", set()),
        ("GET", "/v2/models/oubli", set()),
        ("GET", "/v2/models/oubli/ready", set()),
        ("GET", "/nowhere", set()),
        ("POST", "/samplesque", set()),
        ("PATCH", "/samples/c1", set()),
    ],
)
def test_what_a_route_needs(method, path, scopes):
    assert needed_scopes(method, path) == scopes


def test_every_route_of_the_application_is_written_down():
    page = described(create_app(make_settings(), make_service()))
    routes = [(method.upper(), path) for path, methods in page["paths"].items() for method in methods]
    assert len(routes) > 10
    missing = [
        route
        for route in routes
        if not is_open(route[1]) and rule_for(route[0], re.sub(r"\{\w+\}", "x", route[1])) is None
    ]
    assert missing == []


def test_admin_is_everything():
    assert frozenset(SCOPES) == ALL_SCOPES
    assert len(SCOPES) == len(ALL_SCOPES) == 6
