"""Before an erasure says `erased`, everything that may hold something of a sample is rid of it: one list, one test."""

import asyncio
import base64
import gzip
import hashlib
import http.client
import json
import logging
import socket
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import zstandard

from oubli.app.datasets.streams import ArrowWriter
from oubli.app.http.formats import csv_line
from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Sender, WebhookSigner, read_processor
from oubli.app.replication.peers import SNAPSHOT_PATH, PeerError
from oubli.app.replication.start import join
from oubli.app.service.erasure.checkpoint import Checkpointer, CheckpointPolicy
from oubli.app.service.erasure.holders import KINDS, Holders
from oubli.app.service.evidence import sample_set
from oubli.app.service.jobs import exports, model_jobs
from oubli.app.service.model import influence
from oubli.app.service.model.state import ModelState
from oubli.app.service.outbox.deliveries import Push
from oubli.app.service.outbox.subject_requests import Processor
from oubli.app.service.recovery import rebuild
from oubli.app.storage.directory import TEMPORARY, DataDirectory
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.core import DynamicForestClassifier
from oubli.verifier.sets import hash_of_sample
from tests.histories.guesses import is_in
from tests.process.durability.canaries import canary, files_with, forms, remains, traces
from tests.process.durability.listener import listening
from tests.reach import array_bytes, texts
from tests.tiers import covering
from tests.unit.app.hosted import Hosted, hosted, wait_until
from tests.unit.app.http.routes.test_opendsr import DOMAIN, asked
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.replication.pairs import paired
from tests.unit.app.support import forest, make_service

CALLBACK = "http://controller.example/callbacks"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

# Canaries for the small model: a number, a word, and one of two.
_CANARIES = [canary(number, (0,) * 13) for number in (4, 800)]
BIRD, NEVER = (replace(one, features=(one.numbers[0], one.word, True)) for one in _CANARIES)
FEATURES = list(BIRD.features)
BIRDS = {"samples": [BIRD.as_json(features=FEATURES, label="yes")]}
PLACE = f"/samples/{quote(BIRD.id, safe='')}"

Check = Callable[[], None]
"""Called when the receipt says `erased`."""
Case = tuple[str, Check]
"""The id of the receipt of the canary's deletion, and what to check then."""


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

    def require_waits(self, receipt: str) -> None:
        """A snapshot does not finish an erasure."""
        self.write_snapshot()
        assert self.receipt(receipt)["status"] == "unlearned"

    def wait_until_erased(self, receipt: str) -> None:
        wait_until(lambda: self.receipt(receipt)["status"] == "erased")

    def require_nothing_left(self) -> None:
        """Neither files nor memory hold anything of the canary."""
        assert files_with([BIRD], self.directory) == []
        assert remains(self.host.everything, BIRD) == set()

    def write_snapshot(self) -> None:
        assert self.host.ask("POST", "/snapshot")[0] == 201

    def restore(self) -> None:
        status, answer = self.host.ask_bytes("PUT", "/snapshot/file", self.older)
        assert status == 200, answer

    @property
    def holds(self) -> set[Any]:
        """What is held of samples now."""
        return set(self.host.service.model.holders._holds)

    @property
    def texts(self) -> str:
        """All text that can be reached from the server."""
        return "\0".join(texts(self.host.everything))

    # --- jobs

    def begin_job(self, path: str, content: Any = None) -> str:
        status, job = self.host.ask("POST", path, {} if content is None else content)
        assert status == 202, job
        return str(job["id"])

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.host.ask("GET", f"/jobs/{name}")[1])

    def wait_for_job(self, name: str) -> dict[str, Any]:
        wait_until(lambda: self.job(name)["status"] in ("succeeded", "failed"))
        return self.job(name)

    def done(self, path: str, content: Any = None) -> dict[str, Any]:
        """Have a job done."""
        job = self.wait_for_job(self.begin_job(path, content))
        assert job["status"] == "succeeded", job
        return job

    def wait_for_progress(self, name: str, progress: float = 0.0) -> None:
        wait_until(lambda: (job := self.job(name))["status"] == "running" and job["progress"] >= progress)

    def result(self, job: str) -> tuple[int, Any]:
        return self.host.ask("GET", f"/jobs/{job}/result")

    def require_no_result(self, job: str) -> None:
        assert self.result(job)[0] == 404

    def require_ended(self, *jobs: str) -> None:
        """Jobs are ended, and say what to do."""
        for job in jobs:
            ended = self.wait_for_job(job)
            assert (ended["status"], "ask again" in ended["error"]) == ("failed", True)

    def hold_up(self, owner: Any, name: str, until: Callable[..., object] | None = None) -> None:
        """Have a function wait for the gate, or for something else, before it begins."""
        function = getattr(owner, name)

        def late(*arguments: Any) -> Any:
            wait_until(self.gate.is_set if until is None else partial(until, *arguments))
            return function(*arguments)

        self.monkeypatch.setattr(owner, name, late)


@contextmanager
def scene(
    directory: Path, monkeypatch: pytest.MonkeyPatch, deadline: float = 2.0, told: int | None = None
) -> Iterator[Scene]:
    """Yield a server; it tells a receiver on a port of this machine, if there is one."""
    monkeypatch.setattr(influence, "_LONG", 0.0)
    directory.parent.mkdir(exist_ok=True)
    push, callbacks = None, {}
    if told is not None:
        hooks, callback = (parse_endpoint(f"http://127.0.0.1:{told}{path}", plain_http=True) for path in ("/a", "/b"))
        push = Push(Sender(AddressRules(("127.0.0.0/8",)), 30.0), (hooks, WebhookSigner([SECRET])))
        callbacks = {CALLBACK: callback}
    signer = read_processor(DOMAIN, *certificate(directory.parent, authority(), DOMAIN))
    policy = CheckpointPolicy(erasure_deadline=deadline)
    processor = Processor(signer, callbacks=callbacks)
    with hosted(make_service(forest(60), directory, policy=policy, processor=processor, push=push)) as host:
        assert host.ask("POST", "/samples", BIRDS)[0] == 201
        assert host.ask("POST", "/snapshot")[0] == 201
        status, older = host.ask_bytes("GET", "/snapshot/file")
        assert status == 200
        one = Scene(host, directory, older, monkeypatch)
        try:
            yield one
        finally:
            one.gate.set()


# --- jobs


def _ended_before(scene: Scene, job: str, has_it: Callable[[Any], bool]) -> Case:
    """A job has ended before, with the canary in its result."""
    scene.wait_for_job(job)
    status, result = scene.result(job)
    assert status == 200
    assert has_it(result), "the result is blind"
    return scene.unlearn(), partial(scene.require_no_result, job)


def _ended_after(scene: Scene, job: str, progress: float = 0.0) -> Case:
    """A job ends between the deletion and the end of the erasure, and has a result with the canary in it."""
    scene.wait_for_progress(job, progress)
    receipt = scene.unlearn()
    scene.gate.set()
    assert scene.wait_for_job(job)["status"] == "succeeded"
    return receipt, partial(scene.require_no_result, job)


def _question(scene: Scene) -> str:
    return scene.begin_job("/influence", {"instances": [FEATURES], "labels": ["yes"], "top": 1000})


def _held_up_question(scene: Scene) -> str:
    """A question that takes long, and tells now and then how far it is."""
    scene.hold_up(influence, "_ask", lambda *given: scene.gate.is_set() or given[4](0, 1))
    return _question(scene)


def rankings(scene: Scene) -> Case:
    def has_it(told: Any) -> bool:
        return BIRD.id in [one["id"] for one in told["helpful"] + told["harmful"]]

    return _ended_before(scene, _question(scene), has_it)


def influence_ended_after(scene: Scene) -> Case:
    return _ended_after(scene, _held_up_question(scene))


def influence_running(scene: Scene) -> Case:
    """The job would continue for ever: it is ended."""
    job = _held_up_question(scene)
    scene.wait_for_progress(job)
    return scene.unlearn(), partial(scene.require_ended, job)


def influence_queued(scene: Scene) -> Case:
    """The job waits for another, with the instances that it was given."""
    jobs = _held_up_question(scene), _question(scene)
    return scene.unlearn(), partial(scene.require_ended, *jobs)


def _export(scene: Scene) -> str:
    """A bundle of the canary's subject, as a job."""
    scene.monkeypatch.setattr(exports, "_FEW", 0)
    return scene.begin_job("/subjects/export", {"subject": BIRD.subject})


def bundles(scene: Scene) -> Case:
    return _ended_before(scene, _export(scene), lambda told: [one["id"] for one in told["samples"]] == [BIRD.id])


def bundles_running(scene: Scene) -> Case:
    """The job would continue for ever: it is ended."""
    collect = exports._collect

    def slow(store: Any, names: list[str], hold: Any) -> Any:
        found = collect(store, names, hold)
        while not scene.gate.wait(0.02):
            hold.require()
        return found

    scene.monkeypatch.setattr(exports, "_collect", slow)
    job = _export(scene)
    scene.wait_for_progress(job)
    # Changes wait for who reads the model: the deletion is asked for on a connection that waits for it.
    client = _sent(scene, _request("DELETE", PLACE))
    time.sleep(0.3)
    scene.gate.set()
    status, _, body = _answer(client)
    client.close()
    assert status == 200
    scene.wait_for_job(job)
    return json.loads(body)["id"], partial(scene.require_no_result, job)


def bundles_queued(scene: Scene) -> Case:
    """The job waits for another, with the subject that it was given."""
    jobs = _held_up_question(scene), _export(scene)
    return scene.unlearn(), partial(scene.require_ended, *jobs)


def _absence(scene: Scene) -> str:
    """A question about the model without the canary, with its values as the instance; a job."""
    return scene.begin_job("/predict/without", {"instances": [FEATURES], "ids": [BIRD.id]})


def comparisons(scene: Scene) -> Case:
    return _ended_before(scene, _absence(scene), lambda told: told["removed"] == 1)


def without(scene: Scene) -> Case:
    """A copy is asked: it is waited for, and overwritten; what it has found is dropped."""
    scene.hold_up(influence, "_compare", lambda _copy, _absence, asked, _version: asked.hold.is_ended)
    jobs = _absence(scene), _absence(scene)  # one has the copy, and one waits for it
    scene.wait_for_progress(jobs[0])
    return scene.unlearn(), partial(scene.require_ended, *jobs)


def without_ended_after(scene: Scene) -> Case:
    """The copy is asked between the deletion and the end of the erasure."""
    scene.hold_up(influence, "_compare")
    return _ended_after(scene, _absence(scene), 0.2)


def verify(scene: Scene) -> Case:
    """A copy is verified: it is waited for, and ended when the deadline passes."""
    scene.hold_up(DynamicForestClassifier, "verify")
    job = scene.begin_job("/model/verify")
    scene.wait_for_progress(job, 0.1)
    receipt = scene.unlearn()
    scene.write_snapshot()
    wait_until(lambda: scene.receipt(receipt)["overdue"])
    assert scene.receipt(receipt)["status"] == "unlearned"
    scene.gate.set()
    return receipt, partial(scene.require_ended, job)


def fingerprints(scene: Scene) -> Case:
    """Jobs have ended before whose results hold digests and scores."""
    verified = scene.done("/model/verify")
    fitted = scene.done("/model/fit", {"parameters": {"n_estimators": 4}})
    digest = verified["result"]["live_digest"]
    assert digest in scene.texts, "the search is blind"
    assert fitted["result"]["score"] is not None

    def check() -> None:
        assert scene.job(verified["id"])["result"]["live_digest"] is None
        assert scene.job(fitted["id"])["result"]["score"] is None
        assert digest not in scene.texts

    return scene.unlearn(), check


def fit(scene: Scene) -> Case:
    """Another model is fitted on samples from before: no snapshot can finish the erasure until it has ended."""
    scene.hold_up(rebuild, "refit")
    job = scene.begin_job("/model/fit", {"parameters": {"n_estimators": 3}})
    wait_until(lambda: scene.job(job)["progress"] > 0)
    receipt = scene.unlearn()
    scene.require_waits(receipt)
    scene.gate.set()
    scene.wait_for_job(job)
    return receipt, lambda: None


def score(scene: Scene) -> Case:
    """A fit is made and scored in folds: scoring is ended, and the fit has succeeded all the same."""

    def ended() -> list[bool]:
        return [hold.is_ended for hold in scene.holds if hold.kind == "score"]

    scene.hold_up(model_jobs, "answer_fold", lambda *_: any(ended()))
    job = scene.begin_job("/model/fit", {"parameters": {"occurrence": 1.0}})
    wait_until(ended)

    def check() -> None:
        told = scene.wait_for_job(job)
        assert (told["status"], told["result"]["score"]) == ("succeeded", None)

    return scene.unlearn(), check


# --- evidence


def set_behind(scene: Scene) -> Case:
    """The tree over the samples is being changed by others, and has yet to take in that the canary has left."""
    held_up = list[int]()

    def may_begin(_: Any, batch: Any) -> bool:
        if batch.ids and not held_up:
            held_up.append(id(batch))
        return scene.gate.is_set() or id(batch) not in held_up

    def in_tree() -> bool:
        return leaf in bytes(scene.host.service.evidence.sample_set._leaves.tree._contents)

    leaf, _ = _opened(scene)
    assert in_tree(), "the search is blind"
    scene.hold_up(sample_set.Leaves, "take_in", may_begin)
    others = {"samples": [{"id": f"o{i}", "features": [i, "a", True], "label": "yes"} for i in range(40)]}
    assert scene.host.ask("POST", "/samples", others)[0] == 201
    wait_until(lambda: held_up)
    receipt = scene.unlearn()
    scene.require_waits(receipt)
    assert in_tree()
    scene.gate.set()

    def check() -> None:
        assert not in_tree()
        touched = scene.host.service.evidence.sample_set._touched
        assert not touched.ids | touched.subjects

    return receipt, check


def _opened(scene: Scene) -> tuple[bytes, bytes]:
    """The hash of the canary, once it is in the tree, and its nonce."""
    assert scene.host.ask("POST", "/samples/absence-proofs", {"id": NEVER.id})[0] == 200
    status, page = scene.host.ask("GET", f"/samples?openings=true&subject={quote(BIRD.subject)}")
    assert status == 200
    (sample,) = page["samples"]
    return hash_of_sample(sample), bytes.fromhex(sample["nonce"])


def hashes_of(scene: Scene) -> list[bytes]:
    """The nonce of the canary in all its forms, and the hashes that it is in."""
    one, nonce = _opened(scene)
    of_subject = hashlib.sha256(one).digest()
    leaves = [hashlib.sha256(b"\0" + content).digest() for content in (one, of_subject)]
    return [nonce, base64.b64encode(nonce), nonce.hex().encode(), one, of_subject, *leaves]


def hashes_left(scene: Scene, hashes: list[bytes]) -> list[bytes]:
    """Those of them that files or memory hold."""
    places = [array_bytes(scene.host.everything), scene.texts.encode("utf-8", "replace")]
    places += [path.read_bytes() for path in scene.directory.rglob("*") if path.is_file()]
    return [one for one in hashes if any(one in place for place in places)]


def _asked_of_a_copy(scene: Scene, digests: str, method: str, path: str, expected: Callable[..., object]) -> Case:
    """The copy whose digests are being made for an answer is waited for, and nothing is told of that version."""

    def may_begin(model: Any) -> bool:
        is_builder = threading.current_thread().name.startswith("oubli-builder")
        return scene.gate.is_set() or not is_builder or model is scene.host.service.model.state.model

    scene.hold_up(DynamicForestClassifier, digests, may_begin)
    answers: list[tuple[int, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(scene.host.ask(method, path)))
    asking.start()
    wait_until(lambda: any(hold.kind == "states" for hold in scene.holds))
    receipt = scene.unlearn()
    scene.require_waits(receipt)
    scene.gate.set()

    def check() -> None:
        asking.join(60)
        ((status, answer),) = answers
        assert expected(status, answer), (status, answer)

    return receipt, check


def states(scene: Scene) -> Case:
    scene.host.ask("POST", "/samples", {"samples": [{"id": "more", "features": [1, "a", True], "label": "no"}]})
    return _asked_of_a_copy(scene, "digest", "POST", "/model/states", lambda status, _: status == 503)


def trees(scene: Scene) -> Case:
    status, told = scene.host.ask("POST", "/model/states")
    assert status in (200, 201)
    what = ("tree_digests", "GET", f"/model/states/{told['index']}?trees=true")
    return _asked_of_a_copy(scene, *what, lambda status, told: (status, told["tree_digests"]) == (200, None))


def events(scene: Scene) -> Case:
    """Somebody has listened, and does not any more."""
    client = _sent(scene, _request("GET", "/events"))
    assert client.recv(12) == b"HTTP/1.1 200"
    wait_until(lambda: "digest" in str(scene.host.app.state.feeds["state"]._source._told))
    digest = scene.host.ask("GET", "/snapshot")[1]["digest"]
    assert digest in scene.texts, "the search is blind"
    client.close()
    wait_until(lambda: not scene.host.app.state.feeds["state"].is_running)

    def check() -> None:
        assert digest not in scene.texts

    return scene.unlearn(), check


# --- connections


def _request(method: str, target: str, body: bytes = b"", length: int | None = None, **headers: object) -> bytes:
    """A request as it is sent; another length than that of its body leaves the server waiting."""
    fields: dict[str, object] = {"Host": "127.0.0.1", "Content_Type": "application/json", **headers}
    if "Transfer_Encoding" not in headers:
        fields["Content_Length"] = len(body) if length is None else length
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode() + body


def _encoded(method: str, target: str, name: str, body: bytes, length: int | None = None) -> bytes:
    """A request whose body is encoded, and whose answer may be."""
    headers = {"Content_Encoding": name, "Accept_Encoding": name} if name else {}
    return _request(method, target, body, length, **headers)


def _sent(scene: Scene, request: bytes, receive_buffer: int | None = None) -> socket.socket:
    client = scene.host.connect(receive_buffer)
    client.sendall(request)
    return client


def _answer(client: socket.socket) -> tuple[int, Any, bytes]:
    """Read the whole answer to the only request that was sent: status, headers and body."""
    with http.client.HTTPResponse(client) as answer:
        answer.begin()
        return answer.status, answer.headers, answer.read()


def _require_open(clients: list[socket.socket]) -> None:
    """Connections were not closed for it."""
    for client in clients:
        client.sendall(_request("GET", "/healthz"))
        assert _answer(client)[0] == 200
        client.close()


def _require_cut_off(clients: list[socket.socket], *, in_an_answer: bool = False) -> None:
    """Connections were closed before an answer, or before its end."""
    for client in clients:
        with suppress(ConnectionError):
            while piece := client.recv(2**16):
                assert in_an_answer
                assert not piece.endswith(b"0\r\n\r\n")
        client.close()


def _require_upload_dropped(clients: list[socket.socket]) -> None:
    for client in clients:
        status, _, body = _answer(client)
        client.close()
        assert (status, b"upload-dropped" in body) == (503, True), body


# Encodings of whole bodies; without a name they are plain.
ENCODE = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}


def _begin(name: str, content: bytes) -> bytes:
    """The beginning of a body from which all that it holds can be decoded."""
    if not name:
        return content
    encoder: Any = zlib.compressobj(wbits=31) if name == "gzip" else zstandard.ZstdCompressor().compressobj()
    how = zlib.Z_SYNC_FLUSH if name == "gzip" else zstandard.COMPRESSOBJ_FLUSH_BLOCK
    return bytes(encoder.compress(content) + encoder.flush(how))


def uploads(scene: Scene) -> Case:
    """An older snapshot comes in, and then nothing more of it."""
    clients: list[socket.socket] = []
    for name in ENCODE:
        begun = _begin(name, scene.older)
        clients.append(_sent(scene, _encoded("PUT", "/snapshot/file", name, begun, len(begun) + 9)))
        wait_until(lambda: len(scene.holds) == len(clients))
    return scene.unlearn(), partial(_require_upload_dropped, clients)


def downloads(scene: Scene) -> Case:
    """A snapshot is sent to somebody who does not take it in."""
    large = scene.directory.parent / "large"
    large.write_bytes(b"\0" * 2**25)
    export = Checkpointer.export

    async def exported(checkpointer: Checkpointer) -> Any:
        return replace(await export(checkpointer), path=large)

    scene.monkeypatch.setattr(Checkpointer, "export", exported)
    client = _sent(scene, _request("GET", "/snapshot/file"), receive_buffer=4096)
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


def _inference(target: str) -> bytes:
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
    return _request("POST", target, body, Inference_Header_Content_Length=len(header))


def connections_idle(scene: Scene) -> Case:
    """Connections stay open whose last request, or the answer to it, held the canary: plain, or compressed."""
    page = scene.host.ask("GET", "/samples?limit=50")[1]
    subject = json.dumps({"subject": BIRD.subject}).encode()
    refused = json.dumps({"samples": [BIRD.as_json(features=FEATURES, label=None)]}).encode()
    clients: list[socket.socket] = []

    def ask(request: bytes, expected: int = 200) -> tuple[str, bytes]:
        clients.append(_sent(scene, request))
        status, headers, body = _answer(clients[-1])
        assert status == expected
        return headers.get("Content-Encoding", ""), body

    ask(_request("GET", PLACE))
    version = scene.host.ask("GET", "/model")[1]["model_version"]
    for of_version in ("", f"/versions/{version}"):  # the short way, and the ordinary one
        ask(_inference(f"/v2/models/oubli{of_version}/infer"))
    for name, encode in ENCODE.items():
        instances = json.dumps({"instances": [FEATURES] * (200 if name else 1)}, ensure_ascii=bool(name)).encode()
        ask(_encoded("POST", "/predict", name, encode(instances)))
        ask(_encoded("POST", "/samples/search", name, encode(subject)))
        ask(_encoded("POST", "/samples", name, encode(refused)), 422)
        encoding, _ = ask(_encoded("GET", f"/samples?limit=50&cursor={page['next']}", name, b""))
        assert encoding == name
    _, body = ask(_request("DELETE", PLACE))
    return str(json.loads(body)["id"]), partial(_require_open, clients)


def connections_stalled(scene: Scene) -> Case:
    """The beginning of a body that nothing follows; what a compressed one decodes to is known already."""
    begun = f'{{"subject": "{BIRD.subject}", "more": "'.encode()
    clients = [
        _sent(scene, _encoded("POST", target, name, _begin(name, begun), 500))
        for name in ENCODE
        for target in ("/samples", "/samples/search", "/predict")  # on the short way and on the ordinary one
    ]
    time.sleep(0.1)
    return scene.unlearn(), partial(_require_cut_off, clients)


def _begin_chunks(scene: Scene, path: str, kind: str) -> socket.socket:
    return _sent(scene, _request("POST", path, Content_Type=kind, Accept=kind, Transfer_Encoding="chunked"))


def _begin_table(scene: Scene, path: str, *columns: str) -> socket.socket:
    """Begin a CSV body in chunks."""
    client = _begin_chunks(scene, path, "text/csv")
    _send(client, ",".join(columns) + "\r\n")
    return client


def _send(client: socket.socket, piece: str | bytes) -> None:
    data = piece.encode() if isinstance(piece, str) else piece
    client.sendall(b"%x\r\n%b\r\n" % (len(data), data))


def connections_bulk_stalled(scene: Scene) -> Case:
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
    clients.append(_begin_chunks(scene, "/predict", kind))
    _send(clients[3], b"".join(writer.write(table.to_batches()[0]) for _ in range(9)))
    assert clients[3].recv(12) == b"HTTP/1.1 200"
    time.sleep(0.1)
    return scene.unlearn(), partial(_require_cut_off, clients, in_an_answer=True)


def connections_opendsr(scene: Scene) -> Case:
    """A controller asks for the erasure, by a name that its request and the answer hold, and keeps the connection."""
    content = asked(BIRD.subject)
    request = content["subject_request_id"]
    client = _sent(scene, _request("POST", "/opendsr/v2/requests", json.dumps(content).encode()))
    assert _answer(client)[0] == 201
    (receipt,) = scene.host.ask("GET", f"/erasures?ref={request}")[1]["erasures"]

    def check() -> None:
        status, found = scene.host.ask("GET", f"/opendsr/v2/requests/{request}")
        assert (status, found["request_status"]) == (200, "completed")
        client.close()

    return str(receipt["id"]), check


def idempotency(scene: Scene) -> Case:
    """Requests with keys whose bodies held the canary: one of many samples, a table, its subject, a rectification."""
    place = f"/samples?id={quote(BIRD.id, safe='')}"
    content = {"features": FEATURES, "label": "yes"}
    others = [{"id": f"o{n}", "features": [n, "a", True], "label": "no"} for n in range(3)]
    hashes: list[bytes] = []
    sent: list[tuple[str, str, bytes, dict[str, str]]] = []

    def send(route: str, body: Any, path: str = "") -> None:
        raw, kind = (body, "text/csv") if isinstance(body, bytes) else (json.dumps(body).encode(), "application/json")
        method, _, template = route.partition(" ")
        sent.append((method, path or template, raw, {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": kind}))
        status, answer = scene.host.ask_bytes(*sent[-1][:3], **sent[-1][3])
        assert status in (200, 201), answer
        before = {"PUT": BIRD.id.encode() + b"\0\0", "text/csv": b"text/csv\0"}
        digest = hashlib.sha256(before.get(method, before.get(kind, b"")) + raw).hexdigest()
        hashes.append(scene.host.service.disk.ledger.hash_text(f"{route}\0{digest}").encode())

    send("POST /samples", {"samples": [*others, BIRD.as_json(**content)]})
    table = csv_line(("id", "subject", "age", "job", "member", "income"))
    send("POST /samples", (table + csv_line([BIRD.id, BIRD.subject, *BIRD.features, "yes"])).encode())
    for _ in range(2):  # the second changes nothing
        send("PUT /samples", {**content, "label": "no"}, place)
    subjects = {"subjects": [BIRD.subject]}
    send("POST /subjects/retain", {**subjects, "seconds": 10**6})
    send("POST /subjects/restrict", subjects)
    send("POST /subjects/release", subjects)
    assert hashes_left(scene, hashes) == hashes, "the search is blind"
    send("POST /samples", {"samples": [{**others[0], "id": "apart"}]})
    *spent, kept = hashes

    def check() -> None:
        assert hashes_left(scene, spent) == []
        assert hashes_left(scene, [kept]) == [kept]
        ((status, answer),) = {scene.host.ask_bytes(*one, **headers) for *one, headers in sent[:-1]}
        assert (status, json.loads(answer)["type"].rpartition(":")[2]) == (409, "key-spent")

    return scene.unlearn(), check


# --- nodes of a cluster


def records(scene: Scene) -> Case:
    """A node that follows has read an addition, its deletion, and what comes in the next segment, at once."""

    forgotten: list[bool] = []

    async def follow() -> None:
        async with paired() as pair:
            assert (await pair.leading.post("/samples", json=BIRDS)).status_code == 201
            assert (await pair.leading.delete(PLACE)).status_code == 200
            assert traces(BIRD, b"".join(one.body for one in pair.journal.kept)), "the search is blind"
            pair.journal.starts = (1, pair.journal.last_seq + 1)
            scene.monkeypatch.setattr(pair.journal, "forget", lambda: forgotten.append(True))
            other = {"samples": [{"id": "other", "features": [1, "a", True], "label": "no"}]}
            assert (await pair.leading.post("/samples", json=other)).status_code == 201
            await pair.follow()
            assert pair.boundary.alive, "the search is blind"
            assert not [one for one in pair.boundary.alive if traces(BIRD, one.body)]
            state = pair.node.model.state
            await pair.node.model.holders.rid(state.period, 5.0)
            assert state.model.samples_.contains("other")
            assert forgotten

    asyncio.run(follow())
    return scene.unlearn(), lambda: None


def joins(scene: Scene) -> Case:
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


SITUATIONS: dict[str, tuple[Callable[[Scene], Case], ...]] = {
    "rankings": (rankings, influence_ended_after), "bundles": (bundles, bundles_running, bundles_queued),
    "influence": (influence_running, influence_queued), "without": (without, without_ended_after),
    "connections": (connections_idle, connections_opendsr, connections_stalled, connections_bulk_stalled),
    "states": (states, trees), "set": (set_behind,), "verify": (verify,), "fingerprints": (fingerprints,),
    "events": (events,), "comparisons": (comparisons,), "score": (score,), "fit": (fit,), "records": (records,),
    "joins": (joins,), "idempotency": (idempotency,), "uploads": (uploads,), "downloads": (downloads,),
}  # fmt: skip
FINISHES = (Scene.write_snapshot, Scene.restore)


def test_every_holder_has_its_situation():
    assert SITUATIONS.keys() == KINDS.keys()
    holders = Holders(ModelState(forest(0), 1, 0))
    for ask in (holders.hold, partial(holders.register, forget=bool)):
        with pytest.raises(ValueError, match="not in `KINDS`"):
            ask("a new one")


@pytest.mark.parametrize(("situation", "finish"), covering(chain.from_iterable(SITUATIONS.values()), FINISHES))
def test_nothing_outlives_an_erasure(tmp_path, monkeypatch, situation, finish):
    with scene(tmp_path / "data", monkeypatch) as here:
        assert files_with([BIRD], here.directory), "the search is blind"
        hashes = hashes_of(here)
        assert len(hashes_left(here, hashes)) > 2, "the search is blind"
        receipt, check = situation(here)
        finish(here)
        here.wait_until_erased(receipt)
        assert hashes_left(here, hashes) == []
        here.require_nothing_left()
        assert remains(here.host.everything, NEVER) == set()
        check()
        assert here.host.ask("GET", PLACE)[0] == 404


@pytest.mark.parametrize(("status", "finish"), covering([204, 500, 410], FINISHES))
def test_queues_and_dead_letters_name_nobody(tmp_path, monkeypatch, status, finish):
    """Webhooks and callbacks that have arrived, that wait, and that were given up."""
    bodies = list[bytes]()

    def take(path: str, headers: dict[str, str], body: bytes) -> int:
        bodies.append(body)
        return status

    with listening(take) as port, scene(tmp_path / "data", monkeypatch, told=port) as here:
        more = {"status_callback_urls": [CALLBACK]}
        access, erasure = (asked(BIRD.subject, subject_request_type=one, **more) for one in ("access", "erasure"))
        assert here.host.ask("POST", "/opendsr/v2/requests", access)[0] == 201
        place = f"/opendsr/v2/requests/{access['subject_request_id']}"
        wait_until(lambda: here.host.ask("GET", place)[1]["request_status"] == "completed")
        assert remains(here.host.everything, BIRD) >= {"id", "subject"}, "the search is blind"
        assert here.host.ask("POST", "/opendsr/v2/requests", erasure)[0] == 201
        case = erasure["subject_request_id"]
        (receipt,) = here.host.ask("GET", f"/erasures?ref={case}")[1]["erasures"]
        finish(here)
        here.wait_until_erased(receipt["id"])
        letters = list[dict[str, Any]]()

        def is_over() -> bool:
            letters[:] = here.host.ask("GET", "/webhooks/dead-letters")[1]["dead_letters"]
            found = here.host.service.measure()
            if status == 500:
                return found.deliveries_failed >= 2 and found.deliveries_due > 0
            n_dead, n_arrived = (3, 0) if status == 410 else (0, 6)
            n_letters = len({one["id"] for one in letters})
            return found.deliveries_arrived >= n_arrived and (found.deliveries_due, n_letters) == (0, n_dead)

        wait_until(is_over)
        assert {one["ref"] for one in letters} <= {None, case}
        assert not traces(BIRD, json.dumps(letters, ensure_ascii=False).encode())
        assert bodies
        assert not [body for body in bodies if traces(BIRD, body)]
        here.require_nothing_left()


@pytest.mark.parametrize(("finish", "is_released"), covering(FINISHES, [False, True]))
def test_nothing_outlives_the_erasure_of_what_was_restricted(tmp_path, monkeypatch, finish, is_released):
    with scene(tmp_path / "data", monkeypatch) as here:
        subjects = {"subjects": [BIRD.subject]}

        def mark(*ways: str) -> None:
            for how in ways:
                status, made = here.host.ask("POST", f"/subjects/{how}", subjects)
                assert (status, made["samples"]) == (200, 1)

        mark("restrict")
        here.write_snapshot()
        assert files_with([BIRD], here.directory), "the search is blind"
        found = remains(here.host.everything, BIRD)
        assert {"id", "subject", "word", "number 0"} <= found <= forms(BIRD).keys(), "the search is blind"
        if is_released:
            mark("release", "restrict")
        status, receipt = here.host.ask("POST", "/samples/batch-delete", subjects)
        assert (status, receipt["unlearned"]) == (200, 1)
        finish(here)
        here.wait_until_erased(receipt["id"])
        here.require_nothing_left()


def test_nothing_of_the_old_content_outlives_the_rectification_of_what_is_restricted(tmp_path, monkeypatch):
    with scene(tmp_path / "data", monkeypatch) as here:
        here.host.ask("POST", "/subjects/restrict", {"subjects": [BIRD.subject]})
        content = {"features": [1, "a", True], "label": "no", "subject": "another"}
        status, receipt = here.host.ask("PUT", PLACE, content)
        assert (status, receipt["unlearned"]) == (200, 1)
        here.write_snapshot()
        here.wait_until_erased(receipt["id"])
        assert {what.rpartition(": ")[2] for what in files_with([BIRD], here.directory)} == {"id"}
        assert remains(here.host.everything, BIRD) == {"id"}


def files_of(directory: Path) -> bytes:
    """All files but keys."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file() and "keys" not in path.parts)
    return b"\0".join(path.read_bytes().rstrip(b"\0") for path in paths)


def test_old_digests_and_salts_are_nowhere_and_those_of_trees_never_on_the_disk(tmp_path, monkeypatch, caplog):
    """A digest is a function of all samples: it confirms the one right guess among all that the canary could have been.

    `tests/histories/backups.py` looks for them in files and answers after any history; here the log and the memory are
    searched as well.
    """
    caplog.set_level(logging.DEBUG)
    with scene(tmp_path / "data", monkeypatch, deadline=600) as here:
        here.done("/model/fit")
        digest = here.done("/model/verify")["result"]["live_digest"]
        status, told = here.host.ask("POST", "/model/states")
        assert status == 200, "verify has told this version"
        here.write_snapshot()
        with here.host.connect() as listening:  # to what changes, for a moment
            listening.sendall(_request("GET", "/events"))
            assert listening.recv(12) == b"HTTP/1.1 200"
        place = f"/model/states/{told['index']}?trees=true"
        opened = here.host.ask("GET", place)[1]
        salt, trees = opened["salt"], opened["tree_digests"]
        assert hashlib.sha256(bytes.fromhex(salt + digest)).hexdigest() == opened["state"]["digest_hash"]
        guessed = [digest, salt, *({*trees} - {*forest(60).tree_digests()})]
        assert len(guessed) > 2
        for _ in range(2):
            assert not any(is_in(one, files_of(here.directory)) for one in trees)
            here.write_snapshot()

        def answers() -> bytes:
            """What the server tells; a state with its trees is among it."""
            paths = ["/jobs", "/erasures", "/ledger?limit=50", "/model/states?limit=50", "/snapshot", "/metrics", place]
            return b"\0".join(here.host.ask_bytes("GET", path)[1] for path in (*paths, "/samples?openings=true"))

        def in_memory(*digests: str) -> bool:
            held = here.texts + array_bytes(here.host.everything).decode("latin-1")
            return any(one in held for one in digests)

        assert all(is_in(one, answers()) for one in guessed), "the search is blind"
        assert in_memory(digest), "the search is blind"
        wait_until(lambda: not in_memory(*trees))
        receipt = here.unlearn()
        here.write_snapshot()
        here.wait_until_erased(receipt)
        left = b"\0".join([files_of(here.directory), answers(), caplog.text.encode()])
        assert not any(is_in(one, left) for one in guessed)
        wait_until(lambda: not in_memory(digest, salt))


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
        here.write_snapshot()
        here.wait_until_erased(receipt)
        assert not here.receipt(receipt)["overdue"]
        assert remains(here.host.everything, BIRD) == set()
        is_erased.set()
        for thread in threads:
            thread.join(240)
        client.close()
        answer = b"".join(received)
        assert answer.endswith(b"0\r\n\r\n"), "it was cut off"
        assert answer.split(b"\r\n\r\n", 1)[1].count(b",3\r\n") > 5000, "rows behind the deletion"
