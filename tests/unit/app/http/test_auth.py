"""Keys as callers meet them: over HTTP, on both ways in; and what `GET /access` tells of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from oubli.app.access.keys import FILE_NAME, AccessKeys, create_key, now_ms, revoke_key
from oubli.app.access.scopes import SCOPES
from oubli.app.http.problems import ProblemError
from oubli.app.http.routes.pages import ASSETS
from tests.unit.app.http.connections import access_rules, both_ways, hosting, make_key, request
from tests.unit.app.support import make_service, pick, problem_of, samples, served

pytestmark = pytest.mark.anyio

PREDICT = b'{"instances": [[1, "a", true]]}'
ADD = b'{"samples": [{"id": "n1", "features": [1, "a", true], "label": "yes"}]}'


# Who may ask besides admin.
PREDICTION = {"instances": [[1, "a", True]]}
ASKED: list[tuple[set[str], str, str, Any]] = [
    ({"predict"}, "POST", "/predict", PREDICTION), ({"explain"}, "POST", "/explain", PREDICTION),
    ({"write"}, "POST", "/samples", samples(1, "w")), ({"erase"}, "DELETE", "/samples?id=c2", None),
    ({"read"}, "GET", "/samples/c9", None), (set(), "POST", "/snapshot", {}),
    ({"read", "audit"}, "GET", "/samples?openings=false", None),
    *(({"audit"}, "GET", f"/samples?openings=true{more}", None) for more in ("", "&format=csv")),
    ({"erase", "read", "audit"}, "POST", "/samples/absence-proofs", {"id": "nobody"}),
    *((set(SCOPES), "GET", path, None) for path in ("/model", "/openapi.json")),  # they tell nothing of samples
]  # fmt: skip


def test_each_scope_allows_its_own_and_nothing_else(tmp_path: Path) -> None:
    keys = {scope: make_key(tmp_path, scope) for scope in SCOPES}
    with served(data_dir=tmp_path) as client:
        for allowed, method, path, content in ASKED:
            assert problem_of(client.request(method, path, json=content)) == (401, "key-needed")
            for given, text in keys.items():
                response = client.request(method, path, json=content, headers={"X-API-Key": text})
                if given in {*allowed, "admin"}:
                    assert response.status_code not in (401, 403, 404, 405, 500), (method, path, given)
                else:
                    assert problem_of(response) == (403, "scope-needed"), (method, path, given)
                    assert any(f"'{scope}'" in response.json()["detail"] for scope in allowed or {"admin"})
                    assert text not in response.text


@both_ways
async def test_a_key_ends_at_its_instant_on_both_ways(tmp_path: Path, hot: bool) -> None:
    """On a connection that has used it, whatever the way: not up to a second later."""
    end = now_ms() + 3_600_000
    sent = asking("POST", "/predict", PREDICT, make_key(tmp_path, "admin", expires_ms=end))
    async with hosting(make_service(), hot=hot, data_dir=tmp_path) as host:
        host.hot._rules.access_keys._now_ms = lambda: now
        connection = host.connect()
        for moment in (end - 1, end - 1, end, end, end + 1):
            now = moment
            connection.send(sent)
            await host.settle()
        assert connection.statuses + (await host.ask(sent)).statuses == [200, 200, 401, 401, 401, 401]


def test_unknown_expired_and_revoked_keys_are_answered_alike(tmp_path: Path) -> None:
    live, expired = make_key(tmp_path, "admin"), make_key(tmp_path, "admin", expires_ms=now_ms() - 1)
    revoked = make_key(tmp_path, "admin")
    revoke_key(tmp_path / FILE_NAME, revoked.split("_")[1])
    unknown = live[:-1] + ("0" if live[-1] != "0" else "1")
    with served(data_dir=tmp_path) as client:
        answers = [client.get("/model", headers={"X-API-Key": text}) for text in (expired, revoked, unknown, "x", "")]
        assert {(response.status_code, response.text) for response in answers} == {(401, answers[0].text)}
        assert answers[0].headers["www-authenticate"].startswith("Bearer")
        assert client.get("/model", headers={"Authorization": f"Bearer {live}"}).status_code == 200
        assert [client.get("/nowhere", headers=sent).status_code for sent in ({}, {"X-API-Key": live})] == [401, 404]
        assert all(client.get(path).status_code == 200 for path in ("/healthz", "/readyz", *ASSETS))
    (tmp_path / FILE_NAME).write_text("{")  # damaged: it turns all away, but health
    with served(data_dir=tmp_path) as client:
        assert client.get("/model", headers={"X-API-Key": live}).status_code == 401
        assert client.get("/healthz").status_code == 200


def test_a_refused_scope_comes_before_the_body_is_looked_at(tmp_path: Path) -> None:
    text = make_key(tmp_path, "predict").encode()
    rules = access_rules(limit=10, access_keys=AccessKeys(tmp_path / FILE_NAME))
    headers = {b"host": b"127.0.0.1", b"x-api-key": text, b"content-length": b"999",
               b"content-type": b"application/json"}  # fmt: skip
    for path, slug in (("/samples", "scope-needed"), ("/predict", "body-too-large")):
        with pytest.raises(ProblemError) as caught:
            rules.check("POST", path, headers)
        assert caught.value.kind.slug == slug


# --- the short way in


def asking(method: str, target: str, body: bytes, text: str) -> bytes:
    return request(method, target, body, more={"X-API-Key": text})


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("predict", [200, 403, 403]), ("write", [403, 201, 403]), ("erase", [403, 403, 200]), ("admin", [200, 201, 200])],
)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
async def test_a_connection_that_was_let_in_is_asked_again_on_another_route(tmp_path, scope, allowed, order):
    text = make_key(tmp_path, scope)
    routes = [
        asking("POST", "/predict", PREDICT.ljust(len(ADD)), text),  # the headers are the same, byte for byte
        asking("POST", "/samples", ADD, text),
        asking("DELETE", "/samples/c1", b"", text),
    ]
    async with hosting(make_service(), data_dir=tmp_path) as host:
        noted = host.count_hot()
        found = (await host.ask(*(routes[i] for i in order))).statuses
    assert found == [allowed[i] for i in order]
    assert sum(noted) == sum(status < 300 for status in found)


async def test_a_revoked_key_closes_a_connection_that_it_had_opened(tmp_path: Path) -> None:
    text = make_key(tmp_path, "predict")
    async with hosting(make_service(), data_dir=tmp_path) as host:
        keys, seconds = host.hot._rules.access_keys, 0.0
        keys.monotonic = lambda: seconds
        keys._next_look = keys.look_at = 1.0
        connection = host.connect()

        async def ask() -> int:
            connection.send(asking("POST", "/predict", PREDICT, text))
            await host.settle()
            return connection.statuses[-1]

        assert [await ask() for _ in range(3)] == [200, 200, 200]
        revoke_key(tmp_path / FILE_NAME, text.split("_")[1])
        assert await ask() == 200  # the file was looked at less than a second ago
        seconds = 1.0
        assert [await ask() for _ in range(2)] == [401, 401]
        assert json.loads(connection.answers[-1].body)["type"].endswith("key-needed")


def test_a_key_learns_its_scopes_and_admin_learns_all_keys(tmp_path: Path) -> None:
    with served() as client:
        open_to_all = {"asks_for_key": False, "id": None, "name": None, "expires_at": None, "keys": []}
        assert client.get("/access").json() == {**open_to_all, "scopes": list(SCOPES)}
    path, owner_key = tmp_path / FILE_NAME, "0123456789abcdef-key"
    reader, text = create_key(path, name="reader", scopes=["read", "erase"], expires_ms=now_ms() + 10**7)
    admin, admin_text = create_key(path, name="chief", scopes=["admin"], expires_ms=None)
    old, _ = create_key(path, name="old", scopes=["predict"], expires_ms=now_ms() - 1)
    gone, _ = create_key(path, name="gone", scopes=["predict"], expires_ms=None)
    revoke_key(path, gone.id)
    (tmp_path / "api-key").write_text(owner_key)
    with served(make_service(), data_dir=tmp_path, api_key_file=tmp_path / "api-key") as client:
        told: list[Any] = []
        for given in (text, admin_text, owner_key):
            answer = client.get("/access", headers={"Authorization": f"Bearer {given}"})
            assert not any(secret.rpartition("_")[2] in answer.text for secret in (text, admin_text, owner_key))
            told.append(answer.json())
        seen, chief, owner = told
        assert pick(seen, "asks_for_key id name") == (True, reader.id, "reader")
        assert (seen["scopes"], seen["expires_at"] is None, "keys" in seen) == (["erase", "read"], False, False)
        assert (chief["name"], chief["scopes"]) == ("chief", list(SCOPES))
        assert {one["id"]: one["status"] for one in chief["keys"]} == {
            None: "live", reader.id: "live", admin.id: "live", old.id: "expired", gone.id: "revoked",
        }  # fmt: skip
        assert pick(owner, "id name scopes") == (None, "api_key", list(SCOPES))
