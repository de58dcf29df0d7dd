"""OpenDSR: a controller's request becomes an erasure with a receipt, and its states are told by signed callbacks."""

import asyncio
import base64
import json
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificate

from oubli.api.protocols import OpendsrDiscovery, OpendsrError, OpendsrReply, OpendsrStatus
from oubli.app.access.keys import FILE_NAME, AccessKeys, create_key, now_ms
from oubli.app.errors import JournalFullError
from oubli.app.ledger.keys import KEYS_NAME, LedgerKeys
from oubli.app.outgoing.addresses import parse_endpoint
from oubli.app.outgoing.sender import read_processor
from oubli.app.service.build import Limits, Means, compose, open_directory
from oubli.app.service.outbox.deliveries import Push
from oubli.app.service.outbox.subject_requests import Processor
from oubli.app.service.service import Service
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.outgoing.receiver import Receiver
from tests.unit.app.outgoing.test_sender import sender
from tests.unit.app.service.slow_journal import SlowJournal
from tests.unit.app.service.support import begun, until
from tests.unit.app.support import JSON, pick, require_conforms, served_here

pytestmark = pytest.mark.anyio

DOMAIN = "opendsr.processor.example"
FOLDER = "/opendsr/v2"
CALLBACK = "http://controller.example/opendsr/callbacks"


def identity(value: str | None, **more: Any) -> dict[str, Any]:
    return {"identity_type": "controller_customer_id", "identity_value": value, "identity_format": "raw", **more}


def asked(subject: str | None = "s1", **more: Any) -> dict[str, Any]:
    content = {
        "regulation": "gdpr", "subject_request_id": str(uuid.uuid4()), "subject_request_type": "erasure",
        "submitted_time": "2026-10-02T15:00:00Z", "subject_identities": [identity(subject)], "api_version": "2.0",
        **more,
    }  # fmt: skip
    return {key: value for key, value in content.items() if value is not None}


@dataclass
class Here:
    """A server, the controller's client, and where its callbacks arrive."""

    service: Service
    client: httpx2.AsyncClient
    receiver: Receiver

    async def post(self, content: dict[str, Any]) -> httpx2.Response:
        return await self.client.post(f"{FOLDER}/requests", json=content)

    async def status(self, content: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.get(f"{FOLDER}/requests/{content['subject_request_id']}")
        assert answer.status_code == 200
        require_conforms(OpendsrStatus, answer.content)
        await self.check(answer.content, dict(answer.headers))
        return dict(answer.json())

    async def check(self, body: bytes, headers: dict[str, str]) -> None:
        """Check a signature with the certificate that the server shows."""
        shown = await self.client.get(f"{FOLDER}/certificate")
        key: Any = load_pem_x509_certificate(shown.content).public_key()
        assert headers["x-opendsr-processor-domain"] == DOMAIN
        key.verify(base64.b64decode(headers["x-opendsr-signature"]), body, ec.ECDSA(hashes.SHA256()))


@asynccontextmanager
async def here(folder: Path, limits: Limits | None = None) -> AsyncIterator[Here]:
    """Callbacks named `CALLBACK` go to a port of this machine, which is another one after a restart."""
    receiver = Receiver()
    async with receiver.listening():
        endpoint = parse_endpoint(f"http://controller.example:{receiver.port}/opendsr/callbacks", plain_http=True)
        signer = read_processor(DOMAIN, *certificate(folder, authority(), DOMAIN))
        means = Means(push=Push(sender()), processor=Processor(signer, "acme", callbacks={CALLBACK: endpoint}))
        service = compose(begun(open_directory(folder / "data")), limits=limits, means=means, idle_resolve=False)
        async with served_here(service) as client:
            yield Here(service, client, receiver)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Here]:
    async with here(tmp_path) as one:
        yield one


async def test_requests_are_known_after_a_restart_with_other_keys_also_without_a_receipt(tmp_path):
    absent, found = asked("a-subject-like-no-other", status_callback_urls=[CALLBACK]), asked("s1")
    async with here(tmp_path, Limits(max_empty_erasures=0)) as place:
        replies = [await place.post(one) for one in (absent, found)]
        assert [reply.status_code for reply in replies] == [201, 201]
        assert (await place.status(absent))["request_status"] == "completed"
        assert (await place.status(found))["request_status"] in ("in_progress", "completed")
        await until(lambda: bool(place.receiver.requests))
        assert place.receiver.requests[0].content["request_status"] == "completed"
        receipts = (await place.client.get("/erasures")).json()["erasures"]
        assert [one["ref"] for one in receipts] == [found["subject_request_id"]]
    LedgerKeys(tmp_path / "data" / KEYS_NAME).rotate("hashing")
    async with here(tmp_path) as place:
        assert (await place.status(absent))["request_status"] == "completed"
        assert [(await place.post(one)).json() for one in (absent, found)] == [reply.json() for reply in replies]
        files = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
        assert any(absent["subject_request_id"].encode() in held for held in files), "the search is blind"
        assert not any(b"like-no-other" in held for held in files)


async def test_an_erasure_from_the_request_to_its_last_callback(place):
    told = await place.client.get(f"{FOLDER}/discovery")
    require_conforms(OpendsrDiscovery, told.content)
    assert told.json()["supported_subject_request_types"] == ["erasure", "access", "portability"]
    assert told.json()["processor_certificate"] == f"https://{DOMAIN}/opendsr/v2/certificate"

    content = asked(status_callback_urls=[CALLBACK], more_that_is_not_known=1)
    name = content["subject_request_id"]
    answer = await place.post(content)
    assert answer.status_code == 201, answer.text
    require_conforms(OpendsrReply, answer.content)
    reply = answer.json()
    assert json.loads(base64.b64decode(reply["encoded_request"])) == content
    assert pick(reply, "controller_id subject_request_id") == ("acme", name)
    assert reply["expected_completion_time"] > reply["received_time"]
    await place.check(answer.content, dict(answer.headers))
    assert answer.headers["x-opengdpr-signature"] == answer.headers["x-opendsr-signature"]

    assert (await place.status(content))["request_status"] == "in_progress"
    (listed,) = (await place.client.get(f"/erasures?ref={name}")).json()["erasures"]
    assert pick(listed, "unlearned status") == (12, "unlearned")
    assert (await place.client.post("/samples/search", json={"subject": "s1"})).json()["samples"] == []

    # The same again is the same; its id for anything else is refused.
    again = await place.post(content)
    assert (again.status_code, again.json()) == (201, reply)
    assert refusal(await place.post({**content, "regulation": "ccpa"})) == (400, "request-repeated")
    assert len((await place.client.get("/erasures")).json()["erasures"]) == 1
    assert refusal(await place.client.delete(f"{FOLDER}/requests/{name}")) == (400, "request-begun")

    assert (await place.client.post("/snapshot")).status_code == 201
    await until(lambda: len(place.receiver.accepted) == 2)
    assert (await place.status(content))["request_status"] == "completed"
    for request, status in zip(place.receiver.accepted, ("in_progress", "completed"), strict=True):
        assert request.content == {
            "controller_id": "acme", "expected_completion_time": reply["expected_completion_time"],
            "status_callback_url": CALLBACK, "subject_request_id": name, "request_status": status, "api_version": "2.0",
        }  # fmt: skip
        await place.check(request.body, request.headers)


def refusal(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["errors"][0]["reason"]


def by_extension(extension: Any, **more: Any) -> dict[str, Any]:
    return asked(subject_identities=None, extensions={DOMAIN: extension}, **more)


OTHERS = [{"identity_type": "email"}, *({"identity_format": name} for name in ("sha256", "SECRET"))]
OTHERS += [{"identity_value": value} for value in (7, "")]
WRONG: dict[str, list[Any]] = {  # by field; None leaves it out
    "subject_request_id": [None, str(uuid.uuid4()).upper(), str(uuid.uuid1())], "api_version": ["1.0"],
    "regulation": [None, ["SECRET"]], "submitted_time": [None, "2026-10-02T15:00:00"],
    "subject_request_type": [None, "SECRET"],
    "subject_identities": [[], "SECRET", ["SECRET"], *([{**identity("SECRET"), **other}] for other in OTHERS)],
    "extensions": [["SECRET"], {DOMAIN: {"sample_ids": ["SECRET"]}}],  # the identities are named as well
    "status_callback_urls": ["SECRET", ["https://controller.example/SECRET"], ["http://127.0.0.1:22/"]],
}  # fmt: skip
REFUSED = [
    *(b"{SECRET", b"[]"),
    *(asked(**{field: value}) for field, values in WRONG.items() for value in values),
    *(by_extension(extension) for extension in ({"SECRET": 1}, {"sample_ids": [None]})),
    by_extension({"sample_ids": ["SECRET"]}, subject_request_type="access"),
    asked(subject_request_type="access", subject_identities=[identity("s1"), identity("b")]),
]


async def test_wrong_requests_change_nothing_and_repeat_nothing(place):
    for content in REFUSED:
        sent = content if isinstance(content, bytes) else orjson.dumps(content)
        answer = await place.client.post(f"{FOLDER}/requests", content=sent, headers=JSON)
        assert answer.status_code == answer.json()["error"]["code"] == 400, content
        require_conforms(OpendsrError, answer.content)
        assert "SECRET" not in answer.text, content
    assert (await place.client.get("/erasures")).json()["erasures"] == []
    for path in (str(uuid.uuid4()), "SECRET"):
        for method in ("GET", "DELETE"):
            answer = await place.client.request(method, f"{FOLDER}/requests/{path}")
            assert answer.status_code == answer.json()["error"]["code"] == 404
            assert "SECRET" not in answer.text
    form = await place.client.post(f"{FOLDER}/requests", content=b"a=1", headers={"Content-Type": "text/plain"})
    assert form.status_code == 400


def test_a_server_without_opendsr(client):
    for method, path in (("GET", "discovery"), ("GET", "certificate"), ("GET", "requests/x"), ("POST", "requests")):
        answer = client.request(method, f"{FOLDER}/{path}", json={} if method == "POST" else None)
        assert refusal(answer) == (404, "no-opendsr")


async def test_each_kind_of_request_needs_its_scope(place, tmp_path):
    path = tmp_path / FILE_NAME
    statuses = {"erase": 201, "read": 403, "write": 403}
    keys = {scope: create_key(path, name=scope, scopes=[scope], expires_ms=None)[1] for scope in statuses}
    place.client._transport.app.state.rules.access_keys = AccessKeys(path, now_ms=now_ms)
    for scope, status in statuses.items():
        answer = await place.client.post(f"{FOLDER}/requests", json=asked("s3"), headers={"X-API-Key": keys[scope]})
        assert answer.status_code == status, scope
    assert (await place.client.post(f"{FOLDER}/requests", json=asked())).status_code == 401
    for name in ("discovery", "certificate"):
        assert (await place.client.get(f"{FOLDER}/{name}")).status_code == 200


@pytest.mark.parametrize("callbacks", [0, 1])
async def test_two_at_once_with_one_id_are_one_request(place, callbacks):
    content = asked("s4", status_callback_urls=[CALLBACK] * callbacks)
    answers = await asyncio.gather(*(place.post(content) for _ in range(5)))
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert len((await place.client.get("/erasures")).json()["erasures"]) == 1


@pytest.mark.parametrize("kind", ["access", "portability"])
async def test_a_bundle_from_the_request_to_the_erasure(place, kind):
    content = asked("s1", subject_request_type=kind, status_callback_urls=[CALLBACK])
    answer = await place.post(content)
    assert answer.status_code == 201, answer.text
    await until(lambda: len(place.receiver.accepted) == 2)
    begun, told = [request.content for request in place.receiver.accepted]
    status = await place.status(content)
    assert begun["request_status"] == "in_progress"
    names = "request_status results_count results_url"
    assert pick(told, names) == pick(status, names) == ("completed", 12, status["results_url"])
    address = status["results_url"].removeprefix(f"https://{DOMAIN}")
    bundle = await place.client.get(address)
    assert (bundle.status_code, len(bundle.json()["samples"])) == (200, 12)

    by_ids = by_extension({"sample_ids": ["c1", "c2", "absent"]})
    assert (await place.post(by_ids)).status_code == 201
    (receipt,) = (await place.client.get(f"/erasures?ref={by_ids['subject_request_id']}")).json()["erasures"]
    assert pick(receipt, "unlearned absent") == (2, 1)
    assert (await place.client.post("/snapshot")).status_code == 201
    assert "results_url" not in await place.status(content)
    assert (await place.client.get(address)).status_code == 404


@pytest.mark.parametrize(("kind", "seconds"), [("erasure", 0), ("access", 0), ("access", 0.1)])
async def test_a_request_whose_controller_goes_is_taken_all_the_same(place, kind, seconds):
    """It comes again at once, or when what it has begun is over."""
    content = asked("s1", subject_request_type=kind, status_callback_urls=[CALLBACK])
    await SlowJournal(place.service, content["subject_request_id"].encode()).leave(place.post(content))
    await asyncio.sleep(seconds)
    again = await place.post(content)
    assert again.status_code == 201, again.text
    receipts = (await place.client.get("/erasures")).json()["erasures"]
    assert len(receipts) == (kind == "erasure")
    assert (await place.client.post("/snapshot")).status_code == 201
    await until(lambda: len(place.receiver.accepted) == 2)
    told = [request.content["request_status"] for request in place.receiver.accepted]
    assert told == ["in_progress", "completed"]
    assert (await place.status(content))["request_status"] == "completed"


async def test_the_end_of_a_request_that_cannot_be_noted_is_noted_later(place, monkeypatch):
    monkeypatch.setattr("oubli.app.service.outbox.deliveries._RETRY_NOTES", 0.01)
    journal, refused = place.service.disk.storage.journal, []
    append = journal.append

    def refusing(records: Any, *, reserve: bool = False) -> None:
        if b"ended" in records[0].notes and len(refused) < 3:
            refused.append(records)
            raise JournalFullError("no room on the disk")
        append(records, reserve=reserve)

    monkeypatch.setattr(journal, "append", refusing)
    content = asked("s1", subject_request_type="access", status_callback_urls=[CALLBACK])
    assert (await place.post(content)).status_code == 201
    await until(lambda: len(place.receiver.accepted) == 2)
    assert len(refused) == 3
    assert (await place.status(content))["request_status"] == "completed"


async def test_a_bundle_that_was_not_made_before_a_restart_never_will_be(tmp_path):
    content = asked("s1", subject_request_type="access", status_callback_urls=[CALLBACK])
    async with here(tmp_path) as place, place.service.jobs.board._turn:
        assert (await place.post(content)).status_code == 201
        assert (await place.status(content))["request_status"] == "in_progress"
        async with place.service.model.lock.mutation():  # what a kill would leave
            shutil.copytree(tmp_path / "data", tmp_path / "killed" / "data")
    async with here(tmp_path / "killed") as place:
        assert (await place.status(content))["request_status"] == "cancelled"
        cancelled = await place.client.delete(f"{FOLDER}/requests/{content['subject_request_id']}")
        assert cancelled.status_code == 202
