import re

from oubli.app.access.scopes import needed_scopes, rule_for
from oubli.app.http.app import create_app
from oubli.app.http.auth import is_open
from tests.unit.app.support import described, make_service, make_settings

NEEDED = {
    "predict": "POST /predict, POST /v2/models/oubli/infer, POST /v2/models/oubli/versions/1/infer",
    "explain": "POST /explain",
    "write": "POST /samples, PUT /samples/c1, PUT /samples/search",
    "erase": "DELETE /samples/c1, DELETE /samples/a/b, DELETE /samples, POST /samples/batch-delete",
    "read audit": "GET /samples",
    "read": "GET /samples/c1, HEAD /samples/c1, GET /samples/batch-delete, POST /samples/search, GET /snapshot, "
    "GET /snapshot/file, GET /ledger, POST /influence, GET /ledger/1/proof, GET /ledger/consistency, "
    "GET /log/tile/0/000, GET /events, DELETE /jobs/1, GET /jobs/1/result",
    "erase read": "GET /erasures, GET /erasures/1",
    "erase audit": "GET /erasures/1/opening",
    "audit": "POST /model/states, GET /model/states, GET /model/states/3",
    "admin": "POST /snapshot, PUT /snapshot/file, POST /model/fit, POST /model/scrub, POST /model/verify, "
    "POST /expiry/confirm, DELETE /cluster/nodes/three",
    "": "GET /model, GET /events?topic=metrics, GET /metrics, GET /jobs/1, GET /jobs/1/events, GET /v2, "
    "GET /v2/models/oubli, GET /v2/models/oubli/ready, GET /nowhere, POST /samplesque, PATCH /samples/c1",
}


def test_what_a_route_needs():
    for scopes, routes in NEEDED.items():
        for route in routes.split(", "):
            assert needed_scopes(*route.split()) == set(scopes.split()), route


def test_every_route_of_the_application_is_written_down():
    page = described(create_app(make_settings(), make_service()))
    routes = [(method.upper(), path) for path, methods in page["paths"].items() for method in methods]
    assert len(routes) > 10
    for method, path in routes:
        assert is_open(path) or rule_for(method, re.sub(r"\{\w+\}", "x", path)) is not None, (method, path)
