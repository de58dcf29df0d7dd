"""What a witness cosigns and what it refuses, as c2sp.org/tlog-witness has it; and what a watcher finds."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oubli.verifier.checkpoints import read_checkpoint
from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.notes import ED25519, is_signed, key_of, signature_times
from oubli.verifier.policies import Policy
from oubli.witness import Answer, Watch, Witness, read_or_make_key
from tests.oracles.merkle import mth, proof
from tests.unit.witness.serving import witnessing

ORIGIN = "log.example/1"
ENTRIES = [str(i).encode() for i in range(40)]
PRIVATE = Ed25519PrivateKey.generate()
LOG = key_of(ORIGIN, ED25519, PRIVATE.public_key().public_bytes_raw())
NOW = 1_763_700_000


def text64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def checkpoint(entries: list[bytes], origin: str = ORIGIN, private: Ed25519PrivateKey = PRIVATE) -> str:
    text = f"{origin}\n{len(entries)}\n{text64(mth(entries))}\n"
    key = key_of(origin, ED25519, private.public_key().public_bytes_raw())
    return f"{text}\n— {origin} {text64(key.id + private.sign(text.encode()))}\n"


def request(old: int, new: int, entries: list[bytes] = ENTRIES, note: str | None = None) -> bytes:
    lines = [f"old {old}", *map(text64, proof(old, entries[:new]))]
    return "\n".join([*lines, "", checkpoint(entries[:new]) if note is None else note]).encode()


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(read_or_make_key(tmp_path / "key.pem", "w.example"), [LOG], tmp_path / "seen", lambda: NOW)


def test_checkpoints_of_a_log_that_grows_are_cosigned(witness):
    old = 0
    for new in (0, 1, 1, 7, 8, 40):
        answer = witness.add_checkpoint(request(old, new))
        assert answer.status == 200, answer
        whole = read_checkpoint(checkpoint(ENTRIES[:new]) + answer.body)
        assert signature_times(whole.note, witness.key.public) == [NOW]
        old = new
    kept = witness.checkpoint(hashlib.sha256(ORIGIN.encode()).hexdigest())
    last = read_checkpoint(kept.body)
    assert (kept.status, last.size, last.root) == (200, 40, mth(ENTRIES))
    assert is_signed(last.note, LOG)
    assert is_signed(last.note, witness.key.public)


def test_another_size_is_told(witness):
    assert witness.add_checkpoint(request(3, 8)) == Answer(409, "0\n", "text/x.tlog.size")
    assert witness.add_checkpoint(request(0, 8)).status == 200
    for old in (0, 7):
        assert witness.add_checkpoint(request(old, 20)) == Answer(409, "8\n", "text/x.tlog.size")


OTHER = [b"other", *ENTRIES[1:]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (request(8, 20, OTHER), 422),  # a log that was rewritten
        (request(8, 8, OTHER), 422),  # two logs of one size
        (request(8, 20).replace(b"old 8\n", b"old 8\nAAAA\n"), 400),
        (request(8, 20).replace(b"old 8\n", b"old 8\n" + text64(bytes(32)).encode() + b"\n"), 422),
        (request(0, 7).replace(b"old 0", b"old 8"), 400),
        (request(8, 20, note=checkpoint(ENTRIES[:20], origin="log.example/2")), 404),
        (request(8, 20, note=checkpoint(ENTRIES[:20], private=Ed25519PrivateKey.generate())), 403),
        (request(8, 20, note=checkpoint(ENTRIES[:20]).replace("\n20\n", "\n19\n")), 403),
        (b"", 400),
        (b"old 8\n\n", 400),
        (b"\xff", 400),
        (request(8, 20).replace(b"old 8", b"old 08"), 400),
        (request(8, 20).replace(b"old 8", b"new 8"), 400),
    ],
)
def test_what_is_refused_changes_nothing(body, status, witness):
    assert witness.add_checkpoint(request(0, 8)).status == 200
    before = witness.checkpoint(hashlib.sha256(ORIGIN.encode()).hexdigest())
    assert witness.add_checkpoint(body).status == status
    assert witness.checkpoint(hashlib.sha256(ORIGIN.encode()).hexdigest()) == before


def test_an_empty_log_has_one_root(witness):
    note = checkpoint([b"x"]).replace("\n1\n", "\n0\n")
    text = note.partition("\n\n")[0] + "\n"
    signed = f"{text}\n— {ORIGIN} {text64(LOG.id + PRIVATE.sign(text.encode()))}\n"
    assert witness.add_checkpoint(request(0, 0, note=signed)).status == 422


def test_a_proof_to_an_empty_log_is_refused(witness):
    body = request(0, 8).replace(b"old 0\n", b"old 0\n" + text64(bytes(32)).encode() + b"\n")
    assert witness.add_checkpoint(body).status == 422


def test_what_was_seen_is_known_after_a_restart(witness, tmp_path):
    assert witness.add_checkpoint(request(0, 8)).status == 200
    again = Witness(read_or_make_key(tmp_path / "key.pem", "w.example"), [LOG], tmp_path / "seen")
    assert again.key.public == witness.key.public
    assert again.add_checkpoint(request(0, 20)).status == 409
    assert again.add_checkpoint(request(8, 20)).status == 200


def test_of_many_at_once_one_is_cosigned(witness):
    """Otherwise two views of the log could be cosigned, or what was seen go back."""
    assert witness.add_checkpoint(request(0, 8)).status == 200
    answers: list[int] = []
    views = [[*ENTRIES[:8], str(i).encode(), b"more"] for i in range(16)]
    bodies = [request(8, 10, view) for view in views]
    threads = [
        threading.Thread(target=lambda body=body: answers.append(witness.add_checkpoint(body).status))
        for body in bodies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [409] * 15


def test_over_http(tmp_path):
    with witnessing(tmp_path / "w", LOG) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)

        def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

        place = f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint"
        assert ask("GET", place)[0] == 404
        assert ask("POST", "/add-checkpoint", request(0, 8))[0] == 200
        assert ask("POST", "/add-checkpoint", request(0, 9)) == (409, b"8\n")
        assert ask("GET", place)[1].startswith(ORIGIN.encode())
        assert ask("GET", "/elsewhere")[0] == 404
        assert ask("POST", "/elsewhere", b"x")[0] == 404
        assert ask("GET", f"/{'0' * 64}/checkpoint")[0] == 404
        connection.putrequest("POST", "/add-checkpoint")
        connection.putheader("Content-Length", str(10**9))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.parametrize("content", ["", "nonsense"])
def test_a_key_file_that_is_none(content, tmp_path):
    (tmp_path / "key.pem").write_text(content)
    with pytest.raises(UncheckableError, match="holds no Ed25519 key"):
        read_or_make_key(tmp_path / "key.pem", "w")
    with pytest.raises(UncheckableError, match="cannot be used"):
        read_or_make_key(tmp_path / "none" / "key.pem", "w")


# --- a watcher, before a server that lies


@contextmanager
def serving(answers: dict[str, Any]) -> Iterator[str]:
    """A server that answers what it is told to, by path without query."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            found = answers.get(path)
            body = found(query) if callable(found) else found
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


POLICY = Policy((LOG,), {}, {}, "none")


def consistency_of(entries: list[bytes]) -> Any:
    """The route, for a log."""

    def answer(query: str) -> str:
        old, new = (int(part.partition("=")[2]) for part in query.split("&"))
        return json.dumps({"from": old, "to": new, "proof": list(map(text64, proof(old, entries[:new])))})

    return answer


def test_a_log_that_only_grows_can_be_watched(tmp_path):
    answers: dict[str, Any] = {"/ledger/consistency": consistency_of(ENTRIES)}
    with serving(answers) as url:
        watch = Watch(url, POLICY, tmp_path / "seen")
        for size in (3, 3, 8, 40):
            answers["/log/checkpoint"] = checkpoint(ENTRIES[:size])
            assert watch.look().size == size
            assert (tmp_path / "seen").read_text() == checkpoint(ENTRIES[:size])


@pytest.mark.parametrize(
    ("later", "served", "rule"),
    [
        (checkpoint(OTHER[:20]), OTHER, "consistency"),
        (checkpoint(OTHER[:8]), OTHER, "consistency"),
        (checkpoint(ENTRIES[:20]), ENTRIES[::-1], "consistency"),
        (checkpoint(ENTRIES[:7]), ENTRIES, "truncated"),
        (checkpoint([]), ENTRIES, "truncated"),
        (checkpoint(ENTRIES[:20], private=Ed25519PrivateKey.generate()), ENTRIES, "log-signature"),
        (checkpoint(ENTRIES[:20], origin="log.example/2"), ENTRIES, "log"),
        ("nonsense", ENTRIES, "format"),
    ],
)
def test_a_server_that_lies_is_found_and_what_was_seen_stays(later, served, rule, tmp_path):
    answers: dict[str, Any] = {
        "/ledger/consistency": consistency_of(served),
        "/log/checkpoint": checkpoint(ENTRIES[:8]),
    }
    with serving(answers) as url:
        watch = Watch(url, POLICY, tmp_path / "seen")
        watch.look()
        answers["/log/checkpoint"] = later
        with pytest.raises(FailedError) as caught:
            watch.look()
    assert caught.value.rule == rule
    assert (tmp_path / "seen").read_text() == checkpoint(ENTRIES[:8])


def test_a_log_of_another_origin_is_told_even_when_the_policy_trusts_it(tmp_path):
    other = key_of("log.example/2", ED25519, LOG.public)
    answers: dict[str, Any] = {"/log/checkpoint": checkpoint(ENTRIES[:8])}
    with serving(answers) as url:
        watch = Watch(url, Policy((LOG, other), {}, {}, "none"), tmp_path / "seen")
        watch.look()
        answers["/log/checkpoint"] = checkpoint(ENTRIES[:8], origin="log.example/2")
        with pytest.raises(FailedError, match="another log"):
            watch.look()


def test_a_watcher_that_cannot_see(tmp_path):
    with serving({}) as url, pytest.raises(UncheckableError, match="404"):
        Watch(url, POLICY, tmp_path / "seen").look()
    with pytest.raises(UncheckableError, match="reached"):
        Watch(url, POLICY, tmp_path / "seen").look()
    with pytest.raises(UncheckableError, match="http"):
        Watch("ftp://x", POLICY, tmp_path / "seen")
    (tmp_path / "seen").write_text("nonsense")
    with (
        serving({"/log/checkpoint": checkpoint(ENTRIES[:8])}) as url,
        pytest.raises(UncheckableError, match="holds no"),
    ):
        Watch(url, POLICY, tmp_path / "seen").look()
