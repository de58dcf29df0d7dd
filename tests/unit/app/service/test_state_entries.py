"""States of the model in the ledger: when they are written, what they say, and when their digest is forgotten."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.api.ledger import ModelState, ProvedState, StatesAnswer
from oubli.app.errors import JournalFullError
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.service import Service
from oubli.verifier import FailedError, check_absence, check_state, read_policy
from oubli.verifier.sets import set_root
from tests.unit.app.hosted import wait_until
from tests.unit.app.service.support import raising
from tests.unit.app.support import ended, fitted, make_service, reopened, require_conforms, samples, served, served_here

LATER = CheckpointPolicy(erasure_deadline=600)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return make_service(directory=tmp_path / "data", policy=LATER)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with served(service) as client:
        yield client


def policy_of(client: Any) -> Any:
    return read_policy(f"log {client.get('/ledger/keys').json()['keys'][0]['log_key']}\nquorum none\n".encode())


def listed(client: Any) -> list[dict[str, Any]]:
    answer = client.get("/model/states?limit=50").json()
    require_conforms(StatesAnswer, answer)
    return list(answer["states"])


def told(client: Any, index: int, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/model/states/{index}{query}").json()
    require_conforms(ProvedState, answer)
    return dict(answer)


def erase(client: Any, name: str) -> None:
    receipt = client.delete(f"/samples/{name}").json()
    assert client.post("/snapshot").status_code == 201
    wait_until(lambda: client.get(f"/erasures/{receipt['id']}").json()["status"] == "erased")


def test_a_state_says_what_the_model_is_and_proves_it_and_is_told_once_a_version(client, service):
    first, again = client.post("/model/states"), client.post("/model/states")
    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
    require_conforms(ModelState, first.json())
    state, model = check_state(told(client, first.json()["index"]), policy_of(client)), service.model.state.model
    assert (state.model_version, state.entry["n_samples"], state.is_exact) == (1, 60, True)
    assert (state.digest, state.schema) == (model.digest(), model.schema_.to_dict())
    assert state.parameters == {**model.parameters_of_model(), "random_state": model.seed_}
    export, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/samples?openings=true&limit=50{cursor and '&cursor=' + cursor}").json()
        export, cursor = export + page["samples"], page["next"]
    assert set_root(export, state.positions_key).hex() == state.set_root
    assert client.post("/snapshot").status_code == 201
    assert ended(client, client.post("/model/verify").json())["result"]["ok"]
    assert [one["index"] for one in listed(client)] == [first.json()["index"]]
    client.post("/samples", json=samples(1))
    later = client.post("/model/states")
    assert (later.status_code, later.json()["model_version"]) == (201, 2)
    assert later.json()["set_root"] != first.json()["set_root"]


def test_snapshots_checks_and_finished_erasures_tell_a_state_also_after_a_restart(service, tmp_path):
    with served(service) as client:
        client.post("/samples", json=samples(1))
        digest = client.post("/snapshot").json()["digest"]
        is_current = service.disk.storage.is_current(service.model.state.seq)  # in spite of the state that it told
        assert (is_current, service.measure().snapshot_lag) == (True, 0)
        client.post("/samples", json=samples(1, "m"))
        assert not service.disk.storage.is_current(service.model.state.seq)
        live = ended(client, client.post("/model/verify").json())["result"]["live_digest"]
        erase(client, "c1")
        states = listed(client)
        assert [one["model_version"] for one in states] == [2, 3, 4]
        opened = [None, None, client.get("/snapshot").json()["digest"]]
        assert [told(client, one["index"])["digest"] for one in states] == opened, "an erasure forgets what was before"
        assert digest != live
    with served(reopened(tmp_path / "data")) as client:
        found = [(one["digest"], one["salt"] is None) for one in (told(client, state["index"]) for state in states)]
        assert found == list(zip(opened, (True, True, False), strict=True))
        assert client.post("/model/states").status_code == 200


def test_a_restore_tells_a_state_of_the_new_version(client):
    older = client.get("/snapshot/file?fresh=true").content
    client.delete("/samples/c1")
    restored = client.put("/snapshot/file", content=older)
    assert restored.status_code == 200, restored.text
    version = restored.json()["model_version"]
    wait_until(lambda: [one["model_version"] for one in listed(client)][-1] == version)
    (*_, last) = listed(client)
    assert (last["n_samples"], told(client, last["index"])["digest"]) == (59, client.get("/snapshot").json()["digest"])


def test_a_kind_that_is_not_exact_tells_the_set_only(tmp_path):
    model = fitted("online-boosting", n_estimators=2, random_state=0)
    with served(make_service(model, tmp_path / "data", policy=LATER)) as client:
        client.post("/snapshot")
        (entry,) = listed(client)
        assert (entry["guarantee"], entry["digest_hash"], entry["digest_format"]) == ("approximate", None, None)
        answer = told(client, entry["index"])
        assert (answer["salt"], answer["digest"]) == (None, None)
        assert client.post("/model/states").status_code == 200


@pytest.mark.anyio
async def test_of_a_version_before_an_erasure_that_is_being_finished_nothing_is_told(service):
    """It is asked for before, and its digest comes after: in the journal it would outlive the erasure."""
    async with served_here(service) as client:
        await client.post("/samples", json=samples(1))
        model = type(service.model.state.model)
        digest, entered, gate = model.digest, asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(copy: Any) -> str:
            if copy is not service.model.state.model and not gate.is_set():
                loop.call_soon_threadsafe(entered.set)
                asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
            return digest(copy)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "digest", slow)
            asked = asyncio.create_task(client.post("/model/states"))
            await entered.wait()
            await client.delete("/samples/n0")
            gate.set()
            patch.setattr(model, "digest", digest)
            service.evidence.states.close_before(service.model.state.version)
            answer = await asked
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:oubli:problem:superseded")
        assert (await client.get("/model/states")).json()["states"] == []


@pytest.mark.anyio
async def test_digests_are_forgotten_before_an_erasure_is_finished(service):
    async with served_here(service) as client:
        path = f"/model/states/{(await client.post('/model/states')).json()['index']}"
        assert (await client.get(path)).json()["salt"]
        service.evidence.states.close_before(service.model.state.version + 1)
        await service.evidence.states.forget()
        told = (await client.get(path)).json()
    assert (told["salt"], told["digest"]) == (None, None)


def test_a_state_that_cannot_be_written_keeps_neither_snapshots_nor_erasures_nor_proofs_from_coming(
    client, service, monkeypatch, caplog
):
    def full(records: Any, **more: Any) -> None:
        if b'"type":"state"' in records[0].notes:
            raise JournalFullError("no room on the disk")
        append(records, **more)

    with monkeypatch.context() as patched:
        patched.setattr(service.evidence.sample_set, "root", raising(RuntimeError("Ada")))
        erase(client, "c1")
    assert "could not be written to the ledger: an internal error at support.py" in caplog.text
    assert "Ada" not in caplog.text
    append = service.disk.storage.journal.append
    monkeypatch.setattr(service.disk.storage.journal, "append", full)
    client.post("/samples", json=samples(1))
    assert client.post("/snapshot").status_code == 201
    assert "a state of the model could not be written" in caplog.text
    answer = client.post("/model/states")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:oubli:problem:storage")
    assert absence(client, "nobody")["state"] is None, "it is proved over a root alone"
    assert listed(client) == []


def absence(client: Any, subject: str) -> dict[str, Any]:
    answer = client.post("/samples/absence-proofs", json={"subject": subject})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_proof_of_absence_is_over_a_root_that_the_log_tells_of(client):
    policy = policy_of(client)
    first = absence(client, "nobody")
    (entry,) = listed(client)
    told_of = check_absence(json.dumps(first), policy, name="nobody").entry
    assert (told_of, entry["digest_hash"]) == (entry["index"], None)
    assert check_absence(json.dumps(absence(client, "somebody")), policy).entry == entry["index"], "it is told once"
    assert client.post("/model/states").status_code == 201, "one with a digest is told beside it"
    assert [told(client, one["index"])["digest"] is None for one in listed(client)] == [True, False]
    for name in client.get("/samples?subject=s1&limit=50").json()["samples"]:
        client.delete(f"/samples/{name['id']}")
    later = absence(client, "s1")
    check_absence(json.dumps(later), policy, name="s1")
    # Against the root from before, in which the subject was.
    for lie in ({"state": first["state"]}, {"model_version": first["model_version"], "state": first["state"]}):
        with pytest.raises(FailedError):
            check_absence(json.dumps({**later, **lie}), policy, name="s1")


def trees_told(client: Any, index: int) -> Any:
    return told(client, index, "?trees=true")["tree_digests"]


def test_digests_of_trees_are_told_while_the_model_is_of_the_version(client, service):
    client.post("/samples", json=samples(1))
    first = client.post("/model/states").json()["index"]
    model, found = service.model.state.model, trees_told(client, first)
    assert (found, model.digest_of(found)) == (model.tree_digests(), told(client, first)["digest"])
    assert client.head(f"/model/states/{first}?trees=true").status_code == 200
    for query in ("", "?trees=false"):
        assert told(client, first, query)["tree_digests"] is None, "they were not asked for"
    client.post("/samples", json=samples(1, "m"))
    assert trees_told(client, first) is None
    assert told(client, first)["digest"] is not None
    later = client.post("/model/states").json()["index"]
    assert trees_told(client, later) == service.model.state.model.tree_digests()
    assert not service.model.holders._holds
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(model), "tree_digests", lambda model: ["00" * 32] * 5)
        assert trees_told(client, later) is None, "they do not belong to the digest"
    service.evidence.states.close_before(service.model.state.version + 1)  # an erasure is being finished
    assert trees_told(client, later) is None


def test_states_that_there_are_not(client):
    for path in ("/model/states/1", "/model/states/0", "/model/states/x", "/model/states/99999999999999999"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:oubli:problem:not-logged"), path
    assert client.get("/model/states?cursor=x").status_code == 422
    index = client.post("/model/states").json()["index"]
    for query in ("trees=1", "trees=true&trees=true", "trees=", "tree=true"):
        answer = client.get(f"/model/states/{index}?{query}")
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:oubli:problem:invalid-input")
