"""Over HTTP: proofs of absence, lists with openings, and that both are of one set, whatever has happened before."""

import json
import re
import shutil
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.ledger.set_tree import Name, Positions, SetTree
from oubli.app.service.evidence import sample_set
from oubli.verifier import Policy, check_absence, read_policy, set_root
from tests.unit.app.hosted import wait_until
from tests.unit.app.service.support import fail_at
from tests.unit.app.support import NUMBERS, ended, fitted, forest, make_service, problem_of, reopened, samples, served

NOBODY = Policy((), {}, {}, "none")
OTHER = [16, "c", True]
Listed = tuple[list[dict[str, Any]], bytes, int]


def listed(client: TestClient) -> Listed:
    """All samples with their openings, the key, and the version."""
    page = client.get("/samples?openings=true&limit=50").json()
    found = page["samples"]
    while page["next"] is not None:
        page = client.get(f"/samples?openings=true&limit=50&cursor={page['next']}").json()
        found += page["samples"]
    return found, bytes.fromhex(page["positions_key"]), page["model_version"]


def absence(client: TestClient, **name: Any) -> dict[str, Any]:
    answer = client.post("/samples/absence-proofs", json=name or {"id": "nobody"})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def check_set(client: TestClient) -> bytes:
    """The root that is served is that of the list, and a proof leads to it; return it."""
    while True:
        proof, (held, key, version) = absence(client), listed(client)
        if proof["model_version"] == version:  # nothing has expired in between
            break
    root = set_root(held, key)
    trusted = "".join(f"log {one['log_key']}\n" for one in client.get("/ledger/keys").json()["keys"])
    policy = read_policy(f"{trusted}quorum none\n".encode())
    checked = check_absence(json.dumps(proof), policy, name="nobody", root=root, positions_key=key)
    assert (checked.root, checked.entry is not None) == (root, True)
    assert checked.n_samples == len([one for one in held if one["restricted_at"] is None])
    return root


def test_what_is_not_held_is_proved_absent_and_what_is_held_is_not(client):
    root = check_set(client)
    for kind, text in (("id", "ä/?"), ("id", 7), ("subject", "nobody"), ("subject", "c1"), ("id", "s1")):
        proof = absence(client, **{kind: text})
        assert (proof["by"], proof["name"]) == (f"{kind}s", str(text))
        assert check_absence(json.dumps(proof), NOBODY, root=root, name=str(text))
    for name in ({"id": "c1"}, {"subject": "s1"}):
        assert problem_of(client.post("/samples/absence-proofs", json=name)) == (409, "still-held")


def test_openings_of_a_subject_and_as_csv_and_only_when_they_are_asked_for(client):
    by_id = {one["id"]: one["nonce"] for one in listed(client)[0]}
    page = client.get("/samples?openings=true&subject=s1").json()
    assert len(page["samples"]) > 5
    assert all(by_id[one["id"]] == one["nonce"] for one in page["samples"])
    for query in ("", "?openings=false", "?subject=s1"):
        assert not {"positions_key", "nonce"} & {*re.findall(r'"(\w+)":', client.get(f"/samples{query}").text)}
    header, *lines = client.get("/samples?openings=true&subject=s1&format=csv").text.splitlines()
    assert header.startswith("id,subject,expires_at,restricted_at,weight,nonce,")
    assert {line.split(",")[5] for line in lines} == {one["nonce"] for one in page["samples"]}


def test_the_root_is_that_of_the_samples_after_every_change_and_a_restart(tmp_path: Path):
    """Random histories are in `tests/long/app/service/test_proof_histories.py`."""
    directory = tmp_path / "data"
    numbers = samples(4, "n", subject="s1")
    for one, number in zip(numbers["samples"], (0.1, 1e-7, 1e21, None), strict=True):
        one["features"][0] = number
    changes: list[tuple[str, str, Any]] = [
        ("POST", "/samples", numbers),
        ("POST", "/samples/batch-delete", {"ids": ["c0", "c9", "nobody"]}),
        ("PUT", "/samples/c1", {"features": OTHER, "label": "yes"}),
        ("PUT", "/samples/n1", {"features": [1e-7, "b", False], "label": "yes", "subject": "s8"}),
        ("POST", "/subjects/restrict", {"subjects": ["s1", "s2"]}),
        ("PUT", "/samples/c2", {"features": OTHER, "label": "no", "subject": "s3"}),
        ("POST", "/samples/batch-delete", {"subjects": ["s4"]}),
        ("POST", "/subjects/release", {"subjects": ["s1", "s2"]}),
    ]
    with served(make_service(forest(40, n_estimators=2), directory)) as client:
        roots = [check_set(client)]
        older = client.get("/snapshot/file?fresh=true").content
        for method, path, content in changes:
            assert client.request(method, path, json=content).is_success
            roots.append(check_set(client))
        ended(client, client.post("/model/fit", json={"parameters": {"n_estimators": 3}}).json())
        assert check_set(client) == roots[-1], "trees are not in it"
        assert client.put("/snapshot/file", content=older).status_code == 200
        check_set(client)
        status = 0
        while status != 201:  # a slow machine does not take it before it expires
            soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
            status = client.post("/samples", json=samples(1, "e", expires_at=soon)).status_code
        check_set(client)
        wait_until(lambda: client.get("/samples/e0").status_code == 404)
        root, before = check_set(client), listed(client)[0]
    with served(reopened(directory)) as client:
        assert {one["id"]: one["nonce"] for one in listed(client)[0]} == {one["id"]: one["nonce"] for one in before}
        assert check_set(client) == root
    assert len(set(roots)) == len(roots)


def test_weights_are_held_compared_exported_and_proved_and_are_there_after_a_restart(tmp_path: Path):
    directory, key = tmp_path / "data", {"Idempotency-Key": "k"}
    one, keyed = {"features": [1, "a", True], "label": 2.5}, {"id": "k", "features": [2, "b", True], "label": 1}

    def post(content: list[dict[str, Any]], **headers: str) -> int:
        return client.post("/samples", json={"samples": content}, headers=headers).status_code

    def weights() -> dict[str, float]:
        return {name: client.get(f"/samples/{name}").json()["weight"] for name in ("p", "q", "r", "n0")}

    with served(make_service(forest(20, NUMBERS), directory)) as client:
        sent = [{"id": "p", "subject": "s9", "weight": 0.334, **one}, {"id": "q", "weight": 2, **one}]
        assert post(sent) == 201
        assert post([{**sent[0], "weight": 0.335}, sent[1]]) == 200, "the same multiple of 1/256"
        assert [post([{**sent[1], "weight": other}]) for other in (1, 2.01, None)] == [409] * 3
        assert [post([{**keyed, "weight": w}], **key) for w in (3, 3, 4)] == [201, 201, 422]
        table = b"id,weight,age,job,member,income\nr,32767.5,1,a,true,2\nn0,,1,a,true,2\n"
        for status in (201, 200):
            assert client.post("/samples", content=table, headers={"Content-Type": "text/csv"}).status_code == status
        assert weights() == {"p": 86 / 256, "q": 2, "r": 32767.5, "n0": 1}
        sent_again = ({}, {"weight": 2}, {"weight": 5}, {"label": 3}, {"label": 3, "weight": None})
        rectified = [client.put("/samples/q", json={**one, **more}).json()["unlearned"] for more in sent_again]
        assert rectified == [0, 0, 1, 1, 1]
        assert client.put("/samples/p", json={**one, "label": 9}).json()["unlearned"] == 1
        assert client.post("/subjects/restrict", json={"subjects": ["s9"]}).status_code == 200
        (line,) = client.get("/samples?subject=s9&format=csv").text.splitlines()[1:]
        assert line.split(",")[4] == "0.3359375"
        assert client.post("/subjects/export", json={"subject": "s9"}).json()["samples"][0]["weight"] == 86 / 256
        assert client.post("/subjects/release", json={"subjects": ["s9"]}).status_code == 200
        found, root = weights(), check_set(client)
        assert found == {"p": 86 / 256, "q": 1, "r": 32767.5, "n0": 1}
        copied = shutil.copytree(directory, tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    for files in (copied, directory):  # of one that was killed, by its journal, and of one that was stopped
        with served(reopened(files)) as client:
            assert (weights(), check_set(client)) == (found, root), "with the same nonces"


def test_changes_while_the_tree_is_made_are_in_it(monkeypatch):
    """Half of the samples are read when others come, leave, change and are restricted."""
    monkeypatch.setattr(sample_set, "_AT_ONCE", 8)
    take_in, is_half, goes_on, calls = sample_set.Building.take_in, threading.Event(), threading.Event(), count(1)

    def slow(building: Any, batch: Any) -> None:
        if next(calls) == 10:
            is_half.set()
            assert goes_on.wait(60)
        take_in(building, batch)

    monkeypatch.setattr(sample_set.Building, "take_in", slow)
    with served(make_service(forest(160, n_estimators=2))) as client:
        wait_until(is_half.is_set)
        for number in (0, 1, 80, 150, 151):
            assert client.delete(f"/samples/c{number}").json()["unlearned"] == 1
        client.post("/samples", json=samples(20))
        client.post("/samples", json=samples(20, "q", subject="s3"))
        for number in (5, 90, 155):
            client.put(f"/samples/c{number}", json={"features": OTHER, "label": "no"})
        client.post("/subjects/restrict", json={"subjects": ["s2"]})
        goes_on.set()
        check_set(client)
        client.post("/subjects/release", json={"subjects": ["s2"]})
        check_set(client)


FAILING = [("put", 1), ("put", 9), ("remove", 1), ("get", 3), ("_rehash", 5), ("_rehash", 14), ("_new_node", 2)]


@pytest.mark.parametrize(("name", "nth"), FAILING)
def test_a_tree_that_was_left_half_changed_is_made_anew(monkeypatch, name, nth):
    """Memory that ends anywhere in the tree."""
    with served(make_service(forest(30, n_estimators=2))) as client:
        check_set(client)
        calls = fail_at(monkeypatch, SetTree, name, nth, MemoryError())
        for i in range(4):
            client.post("/samples", json=samples(3, f"f{i}-", subject=f"s{i}"))
            client.delete(f"/samples/c{i}")
            check_set(client)
        assert next(calls) > nth


def test_a_window_that_slides_takes_samples_out_of_the_set():
    model = fitted("tree", 20, window=20, epsilon=0.5, random_state=0)
    for i in range(20):
        model.samples_.set_subject(f"c{i}", f"s{i % 5}")
    with served(make_service(model)) as client:
        roots = {check_set(client)}
        for i in range(6):
            client.post("/samples", json=samples(i, f"w{i}-", subject="w"))
            roots.add(check_set(client))
        assert len(roots) == 6
        assert absence(client, id="c0")


def test_what_is_restricted_is_in_no_set_and_is_not_said_to_be_absent(client):
    before = check_set(client)
    client.post("/subjects/restrict", json={"subjects": ["s1"]})
    assert check_set(client) != before
    for name in ({"id": "c1"}, {"subject": "s1"}):
        answer = client.post("/samples/absence-proofs", json=name)
        assert (answer.status_code, "restricted" in answer.json()["detail"]) == (409, True)
    assert {one["nonce"] for one in listed(client)[0] if one["restricted_at"]} == {None}
    client.post("/subjects/release", json={"subjects": ["s1"]})
    assert check_set(client) == before


def test_two_names_with_one_position_have_one_leaf(monkeypatch):
    """It does not happen by chance; then the tree is made again, and the verifier comes to the same root."""
    place, build, n_builds = Positions.of, sample_set.Building.finished, []

    def crowded(positions: Positions, name: Name) -> int:
        found = place(positions, name)
        return found >> 47 << 47 | 5 if name[1] in ("c1", "c2", "n1", "s3", "s4") else found

    def crowded_too(key: bytes, by: str, name: str) -> int:
        return crowded(Positions(key), ("id" if by == "ids" else "subject", name))

    monkeypatch.setattr(Positions, "of", crowded)
    monkeypatch.setattr(sample_set.Building, "finished", lambda one: (n_builds.append(1), build(one))[1])
    monkeypatch.setattr("oubli.verifier.sets.position_of", crowded_too)
    with served() as client:
        roots = [check_set(client)]
        for method, target, body in (
            ("POST", "", samples(3)), ("DELETE", "/c1", None), ("DELETE", "?subject=s4", None), ("DELETE", "/c3", None),
            ("DELETE", "/n1", None), ("DELETE", "/n2", None), ("POST", "", samples(3, readd=True)),
            ("DELETE", "?subject=s3", None),
        ):  # fmt: skip
            assert client.request(method, f"/samples{target}", json=body).is_success
            roots.append(check_set(client))
        assert len(set(roots)) == len(roots)
        assert len(n_builds) > 3
