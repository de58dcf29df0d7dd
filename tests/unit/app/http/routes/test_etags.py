"""A sample has an entity tag, by which a change is made only to what the caller has seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.app.hosted import hosted
from tests.unit.app.support import make_service, problem_of, reopened, served, served_here

NEW = {"features": [5, "b", False], "label": "no"}


def tag(client: TestClient, name: str = "c1") -> str:
    found = client.get(f"/samples/{name}").headers["etag"]
    assert client.get(f"/samples?id={name}").headers["etag"] == found
    return found


@pytest.mark.parametrize("path", ["/samples/c1", "/samples?id=c1"])
def test_a_sample_is_replaced_only_as_it_was_read(client: TestClient, path: str) -> None:
    first = tag(client)
    assert client.put(path, json=NEW, headers={"If-Match": first}).status_code == 200
    second = tag(client)
    assert second != first
    for stale in (first, f"W/{second}", '"x"', "", second.strip('"')):
        refused = client.put(path, json={**NEW, "label": "yes"}, headers={"If-Match": stale})
        assert problem_of(refused) == (412, "sample-changed")
    assert client.get("/samples/c1").json()["label"] == "no"
    for matching in ("*", f'"x", {second}'):
        assert client.put(path, json=NEW, headers={"If-Match": matching}).status_code == 200
    assert client.put("/samples/nobody", json=NEW, headers={"If-Match": "*"}).status_code == 404


def delete(client: TestClient, path: str, tag: str, **names: Any) -> Any:
    """Delete by a path and its query, or by a body."""
    headers = {"If-Match": tag}
    return client.post(path, json=names, headers=headers) if names else client.delete(path, headers=headers)


BATCH = "/samples/batch-delete"


def test_a_sample_is_deleted_only_as_it_was_read(client: TestClient) -> None:
    for name, path, names in (("c1", "/samples/c1", {}), ("c2", "/samples?id=c2", {}), ("c3", BATCH, {"ids": ["c3"]})):
        first = tag(client, name)
        client.put(f"/samples/{name}", json=NEW)
        assert delete(client, path, first, **names).status_code == 412
        held = tag(client, name)
        receipt = delete(client, path, held, **names)
        assert (receipt.status_code, receipt.json()["unlearned"]) == (200, 1)
        # A lost answer is asked for again: what is gone is as the caller wants it.
        again = delete(client, path, held, **names)
        assert again.json()["id"] == receipt.json()["id"]


def test_a_tag_is_of_one_sample(client: TestClient) -> None:
    for path, names in (
        ("/samples?id=c1&id=c2", {}), ("/samples?subject=s1", {}),
        (BATCH, {"ids": ["c1", "c2"]}), (BATCH, {"subjects": ["s1"]}),
    ):  # fmt: skip
        refused = delete(client, path, "*", **names)
        assert refused.json()["errors"][0]["pointer"] == "/If-Match"
    assert client.get("/model").json()["n_samples"] == 60


def test_what_the_caller_has_is_not_sent_again(client: TestClient) -> None:
    known, path = tag(client), "/samples/c1"
    for sent in (known, f"W/{known}", "*", f'"x", {known}'):
        answer = client.get(path, headers={"If-None-Match": sent})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", known)
        assert answer.headers["cache-control"] == "no-store"
    client.delete("/samples/c7")
    assert client.get(path, headers={"If-None-Match": known}).status_code == 304  # another version of the model
    client.put("/samples/c1", json=NEW)
    assert client.get(path, headers={"If-None-Match": known}).status_code == 200


def test_a_tag_changes_with_all_that_is_told_of_a_sample(client: TestClient) -> None:
    seen, late = [tag(client)], {"expires_at": "2999-01-01T00:00:00Z"}
    for method, path, content in (
        *(("PUT", "samples/c1", {**NEW, **more}) for more in ({"subject": "s1"}, {"weight": 2}, late)),
        ("POST", "subjects/retain", {"subjects": ["s1"], "seconds": 10**6}),
        *(("POST", f"subjects/{what}", {"subjects": ["s1"]}) for what in ("restrict", "release")),
    ):
        assert client.request(method, f"/{path}", json=content).status_code == 200
        seen.append(tag(client))
    assert len(set(seen[:6])) == 6
    assert seen[6] == seen[4]  # as before the restriction
    client.put("/samples/c1", json={**NEW, **late, "weight": 2})
    assert client.get("/samples/c1").json()["weight"] == 2


def test_a_tag_tells_nothing_of_the_content_and_survives_a_restart(tmp_path: Path) -> None:
    """Equal samples, and the same one added again, have different tags: nobody can test a guess by them."""
    with served(make_service(directory=tmp_path)) as client:
        client.post("/samples", json={"samples": [{"id": name, **NEW} for name in ("m", "n")]})
        first = tag(client, "m")
        assert first != tag(client, "n")
        client.delete("/samples/m")
        client.post("/samples", json={"samples": [{"id": "m", **NEW, "readd": True}]})
        assert tag(client, "m") != first
        before = [tag(client, name) for name in ("c1", "m", "n")]
    with served(reopened(tmp_path)) as client:
        assert [tag(client, name) for name in ("c1", "m", "n")] == before


@pytest.mark.anyio
async def test_of_two_changes_of_the_same_sample_the_second_is_refused() -> None:
    async with served_here(make_service()) as client:
        known = (await client.get("/samples/c1")).headers["etag"]
        headers = {"If-Match": known}
        answers: list[Any] = await asyncio.gather(
            client.put("/samples/c1", json=NEW, headers=headers),
            client.put("/samples/c1", json={**NEW, "label": "yes"}, headers=headers),
            client.delete("/samples/c1", headers=headers),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 412, 412]


def test_the_fast_path_leaves_conditions_to_the_route() -> None:
    with hosted(make_service()) as host:
        for _ in range(2):  # the second request of a head that is known
            status, problem = host.ask("DELETE", "/samples/c1", **{"If-Match": '"x"'})
            assert (status, problem["type"]) == (412, "urn:oubli:problem:sample-changed")
        assert host.ask("DELETE", "/samples/c1")[1]["unlearned"] == 1
