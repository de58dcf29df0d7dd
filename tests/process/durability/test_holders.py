"""Before an erasure says `erased`, everything that may hold something of a sample is rid of it: one list, one test."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import hashlib
import http.client
import json
import re
import socket
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pytest
import zstandard

import oubli.app.service.evidence.sample_set
import oubli.app.service.jobs.exports
import oubli.app.service.jobs.model_jobs
import oubli.app.service.model.influence
import oubli.app.service.recovery.rebuild
from oubli.app.datasets.streams import ArrowWriter
from oubli.app.http.formats import csv_line
from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Sender, WebhookSigner, read_processor
from oubli.app.replication.follower import Follower
from oubli.app.replication.peers import SNAPSHOT_PATH, PeerError
from oubli.app.replication.start import join
from oubli.app.service.changes.additions import AddBody
from oubli.app.service.changes.deletions import DeleteBody
from oubli.app.service.erasure.checkpoint import Checkpointer, CheckpointPolicy
from oubli.app.service.erasure.holders import KINDS, Holders
from oubli.app.service.model.state import ModelState
from oubli.app.service.outbox.deliveries import Push
from oubli.app.service.outbox.subject_requests import Processor
from oubli.app.storage.directory import TEMPORARY, DataDirectory
from oubli.app.storage.journal import Record
from oubli.app.storage.postgres.journal import PositionMark
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.core import DynamicForestClassifier
from oubli.verifier.sets import hash_of_sample
from tests.process.durability.canaries import Canary, canary, files_with, forms, remains, traces
from tests.process.durability.listener import listening
from tests.reach import array_bytes, texts
from tests.tiers import covering
from tests.unit.app.hosted import Hosted, hosted, wait_until
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.support import forest, make_service, served_here

DOMAIN = "opendsr.processor.example"
CALLBACK = "http://controller.example/callbacks"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

_ROW: tuple[Any, ...] = (0, 0, 0, 0, 0, 0, "", 0, 0, 0, 0, 0, 0)


def _bird(number: int) -> Canary:
    """A canary for the small model: a number, a word, and one of two."""
    one = canary(number, _ROW)
    return replace(one, features=(one.numbers[0], one.word, True))


BIRD, NEVER = _bird(4), _bird(800)
PLACE = f"/samples/{quote(BIRD.id, safe='')}"
DEADLINE = 2.0


@dataclass
class Scene:
    """A server that has learned the canary."""

    host: Hosted
    directory: Path
    older: bytes  # a snapshot with the canary
    monkeypatch: pytest.MonkeyPatch
    gate: threading.Event = field(default_factory=threading.Event)

    def unlearn(self) -> str:
        """Have the canary deleted; return the receipt's id."""
        status, receipt = self.host.ask("DELETE", PLACE)
        assert (status, receipt["unlearned"]) == (200, 1)
        return str(receipt["id"])

    def receipt(self, name: str) -> dict[str, Any]:
        return dict(self.host.ask("GET", f"/erasures/{name}")[1])

    @property
    def version(self) -> int:
        return int(self.host.ask("GET", "/model")[1]["model_version"])

    def begin_job(self, path: str, content: Any = None) -> str:
        status, job = self.host.ask("POST", path, {} if content is None else content)
        assert status == 202, job
        return str(job["id"])

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.host.ask("GET", f"/jobs/{name}")[1])

    def wait_for_job(self, name: str) -> dict[str, Any]:
        wait_until(lambda: self.job(name)["status"] in ("succeeded", "failed"))
        return self.job(name)


@contextmanager
def scene(
    directory: Path, monkeypatch: pytest.MonkeyPatch, deadline: float = DEADLINE, told: int | None = None
) -> Iterator[Scene]:
    """Yield a server; it tells a receiver on a port of this machine, if there is one."""
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    directory.parent.mkdir(exist_ok=True)
    push, callbacks = None, {}
    if told is not None:
        hooks, callback = (parse_endpoint(f"http://127.0.0.1:{told}{path}", plain_http=True) for path in ("/a", "/b"))
        push = Push(Sender(AddressRules(("127.0.0.0/8",)), 30.0), (hooks, WebhookSigner([SECRET])))
        callbacks = {CALLBACK: callback}
    signer = read_processor(DOMAIN, *certificate(directory.parent, authority(), DOMAIN))
    policy = CheckpointPolicy(erasure_deadline=deadline)
    processor = Processor(signer, callbacks=callbacks)
    service = make_service(forest(60), directory, policy=policy, processor=processor, push=push)
    with hosted(service) as host:
        content = {"samples": [BIRD.as_json(features=list(BIRD.features), label="yes")]}
        assert host.ask("POST", "/samples", content)[0] == 201
        assert host.ask("POST", "/snapshot")[0] == 201
        status, older = host.ask_bytes("GET", "/snapshot/file")
        assert status == 200
        one = Scene(host, directory, older, monkeypatch)
        try:
            yield one
        finally:
            one.gate.set()


Check = Callable[[], None]
"""Called when the receipt says `erased`."""


def _question(scene: Scene) -> str:
    features = list(BIRD.features)
    return scene.begin_job("/influence", {"instances": [features], "labels": ["yes"], "top": 1000})


def _ranking(scene: Scene, job: dict[str, Any]) -> tuple[int, Any]:
    return scene.host.ask("GET", f"/jobs/{job['id']}/result")


def rankings(scene: Scene) -> tuple[str, Check]:
    """The job has ended before."""
    job = scene.wait_for_job(_question(scene))
    status, ranking = _ranking(scene, job)
    assert status == 200
    assert BIRD.id in [one["id"] for one in ranking["helpful"] + ranking["harmful"]], "the ranking is blind"

    def check() -> None:
        assert _ranking(scene, job)[0] == 404

    return scene.unlearn(), check


def _held_up_question(scene: Scene) -> None:
    """A question that takes long, and tells now and then how far it is."""
    answer = oubli.app.service.model.influence._ask

    def slow(*arguments: Any) -> Any:
        progress = arguments[4]
        while not scene.gate.wait(0.02):
            progress(0, 1)
        return answer(*arguments)

    scene.monkeypatch.setattr(oubli.app.service.model.influence, "_ask", slow)


def influence_running(scene: Scene) -> tuple[str, Check]:
    """The job would continue for ever: it is ended."""
    _held_up_question(scene)
    job = _question(scene)
    wait_until(lambda: scene.job(job)["status"] == "running")

    def check() -> None:
        ended = scene.wait_for_job(job)
        assert ended["status"] == "failed"
        assert "ask again" in ended["error"]

    return scene.unlearn(), check


def influence_queued(scene: Scene) -> tuple[str, Check]:
    """The job waits for another, with the instances that it was given."""
    _held_up_question(scene)
    first, second = _question(scene), _question(scene)

    def check() -> None:
        assert [scene.wait_for_job(job)["status"] for job in (first, second)] == ["failed", "failed"]

    return scene.unlearn(), check


def influence_ended_after(scene: Scene) -> tuple[str, Check]:
    """The job ends between the deletion and the end of the erasure, and has a ranking with the canary in it."""
    _held_up_question(scene)
    job = _question(scene)
    wait_until(lambda: scene.job(job)["status"] == "running")
    receipt = scene.unlearn()
    scene.gate.set()
    ended = scene.wait_for_job(job)
    assert ended["status"] == "succeeded"

    def check() -> None:
        assert _ranking(scene, ended)[0] == 404

    return receipt, check


def _export(scene: Scene) -> str:
    """A bundle of the canary's subject, as a job."""
    scene.monkeypatch.setattr(oubli.app.service.jobs.exports, "_FEW", 0)
    return scene.begin_job("/subjects/export", {"subject": BIRD.subject})


def bundles(scene: Scene) -> tuple[str, Check]:
    """The job has ended before, and the bundle is not given out any more at once."""
    job = scene.wait_for_job(_export(scene))
    place = f"/jobs/{job['id']}/result"
    status, bundle = scene.host.ask("GET", place)
    assert status == 200
    assert [one["id"] for one in bundle["samples"]] == [BIRD.id], "the bundle is blind"
    receipt = scene.unlearn()

    def check() -> None:
        assert scene.host.ask("GET", place)[0] == 404

    return receipt, check


def bundles_running(scene: Scene) -> tuple[str, Check]:
    """The job would continue for ever: it is ended."""
    collect = oubli.app.service.jobs.exports._collect

    def slow(store: Any, names: list[str], hold: Any) -> Any:
        found = collect(store, names, hold)
        while not scene.gate.wait(0.02):
            hold.require()
        return found

    scene.monkeypatch.setattr(oubli.app.service.jobs.exports, "_collect", slow)
    job = _export(scene)
    wait_until(lambda: scene.job(job)["status"] == "running")
    # Changes wait for who reads the model: the deletion is asked for on a connection that waits for it.
    client = scene.host.connect()
    client.sendall(f"DELETE {PLACE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    time.sleep(0.3)
    scene.gate.set()
    head, _, body = client.recv(2**16).partition(b"\r\n\r\n")
    client.close()
    assert b" 200 " in head.splitlines()[0], head
    receipt = json.loads(body)["id"]
    ended = scene.wait_for_job(job)
    place = f"/jobs/{ended['id']}/result"

    def check() -> None:
        assert scene.host.ask("GET", place)[0] == 404

    return receipt, check


def bundles_queued(scene: Scene) -> tuple[str, Check]:
    """The job waits for another, with the subject that it was given."""
    _held_up_question(scene)
    first, second = _question(scene), _export(scene)

    def check() -> None:
        assert [scene.wait_for_job(job)["status"] for job in (first, second)] == ["failed", "failed"]

    return scene.unlearn(), check


def set_behind(scene: Scene) -> tuple[str, Check]:
    """The tree over the samples is being changed by others, and has yet to take in that the canary has left."""
    sample_set = scene.host.service.evidence.sample_set
    take_in, hold_up = oubli.app.service.evidence.sample_set.Leaves.take_in, threading.Event()

    def slow(leaves: Any, batch: Any) -> None:
        if batch.ids and not hold_up.wait(0):
            hold_up.set()
            assert scene.gate.wait(60)
        take_in(leaves, batch)

    leaf = _leaf_of(scene)
    assert leaf in _in_tree(sample_set), "the search is blind"
    scene.monkeypatch.setattr(oubli.app.service.evidence.sample_set.Leaves, "take_in", slow)
    others = {"samples": [{"id": f"o{i}", "features": [i, "a", True], "label": "yes"} for i in range(40)]}
    assert scene.host.ask("POST", "/samples", others)[0] == 201
    wait_until(hold_up.is_set)
    receipt = scene.unlearn()
    assert scene.host.ask("POST", "/snapshot")[0] == 201
    time.sleep(0.3)
    assert scene.receipt(receipt)["status"] == "unlearned"
    assert leaf in _in_tree(sample_set)
    scene.gate.set()

    def check() -> None:
        assert leaf not in _in_tree(sample_set)
        assert not sample_set._touched.ids | sample_set._touched.subjects

    return receipt, check


def _opened(scene: Scene) -> dict[str, Any]:
    """The canary with its nonce."""
    status, page = scene.host.ask("GET", f"/samples?openings=true&subject={quote(BIRD.subject)}")
    assert status == 200
    (sample,) = page["samples"]
    return dict(sample)


def _leaf_of(scene: Scene) -> bytes:
    """The hash of the canary, once it is in the tree."""
    assert scene.host.ask("POST", "/samples/absence-proofs", {"id": NEVER.id})[0] == 200
    return hash_of_sample(_opened(scene))


def hashes_of(scene: Scene) -> list[bytes]:
    """The nonce of the canary in all its forms, and the hashes that it is in."""
    one = _leaf_of(scene)
    of_subject = hashlib.sha256(one).digest()
    nonce = bytes.fromhex(_opened(scene)["nonce"])
    leaves = [hashlib.sha256(b"\0" + content).digest() for content in (one, of_subject)]
    return [nonce, base64.b64encode(nonce), nonce.hex().encode(), one, of_subject, *leaves]


def hashes_left(scene: Scene, hashes: list[bytes]) -> list[bytes]:
    """Those of them that files or memory hold."""
    everything = scene.host.everything
    places = [array_bytes(everything), "\0".join(texts(everything)).encode("utf-8", "replace")]
    places += [path.read_bytes() for path in scene.directory.rglob("*") if path.is_file()]
    return [one for one in hashes if any(one in place for place in places)]


def _in_tree(sample_set: Any) -> bytes:
    return bytes(sample_set._leaves.tree._contents)


def verify(scene: Scene) -> tuple[str, Check]:
    """A copy is verified: it is waited for, and ended when the deadline passes."""
    compare = DynamicForestClassifier.verify

    def slow(model: Any, *rest: Any) -> Any:
        assert scene.gate.wait(60)
        return compare(model, *rest)

    scene.monkeypatch.setattr(DynamicForestClassifier, "verify", slow)
    job = scene.begin_job("/model/verify")
    wait_until(lambda: scene.job(job)["status"] == "running" and scene.job(job)["progress"] >= 0.1)
    receipt = scene.unlearn()
    assert scene.host.ask("POST", "/snapshot")[0] == 201
    wait_until(lambda: scene.receipt(receipt)["overdue"])
    assert scene.receipt(receipt)["status"] == "unlearned"
    scene.gate.set()

    def check() -> None:
        ended = scene.wait_for_job(job)
        assert ended["status"] == "failed"
        assert "ask again" in ended["error"]

    return receipt, check


def states(scene: Scene) -> tuple[str, Check]:
    """A state is asked for: the copy whose digest is made is waited for, and nothing is written of that version."""
    digest = DynamicForestClassifier.digest

    def slow(model: Any) -> str:
        if model is not scene.host.service.model.state.model and threading.current_thread().name.startswith(
            "oubli-builder"
        ):
            assert scene.gate.wait(60)
        return digest(model)

    scene.host.ask("POST", "/samples", {"samples": [{"id": "more", "features": [1, "a", True], "label": "no"}]})
    scene.monkeypatch.setattr(DynamicForestClassifier, "digest", slow)
    answers: list[tuple[int, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(scene.host.ask("POST", "/model/states")))
    asking.start()
    wait_until(lambda: any(hold.kind == "states" for hold in set(scene.host.service.model.holders._holds)))
    receipt = scene.unlearn()
    assert scene.host.ask("POST", "/snapshot")[0] == 201
    assert scene.receipt(receipt)["status"] == "unlearned"
    scene.gate.set()

    def check() -> None:
        asking.join(60)
        assert [status for status, _ in answers] == [503]

    return receipt, check


def trees(scene: Scene) -> tuple[str, Check]:
    """The digests of the trees of a state are asked for: the copy is waited for, and none of that version is told."""
    status, told = scene.host.ask("POST", "/model/states")
    assert status in (200, 201)
    digests = DynamicForestClassifier.tree_digests

    def slow(model: Any) -> list[str]:
        if model is not scene.host.service.model.state.model and threading.current_thread().name.startswith(
            "oubli-builder"
        ):
            assert scene.gate.wait(60)
        return digests(model)

    scene.monkeypatch.setattr(DynamicForestClassifier, "tree_digests", slow)
    answers: list[tuple[int, Any]] = []
    path = f"/model/states/{told['index']}?trees=true"
    asking = threading.Thread(target=lambda: answers.append(scene.host.ask("GET", path)))
    asking.start()
    wait_until(lambda: any(hold.kind == "states" for hold in set(scene.host.service.model.holders._holds)))
    receipt = scene.unlearn()
    assert scene.host.ask("POST", "/snapshot")[0] == 201
    assert scene.receipt(receipt)["status"] == "unlearned"
    scene.gate.set()

    def check() -> None:
        asking.join(60)
        assert [(status, answer["tree_digests"]) for status, answer in answers] == [(200, None)]

    return receipt, check


def fingerprints(scene: Scene) -> tuple[str, Check]:
    """Jobs have ended before whose results hold digests and scores."""
    verified = scene.wait_for_job(scene.begin_job("/model/verify"))
    fitted = scene.wait_for_job(scene.begin_job("/model/fit", {"parameters": {"n_estimators": 4}}))
    digest = verified["result"]["live_digest"]
    assert digest in texts_of(scene), "the search is blind"
    assert fitted["result"]["score"] is not None

    def check() -> None:
        assert scene.job(verified["id"])["result"]["live_digest"] is None
        assert scene.job(fitted["id"])["result"]["score"] is None
        assert digest not in texts_of(scene)

    return scene.unlearn(), check


def events(scene: Scene) -> tuple[str, Check]:
    """Somebody has listened, and does not any more."""
    client = scene.host.connect()
    client.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"
    wait_until(lambda: "digest" in str(scene.host.app.state.feeds["state"]._source._told))
    digest = scene.host.ask("GET", "/snapshot")[1]["digest"]
    assert digest in texts_of(scene), "the search is blind"
    client.close()
    wait_until(lambda: not scene.host.app.state.feeds["state"].is_running)

    def check() -> None:
        assert digest not in texts_of(scene)

    return scene.unlearn(), check


def texts_of(scene: Scene) -> str:
    """All text that can be reached from the server."""
    return "\0".join(texts(scene.host.everything))


def fit(scene: Scene) -> tuple[str, Check]:
    """Another model is fitted on samples from before: no snapshot can finish the erasure until it has ended."""
    refit = oubli.app.service.recovery.rebuild.refit

    def slow(*arguments: Any) -> Any:
        assert scene.gate.wait(60)
        return refit(*arguments)

    scene.monkeypatch.setattr(oubli.app.service.recovery.rebuild, "refit", slow)
    job = scene.begin_job("/model/fit", {"parameters": {"n_estimators": 3}})
    wait_until(lambda: scene.job(job)["progress"] > 0)
    receipt = scene.unlearn()
    assert scene.host.ask("POST", "/snapshot")[0] == 201
    time.sleep(0.3)
    assert scene.receipt(receipt)["status"] == "unlearned"
    scene.gate.set()
    scene.wait_for_job(job)
    return receipt, lambda: None


def _absence(scene: Scene) -> str:
    """A question about the model without the canary, with its values as the instance; a job."""
    scene.monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    return scene.begin_job("/predict/without", {"instances": [list(BIRD.features)], "ids": [BIRD.id]})


def _comparison(scene: Scene, job: dict[str, Any]) -> tuple[int, Any]:
    return scene.host.ask("GET", f"/jobs/{job['id']}/result")


def comparisons(scene: Scene) -> tuple[str, Check]:
    """The job has ended before."""
    job = scene.wait_for_job(_absence(scene))
    status, found = _comparison(scene, job)
    assert (status, found["removed"]) == (200, 1)

    def check() -> None:
        assert _comparison(scene, job)[0] == 404

    return scene.unlearn(), check


def without(scene: Scene) -> tuple[str, Check]:
    """A copy is asked: it is waited for, and overwritten; what it has found is dropped."""
    compare = oubli.app.service.model.influence._compare

    def slow(copy: Any, absence: Any, asked: Any, version: int) -> Any:
        while not asked.hold.is_ended:
            time.sleep(0.01)
        return compare(copy, absence, asked, version)

    scene.monkeypatch.setattr(oubli.app.service.model.influence, "_compare", slow)
    job, other = _absence(scene), _absence(scene)  # one has the copy, and one waits for it
    wait_until(lambda: scene.job(job)["status"] == "running")

    def check() -> None:
        for one in (job, other):
            ended = scene.wait_for_job(one)
            assert ended["status"] == "failed"
            assert "ask again" in ended["error"]

    return scene.unlearn(), check


def without_ended_after(scene: Scene) -> tuple[str, Check]:
    """The copy is asked between the deletion and the end of the erasure."""
    compare = oubli.app.service.model.influence._compare

    def slow(*arguments: Any) -> Any:
        assert scene.gate.wait(60)
        return compare(*arguments)

    scene.monkeypatch.setattr(oubli.app.service.model.influence, "_compare", slow)
    job = _absence(scene)
    wait_until(lambda: scene.job(job)["status"] == "running" and scene.job(job)["progress"] >= 0.2)
    receipt = scene.unlearn()
    scene.gate.set()
    ended = scene.wait_for_job(job)
    assert ended["status"] == "succeeded"

    def check() -> None:
        assert _comparison(scene, ended)[0] == 404

    return receipt, check


def score(scene: Scene) -> tuple[str, Check]:
    """A fit is made and scored in folds: scoring is ended, and the fit has succeeded all the same."""
    answer = oubli.app.service.jobs.model_jobs.answer_fold

    def slow(*arguments: Any) -> Any:
        holders = scene.host.service.model.holders
        while not any(hold.kind == "score" and hold.is_ended for hold in holders._holds):
            time.sleep(0.01)
        return answer(*arguments)

    scene.monkeypatch.setattr(oubli.app.service.jobs.model_jobs, "answer_fold", slow)
    job = scene.begin_job("/model/fit", {"parameters": {"occurrence": 1.0}})
    wait_until(lambda: any(hold.kind == "score" for hold in set(scene.host.service.model.holders._holds)))

    def check() -> None:
        ended = scene.wait_for_job(job)
        assert ended["status"] == "succeeded"
        assert ended["result"]["score"] is None

    return scene.unlearn(), check


def uploads(scene: Scene) -> tuple[str, Check]:
    """An older snapshot comes in, and then nothing more of it."""
    client = scene.host.connect()
    head = f"PUT /snapshot/file HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(scene.older) + 1}\r\n\r\n"
    client.sendall(head.encode() + scene.older)
    wait_until(lambda: scene.host.service.model.holders._holds)
    receipt = scene.unlearn()

    def check() -> None:
        answer = client.recv(4096)
        client.close()
        assert answer.startswith(b"HTTP/1.1 503"), answer[:200]
        assert b"upload-dropped" in answer

    return receipt, check


def downloads(scene: Scene) -> tuple[str, Check]:
    """A snapshot is sent to somebody who does not take it in."""
    large = scene.directory.parent / "large"
    large.write_bytes(b"\0" * 2**25)
    export = Checkpointer.export

    async def exported(checkpointer: Checkpointer) -> Any:
        return replace(await export(checkpointer), path=large)

    scene.monkeypatch.setattr(Checkpointer, "export", exported)
    client = scene.host.connect(4096)
    client.sendall(b"GET /snapshot/file HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert client.recv(10) == b"HTTP/1.1 2"
    receipt = scene.unlearn()

    def check() -> None:
        received = 10
        with suppress(ConnectionError):
            while piece := client.recv(2**20):
                received += len(piece)
        client.close()
        assert received < 2**25

    return receipt, check


def receive(client: socket.socket) -> bytes:
    """One whole answer, which must be a good one; head and body may come one after the other."""
    answer = b""
    while True:
        piece = client.recv(2**16)
        assert piece, answer
        answer += piece
        head, end, body = answer.partition(b"\r\n\r\n")
        if end:
            assert head.startswith(b"HTTP/1.1 200"), answer
            length = re.search(rb"\r\ncontent-length: (\d+)", head)
            assert length is not None
            if len(body) == int(length[1]):
                return answer


def inference(target: bytes) -> bytes:
    """A request of the inference protocol about the canary, with bytes behind its JSON."""
    tensor, size = b'{"name": "%b", "datatype": "%b", "shape": [1], %b}', b'"parameters": {"binary_data_size": %d}'
    word = BIRD.word.encode()
    inputs = (
        tensor % (b"age", b"FP64", size % 8),
        tensor % (b"job", b"BYTES", size % (4 + len(word))),
        tensor % (b"member", b"BOOL", b'"data": [true]'),
    )
    header = b'{"inputs": [%b, %b, %b]}' % inputs
    body = header + struct.pack("<dI", BIRD.numbers[0], len(word)) + word
    lengths = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d" % (len(header), len(body))
    return b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n\r\n%b" % (target, lengths, body)


def connections_idle(scene: Scene) -> tuple[str, Check]:
    """Connections stay open that asked about the canary last, on the short way and on the ordinary one."""
    body = json.dumps({"instances": [list(BIRD.features)]}, ensure_ascii=False).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    asked = [head % len(body) + body, f"GET {PLACE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()]
    versions = (b"", b"/versions/%d" % scene.version)  # the short way, and the ordinary one
    asked += [inference(b"/v2/models/oubli%b/infer" % version) for version in versions]
    asked.append(f"DELETE {PLACE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    clients = []
    answer = b""
    for request in asked:
        clients.append(scene.host.connect())
        clients[-1].sendall(request)
        answer = receive(clients[-1])
    receipt = answer.partition(b'"id":"')[2][:36].decode()

    def check() -> None:
        for client in clients:  # they were not closed for it
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            receive(client)
            client.close()

    return receipt, check


def connections_stalled(scene: Scene) -> tuple[str, Check]:
    """Half a body that nothing follows, on the short way and on the ordinary one."""
    clients = []
    for method, target in (("POST", "/samples"), ("POST", "/samples/search")):
        client = scene.host.connect()
        head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        client.sendall(f'{head}Content-Length: 500\r\n\r\n{{"subject": "{BIRD.subject}'.encode())
        clients.append(client)
    time.sleep(0.1)
    receipt = scene.unlearn()

    def check() -> None:
        for client in clients:
            with suppress(ConnectionError):
                assert client.recv(100) == b""
            client.close()

    return receipt, check


def _begin_gzip(content: bytes) -> bytes:
    encoder = zlib.compressobj(wbits=31)
    return encoder.compress(content) + encoder.flush(zlib.Z_SYNC_FLUSH)


def _begin_zstd(content: bytes) -> bytes:
    encoder = zstandard.ZstdCompressor().compressobj()
    return encoder.compress(content) + encoder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


# Whole bodies, and beginnings of bodies from which all that they hold can be decoded.
ENCODE = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
BEGIN = {"gzip": _begin_gzip, "zstd": _begin_zstd}


def _encoded(method: str, target: str, name: str, body: bytes, length: int | None = None) -> bytes:
    """Return a request whose body is encoded, and whose answer may be."""
    fields = f"Content-Type: application/json\r\nContent-Encoding: {name}\r\nAccept-Encoding: {name}\r\n"
    length = len(body) if length is None else length
    return f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}Content-Length: {length}\r\n\r\n".encode() + body


def _answer(client: socket.socket) -> http.client.HTTPResponse:
    """Read the whole answer to the only request that was sent."""
    with http.client.HTTPResponse(client) as answer:
        answer.begin()
        answer.read()
        return answer


def connections_encoded_idle(scene: Scene) -> tuple[str, Check]:
    """Connections stay open whose last request, or the answer to it, came compressed and held the canary."""
    features = list(BIRD.features)
    instances = json.dumps({"instances": [features] * 200}).encode()
    subject = json.dumps({"subject": BIRD.subject}).encode()
    refused = json.dumps({"samples": [BIRD.as_json(features=features, label=None)]}).encode()
    asked = [("POST", "/predict", instances, 200), ("POST", "/samples/search", subject, 200)]
    asked.append(("POST", "/samples", refused, 422))
    status, page = scene.host.ask("GET", "/samples?limit=50")
    assert status == 200
    clients = []
    for name, encode in ENCODE.items():
        for method, target, body, expected in asked:
            clients.append(scene.host.connect())
            clients[-1].sendall(_encoded(method, target, name, encode(body)))
            assert _answer(clients[-1]).status == expected
        clients.append(scene.host.connect())
        clients[-1].sendall(_encoded("GET", f"/samples?limit=50&cursor={page['next']}", name, b""))
        assert _answer(clients[-1]).headers["Content-Encoding"] == name
    receipt = scene.unlearn()

    def check() -> None:
        for client in clients:  # they were not closed for it
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert _answer(client).status == 200
            client.close()

    return receipt, check


def connections_encoded_stalled(scene: Scene) -> tuple[str, Check]:
    """The beginning of a compressed body that nothing follows; what it decodes to is known already."""
    clients = []
    begun = f'{{"subject": "{BIRD.subject}", "more": "'.encode()
    for name, begin in BEGIN.items():
        for target in ("/samples", "/samples/search", "/predict"):
            client = scene.host.connect()
            client.sendall(_encoded("POST", target, name, begin(begun), 500))
            clients.append(client)
    time.sleep(0.1)
    receipt = scene.unlearn()

    def check() -> None:
        for client in clients:
            with suppress(ConnectionError):
                assert client.recv(100) == b""
            client.close()

    return receipt, check


def _begin_table(scene: Scene, path: str, *columns: str) -> socket.socket:
    """Begin a CSV body in chunks."""
    client = scene.host.connect()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/csv\r\nAccept: text/csv\r\n"
    client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    _send(client, ",".join(columns) + "\r\n")
    return client


def _send(client: socket.socket, text: str) -> None:
    data = text.encode()
    client.sendall(b"%x\r\n%b\r\n" % (len(data), data))


def connections_bulk_stalled(scene: Scene) -> tuple[str, Check]:
    """Tables with the canary that nothing follows: not yet read, answered in part, and a dictionary that is kept."""
    row, more = csv_line(BIRD.features), csv_line([1, "a", True]) * 60_000
    clients = [_begin_table(scene, "/predict", "age", "job", "member") for _ in range(2)]
    _send(clients[0], row)
    _send(clients[1], more + row)
    assert clients[1].recv(12) == b"HTTP/1.1 200"
    clients.append(_begin_table(scene, "/samples", "age", "job", "member", "income"))
    _send(clients[2], csv_line([*BIRD.features, "yes"]) + (csv_line([1, "a", True, "yes"]) * 30_000))
    table = pa.table({"age": [1] * 500, "job": pa.array([BIRD.word] * 500).dictionary_encode(), "member": [True] * 500})
    writer, kind = ArrowWriter(table.schema), "application/vnd.apache.arrow.stream"
    clients.append(scene.host.connect())
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nAccept: {kind}\r\n"
    data = b"".join(writer.write(table.to_batches()[0]) for _ in range(9))
    clients[3].sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(data):x}\r\n".encode() + data + b"\r\n")
    assert clients[3].recv(12) == b"HTTP/1.1 200"
    time.sleep(0.1)
    receipt = scene.unlearn()

    def check() -> None:
        for client in clients:
            with suppress(ConnectionError):
                while piece := client.recv(2**16):
                    assert not piece.endswith(b"0\r\n\r\n")
            client.close()

    return receipt, check


def uploads_encoded(scene: Scene) -> tuple[str, Check]:
    """An older snapshot comes in compressed, and then nothing more of it."""
    clients = []
    for name, begin in BEGIN.items():
        client = scene.host.connect()
        begun = begin(scene.older)
        client.sendall(_encoded("PUT", "/snapshot/file", name, begun, len(begun) + 9))
        clients.append(client)
        wait_until(lambda: len(scene.host.service.model.holders._holds) == len(clients))
    receipt = scene.unlearn()

    def check() -> None:
        for client in clients:
            answer = client.recv(4096)
            client.close()
            assert answer.startswith(b"HTTP/1.1 503"), answer[:200]
            assert b"upload-dropped" in answer

    return receipt, check


def _opendsr_request(kind: str, *callbacks: str) -> dict[str, Any]:
    identity = {"identity_type": "controller_customer_id", "identity_value": BIRD.subject, "identity_format": "raw"}
    return {
        "regulation": "gdpr",
        "subject_request_id": str(uuid.uuid4()),
        "subject_request_type": kind,
        "submitted_time": "2026-10-02T15:00:00Z",
        "subject_identities": [identity],
        "status_callback_urls": list(callbacks),
    }


def connections_opendsr(scene: Scene) -> tuple[str, Check]:
    """A controller asks for the erasure, by a name that its request and the answer hold, and keeps the connection."""
    content = _opendsr_request("erasure")
    request, body = content["subject_request_id"], json.dumps(content).encode()
    head = "POST /opendsr/v2/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    client = scene.host.connect()
    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert _answer(client).status == 201
    (receipt,) = scene.host.ask("GET", f"/erasures?ref={request}")[1]["erasures"]

    def check() -> None:
        status, found = scene.host.ask("GET", f"/opendsr/v2/requests/{request}")
        assert (status, found["request_status"]) == (200, "completed")
        client.close()

    return str(receipt["id"]), check


def records(scene: Scene) -> tuple[str, Check]:
    """A node that follows has read an addition, its deletion, and what comes in the next segment, at once."""
    node = make_service(forest(60))
    first, held, forgotten = node.model.state.seq + 1, list[int](), list[int]()
    content = AddBody([BIRD.id], [list(BIRD.features)], ["yes"], [BIRD.subject], None, 0)
    other = AddBody(["other"], [[1, "a", True]], ["no"], None, None, 0)
    bodies = [orjson.dumps(one) for one in (content, DeleteBody([BIRD.id]), other)]

    class Read(Record):
        """A record as the follower has it."""

    class Journal:
        mark = PositionMark(None)

        def positioned_records(self, after_seq: int) -> Iterator[tuple[int, int, bytes, Record]]:
            for seq, body in enumerate(bodies, first):
                if seq > after_seq:
                    segment = first if seq < first + 2 else first + 2
                    yield segment, 1, b"", Read(seq, seq, body, b"")

        def wait(self, after_seq: int, timeout: float) -> bool:
            return False

        def forget(self) -> None:
            forgotten.append(node.model.state.seq)

    class Boundary:
        def is_before(self, first_seq: int) -> bool:
            return False

        async def cross(self, first_seq: int) -> None:
            if first_seq > first:
                found = [one for one in gc.get_objects() if type(one) is Read]
                held.extend(one.seq for one in found if traces(BIRD, one.body))
                assert len(found) == 1, "the search is blind"
                await node.model.holders.rid(node.model.state.period, 5.0)

    async def follow() -> None:
        async with served_here(node):
            node.model.state.following = True
            await Follower(node.lifecycle, Journal(), Boundary()).catch_up()  # type: ignore[arg-type]
            assert node.model.state.model.samples_.contains("other")

    assert traces(BIRD, bodies[0]), "the search is blind"
    asyncio.run(follow())
    assert held == []
    assert forgotten

    return scene.unlearn(), lambda: None


def joins(scene: Scene) -> tuple[str, Check]:
    """A node has got a snapshot, and then not the ledger; and one that was killed meanwhile starts again."""
    path = scene.directory.parent / "joining"
    seen = []

    class Leader:
        def download(self, url: str, what: str, file: Any) -> None:
            if what != SNAPSHOT_PATH:
                seen.extend(files_with([BIRD], path))
                raise PeerError("it is gone")
            file.write(scene.older)
            file.flush()

    directory = DataDirectory(path)
    with suppress(PeerError):
        join(directory, path / "keys", SegmentKeys(path / "keys" / "segments"), Leader(), "")  # type: ignore[arg-type]
    assert seen, "the search is blind"
    assert files_with([BIRD], path) == []
    (path / TEMPORARY.format("0")).write_bytes(scene.older)
    directory.close()
    DataDirectory(path).close()
    assert files_with([BIRD], path) == []

    return scene.unlearn(), lambda: None


def idempotency(scene: Scene) -> tuple[str, Check]:
    """Requests with keys whose bodies held the canary: one of many samples, a table, its subject, a rectification."""
    place = f"/samples?id={quote(BIRD.id, safe='')}"
    content = {"features": list(BIRD.features), "label": "yes"}
    others = [{"id": f"o{n}", "features": [n, "a", True], "label": "no"} for n in range(3)]
    columns = ("id", "subject", "age", "job", "member", "income")
    line = csv_line([BIRD.id, BIRD.subject, *BIRD.features, "yes"])
    sent: dict[str, tuple[str, str, str, bytes]] = {}

    def send(key: str, method: str, path: str, route: str, body: Any, kind: str = "application/json") -> int:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent[key] = method, path, kind, raw
        status, answer = scene.host.ask_bytes(method, path, raw, **{"Idempotency-Key": key, "Content-Type": kind})
        assert status in (200, 201), answer
        hashed_part = b"\0".join((BIRD.id.encode(), b"", raw)) if method == "PUT" else raw
        if kind == "text/csv":
            hashed_part = b"text/csv\0" + raw
        digest = hashlib.sha256(hashed_part).hexdigest()
        hashes.append(scene.host.service.disk.ledger.hash_text(f"{route}\0{digest}").encode())
        return status

    hashes: list[bytes] = []
    samples = [*others, BIRD.as_json(**content)]
    send("many", "POST", "/samples", "POST /samples", {"samples": samples})
    send("table", "POST", "/samples", "POST /samples", (csv_line(columns) + line).encode(), "text/csv")
    send("new", "PUT", place, "PUT /samples", {**content, "label": "no"})
    send("same", "PUT", place, "PUT /samples", {**content, "label": "no"})
    subjects = {"subjects": [BIRD.subject]}
    send("retain", "POST", "/subjects/retain", "POST /subjects/retain", {**subjects, "seconds": 10**6})
    send("restrict", "POST", "/subjects/restrict", "POST /subjects/restrict", subjects)
    send("release", "POST", "/subjects/release", "POST /subjects/release", subjects)
    assert hashes_left(scene, hashes) == hashes, "the search is blind"
    send("other", "POST", "/samples", "POST /samples", {"samples": [{**others[0], "id": "apart"}]})
    kept = hashes.pop()
    receipt = scene.unlearn()

    def check() -> None:
        assert hashes_left(scene, hashes) == []
        assert hashes_left(scene, [kept]) == [kept]
        version, answers = scene.version, set()
        for key, (method, path, kind, raw) in sent.items():
            headers = {"Idempotency-Key": key, "Content-Type": kind}
            wrong = raw.replace(b"no", b"yes") if b"no" in raw else raw.replace(BIRD.subject.encode(), b"another")
            found = [scene.host.ask_bytes(method, path, body, **headers) for body in (raw, wrong)]
            if key == "other":
                assert [status for status, _ in found] == [201, 422]
            else:
                answers.update(found)
        assert len(answers) == 1, answers
        ((status, body),) = answers
        assert (status, json.loads(body)["type"].rpartition(":")[2]) == (409, "key-spent")
        assert scene.version == version

    return receipt, check


SITUATIONS: dict[str, tuple[Callable[[Scene], tuple[str, Check]], ...]] = {
    "rankings": (rankings, influence_ended_after),
    "bundles": (bundles, bundles_running, bundles_queued),
    "influence": (influence_running, influence_queued),
    "set": (set_behind,),
    "verify": (verify,),
    "states": (states, trees),
    "fingerprints": (fingerprints,),
    "events": (events,),
    "without": (without, without_ended_after),
    "comparisons": (comparisons,),
    "score": (score,),
    "fit": (fit,),
    "records": (records,),
    "joins": (joins,),
    "idempotency": (idempotency,),
    "uploads": (uploads, uploads_encoded),
    "downloads": (downloads,),
    "connections": (
        connections_idle,
        connections_opendsr,
        connections_stalled,
        connections_encoded_idle,
        connections_encoded_stalled,
        connections_bulk_stalled,
    ),
}


def test_every_holder_has_its_situation():
    assert SITUATIONS.keys() == KINDS.keys()


def test_a_holder_that_is_not_on_the_list_is_refused():
    holders = Holders(ModelState(forest(0), 1, 0))
    with pytest.raises(ValueError, match="not in `KINDS`"):
        holders.hold("a new one")
    with pytest.raises(ValueError, match="not in `KINDS`"):
        holders.register("a new one", lambda period: None)


def _by_snapshot(scene: Scene) -> None:
    assert scene.host.ask("POST", "/snapshot")[0] == 201


def _by_restore(scene: Scene) -> None:
    status, answer = scene.host.ask_bytes("PUT", "/snapshot/file", scene.older)
    assert status == 200, answer


FINISHES = (_by_snapshot, _by_restore)


@pytest.mark.parametrize(
    ("situation", "finish"), covering([one for many in SITUATIONS.values() for one in many], FINISHES)
)
def test_nothing_outlives_an_erasure(tmp_path, monkeypatch, situation, finish):
    directory = tmp_path / "data"
    with scene(directory, monkeypatch) as here:
        assert files_with([BIRD], directory), "the search is blind"
        hashes = hashes_of(here)
        assert len(hashes_left(here, hashes)) > 2, "the search is blind"
        receipt, check = situation(here)
        finish(here)
        wait_until(lambda: here.receipt(receipt)["status"] == "erased")
        assert hashes_left(here, hashes) == []
        assert files_with([BIRD], directory) == []
        assert remains(here.host.everything, BIRD) == set()
        assert remains(here.host.everything, NEVER) == set()
        check()
        assert here.host.ask("GET", PLACE)[0] == 404


@pytest.mark.parametrize(("status", "finish"), covering([204, 500, 410], FINISHES))
def test_queues_and_dead_letters_name_nobody(tmp_path, monkeypatch, status, finish):
    """Webhooks and callbacks that have arrived, that wait, and that were given up."""
    directory, bodies = tmp_path / "data", list[bytes]()

    def take(path: str, headers: dict[str, str], body: bytes) -> int:
        bodies.append(body)
        return status

    with listening(take) as port, scene(directory, monkeypatch, told=port) as here:
        access, erasure = (_opendsr_request(kind, CALLBACK) for kind in ("access", "erasure"))
        assert here.host.ask("POST", "/opendsr/v2/requests", access)[0] == 201
        place = f"/opendsr/v2/requests/{access['subject_request_id']}"
        wait_until(lambda: here.host.ask("GET", place)[1]["request_status"] == "completed")
        assert remains(here.host.everything, BIRD) >= {"id", "subject"}, "the search is blind"
        assert here.host.ask("POST", "/opendsr/v2/requests", erasure)[0] == 201
        case = erasure["subject_request_id"]
        (receipt,) = here.host.ask("GET", f"/erasures?ref={case}")[1]["erasures"]
        finish(here)
        wait_until(lambda: here.receipt(receipt["id"])["status"] == "erased")
        measure, letters = here.host.service.measure, list[dict[str, Any]]()

        def is_over() -> bool:
            letters[:] = here.host.ask("GET", "/webhooks/dead-letters")[1]["dead_letters"]
            found = measure()
            if status == 500:
                return found.deliveries_failed >= 2 and found.deliveries_due > 0
            n_dead = 3 if status == 410 else 0
            is_told = status == 410 or found.deliveries_arrived >= 6
            return is_told and found.deliveries_due == 0 and len({one["id"] for one in letters}) == n_dead

        wait_until(is_over)
        assert {one["ref"] for one in letters} <= {None, case}
        assert not traces(BIRD, json.dumps(letters, ensure_ascii=False).encode())
        assert bodies
        assert not [body for body in bodies if traces(BIRD, body)]
        assert files_with([BIRD], directory) == []
        assert remains(here.host.everything, BIRD) == set()


@pytest.mark.parametrize(("finish", "is_released"), covering(FINISHES, [False, True]))
def test_nothing_outlives_the_erasure_of_what_was_restricted(tmp_path, monkeypatch, finish, is_released):
    directory = tmp_path / "data"
    with scene(directory, monkeypatch) as here:
        subjects = {"subjects": [BIRD.subject]}
        status, made = here.host.ask("POST", "/subjects/restrict", subjects)
        assert (status, made["samples"]) == (200, 1)
        here.host.ask("POST", "/snapshot")
        assert files_with([BIRD], directory), "the search is blind"
        found = remains(here.host.everything, BIRD)
        assert {"id", "subject", "word", "number 0"} <= found, "the search is blind"
        if is_released:
            assert here.host.ask("POST", "/subjects/release", subjects)[1]["samples"] == 1
            assert here.host.ask("POST", "/subjects/restrict", subjects)[1]["samples"] == 1
        status, receipt = here.host.ask("POST", "/samples/batch-delete", subjects)
        assert (status, receipt["unlearned"]) == (200, 1)
        finish(here)
        wait_until(lambda: here.receipt(receipt["id"])["status"] == "erased")
        assert files_with([BIRD], directory) == []
        assert remains(here.host.everything, BIRD) == set()


def test_nothing_of_the_old_content_outlives_the_rectification_of_what_is_restricted(tmp_path, monkeypatch):
    directory = tmp_path / "data"
    with scene(directory, monkeypatch) as here:
        here.host.ask("POST", "/subjects/restrict", {"subjects": [BIRD.subject]})
        content = {"features": [1, "a", True], "label": "no", "subject": "another"}
        status, receipt = here.host.ask("PUT", PLACE, content)
        assert (status, receipt["unlearned"]) == (200, 1)
        _by_snapshot(here)
        wait_until(lambda: here.receipt(receipt["id"])["status"] == "erased")
        assert {what.rpartition(": ")[2] for what in files_with([BIRD], directory)} == {"id"}
        assert remains(here.host.everything, BIRD) == {"id"}


def test_a_prediction_in_bulk_goes_on_while_an_erasure_is_finished(tmp_path, monkeypatch):
    with scene(tmp_path / "data", monkeypatch, deadline=240) as here:
        client = _begin_table(here, "/predict", "age", "job", "member")
        _send(client, csv_line(BIRD.features))
        received, is_erased = [], threading.Event()

        def read() -> None:
            while not received or not received[-1].endswith(b"0\r\n\r\n"):
                received.append(client.recv(2**16))

        def write() -> None:
            while not is_erased.wait(0.01):
                _send(client, csv_line([1, "a", True]) * 5000)
            client.sendall(b"0\r\n\r\n")

        threads = [threading.Thread(target=work) for work in (read, write)]
        for thread in threads:
            thread.start()
        wait_until(lambda: received)
        receipt = here.unlearn()
        _by_snapshot(here)
        wait_until(lambda: here.receipt(receipt)["status"] == "erased")
        assert not here.receipt(receipt)["overdue"]
        assert remains(here.host.everything, BIRD) == set()
        is_erased.set()
        for thread in threads:
            thread.join(240)
        client.close()
        answer = b"".join(received)
        assert answer.endswith(b"0\r\n\r\n"), "it was cut off"
        assert answer.split(b"\r\n\r\n", 1)[1].count(b",3\r\n") > 5000, "rows behind the deletion"


def test_the_search_of_memory_finds_what_is_held(tmp_path, monkeypatch):
    with scene(tmp_path / "data", monkeypatch) as here:
        found = {"id", "subject", "word", "number 0"}
        assert found <= remains(here.host.everything, BIRD) <= forms(BIRD).keys()
