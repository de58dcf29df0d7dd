"""A node that follows has the model, the ledger and the unfinished erasures of the one that leads."""

import asyncio
import random
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("psycopg")

from oubli.app.errors import DeposedError, JournalDamagedError, NotLeaderError
from oubli.app.replication.follower import Follower, NewerVersionError, RejoinError, SetBackError
from oubli.app.service.recovery import start as recovery
from oubli.app.storage.journal import Record
from tests.unit.app.replication.pairs import Boundary, Pair
from tests.unit.app.support import rows, samples

pytestmark = pytest.mark.anyio


async def change(client: Any, chance: random.Random, n: int) -> None:
    """Change something at random."""
    held = (await client.get("/samples?limit=50")).json()["samples"]
    sample = "/samples/" + (chance.choice(held)["id"] if held else "c0")
    subject = f"s{chance.randrange(6)}"
    few, many = samples(3, f"a{n}-", subject=subject), samples(40, f"b{n}-")
    method, path, body, statuses = chance.choice(
        [
            *[("POST", "/samples", few, (201, 409))] * 2,
            ("POST", "/samples", many, (201, 409)),
            ("DELETE", sample, None, (200,)),
            ("PUT", sample, {"features": chance.choice(rows(9)), "label": "no"}, (200, 409, 422)),
            *(("POST", f"/subjects/{what}", {"subjects": [subject]}, (200,)) for what in ("restrict", "release")),
            ("DELETE", f"/samples?subject={subject}", None, (200,)),
        ]
    )
    answer = await client.request(method, path, json=body)
    assert answer.status_code in statuses, answer.text


@pytest.mark.parametrize("seed", range(3))
async def test_the_same_after_mixed_changes(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)
    for n in range(40):
        await change(pair.leading, chance, n)
        if chance.random() < 0.3:
            await pair.follow()
            pair.require_same()
            await pair.following.post("/predict", json={"instances": rows(2)})
    await pair.follow()
    pair.require_same()
    both = pair.leader, pair.node
    head, its_head = [await one.disk.database.read(lambda database: database.head()) for one in both]
    root, its_root = [await one.evidence.sample_set.root() for one in both]
    assert (its_head, its_root) == (head, root)


async def test_changes_and_signatures_are_for_the_leader(pair: Pair) -> None:
    before = pair.node.model.state.seq
    for method, path, body in (
        ("POST", "/samples", samples(1)),
        ("DELETE", "/samples/c0", None),
        ("PUT", "/samples/c0", {"features": rows(1)[0], "label": "no"}),
        ("POST", "/subjects/restrict", {"subjects": ["s0"]}),
        ("POST", "/model/fit", {}),
        ("POST", "/model/states", None),
        ("POST", "/expiry/confirm", None),
        ("DELETE", "/cluster/nodes/three", None),
        ("POST", "/samples/absence-proofs", {"id": "nobody"}),
        ("GET", "/log/checkpoint", None),
        ("GET", "/ledger/1/proof", None),
        ("POST", "/predict", {"instances": rows(1), "receipt": True}),
    ):
        answer = await pair.following.request(method, path, json=body)
        assert (answer.status_code, answer.json()["leader"]) == (307, "http://leader"), (path, answer.text)
        assert answer.headers["location"].startswith(f"http://leader{path}")
    assert (pair.node.model.state.seq, pair.node.disk.storage.journal.last_seq) == (before, 0)
    with pytest.raises(NotLeaderError):
        await pair.node.changes.delete(ids=["c0"])
    with pytest.raises(DeposedError, match="another node leads"):
        await pair.node.changes.writer.note(lambda: b"{}")
    # Without a leader there is no redirect.
    pair.node.model.state.leader_url = None
    answer = await pair.following.post("/samples", json=samples(1))
    told = answer.status_code, answer.json()["leader"], answer.headers["retry-after"]
    assert told == (503, None, "1")


async def test_it_leads_where_the_other_one_has_ended(pair: Pair) -> None:
    keyed = {"Idempotency-Key": "again"}
    first = await pair.leading.post("/samples", json=samples(2, "kept"), headers=keyed)
    await pair.leading.post("/samples", json=samples(1, "gone"))
    receipt = (await pair.leading.delete("/samples/gone0")).json()["id"]
    await pair.follow()
    journal = pair.own_journal
    journal.rotate(pair.node.model.state.seq + 1)  # it continues where the other one has ended
    await pair.node.lifecycle.lead()
    assert (await pair.following.post("/samples", json=samples(2, "kept"), headers=keyed)).json() == first.json()
    assert (await pair.following.post("/samples", json=samples(1, "gone"))).status_code == 409
    assert (await pair.following.get(f"/erasures/{receipt}")).json()["status"] == "unlearned"
    added = await pair.following.post("/samples", json=samples(1, "new"))
    assert added.json()["model_version"] == pair.leader.model.state.version + 1, added.text
    assert (await pair.following.delete("/samples/new0")).status_code == 200
    entries = await pair.node.disk.database.read(lambda database: database.entries(0, 100))
    assert [one["index"] for one in entries] == list(range(1, len(entries) + 1))
    assert sum(one["type"] == "signing-key" for one in entries) == 1


async def test_a_request_waits_for_the_version_that_it_asks_for(pair: Pair) -> None:
    version = (await pair.leading.post("/samples", json=samples(1))).json()["model_version"]
    asked = pair.following.post("/predict", json={"instances": rows(1)}, headers={"Min-Version": str(version)})
    waiting = asyncio.ensure_future(asked)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await pair.follow()
    assert (await waiting).json()["model_version"] == version
    headers = {"Min-Version": str(version + 1)}
    assert (await pair.following.post("/predict", json={"instances": rows(1)}, headers=headers)).status_code == 503


@pytest.mark.parametrize("what", ["a restore", "a later record", "a deletion of nobody", "a lost record"])
async def test_what_cannot_be_followed(pair: Pair, what: str) -> None:
    await pair.leading.post("/samples", json=samples(1))
    await pair.follow()
    journal = pair.journal
    body = b'{"do":"delete","ids":["nobody"]}' if what == "a deletion of nobody" else b""
    notes = b'{"entries":[{"type":"restore"}]}' if what == "a restore" else b""
    if what == "a later record":
        journal.rotate(journal.last_seq + 2)
    elif what == "a lost record":
        journal.epoch = 2
        journal.altered.add(journal.last_seq)
    journal.append([Record(journal.last_seq + 1, 9, body, notes)])
    with pytest.raises(SetBackError if what == "a lost record" else RejoinError):
        await pair.follow()


@pytest.mark.parametrize("kind", ["record", "field", "model"])
async def test_what_is_newer_is_left_to_an_upgrade(pair: Pair, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower is of a version that does not know a record, a field of one, or a kind of model."""
    await pair.leading.post("/samples", json=samples(1))
    await pair.follow()
    before, digest = pair.node.model.state.seq, pair.node.model.state.model.digest()
    if kind == "model":
        await pair.leading.post("/model/fit", json={"kind": "forest"})
        while pair.leader.model.state.seq == before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        monkeypatch.setattr("oubli.app.replication.follower.KINDS", {})
    else:
        await pair.leading.delete("/samples/c1")
        known = {name: one for name, one in recovery._KINDS.items() if name != "delete"}
        changed = {} if kind == "record" else {"delete": recovery.FitBody}
        monkeypatch.setattr(recovery, "_KINDS", {**known, **changed})
    for _ in range(2):
        with pytest.raises(NewerVersionError):
            await pair.follow()
    assert (pair.node.model.state.seq, pair.node.model.state.model.digest()) == (before, digest)
    monkeypatch.undo()  # it is upgraded
    await pair.follow()
    pair.require_same()


async def test_another_epoch_alone_is_no_reason_to_rejoin(pair: Pair) -> None:
    await pair.leading.post("/samples", json=samples(1))
    await pair.follow()
    taken_in = pair.journal.last_seq
    pair.journal.epoch = 2
    pair.journal.read_after.clear()
    await pair.leading.post("/samples", json=samples(1, "later"))
    await pair.follow()
    pair.require_same()
    assert min(pair.journal.read_after) == taken_in, "what it has was opened again, with a key that may be gone"


async def test_damage_that_stays_makes_it_rejoin(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.replication.follower._RETRY_READ", 0.001)
    pair.journal.positioned_records = Mock(side_effect=JournalDamagedError("record 1"))  # type: ignore[method-assign]
    with pytest.raises(RejoinError):
        await pair.follower.run()


async def test_who_was_deposed_follows(pair: Pair) -> None:
    """What it has answered comes before; what it refuses is another node's to make."""
    await pair.leading.post("/samples", json=samples(3))
    await pair.follow()
    pair.own_journal.rotate(pair.node.model.state.seq + 1)
    await pair.node.lifecycle.lead()
    pair.leader.model.state.depose()
    pair.leader.model.state.leader_url = "http://node"
    waiting = [asyncio.ensure_future(pair.leading.delete(f"/samples/c{i}")) for i in range(2, 6)]
    await pair.leader.lifecycle.follow()
    assert {(await one).status_code for one in waiting} == {307}
    await pair.following.post("/samples", json=samples(4, "later"))
    await pair.following.delete("/samples/later1")
    await Follower(pair.leader.lifecycle, pair.own_journal, Boundary()).catch_up()  # type: ignore[arg-type]
    pair.require_same()
    redirected = await pair.leading.post("/samples", json=samples(1, "other"))
    assert redirected.headers["location"] == "http://node/samples"
