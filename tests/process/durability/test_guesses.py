"""Who holds all other samples, all files, exports, answers and logs cannot test guesses about an erased sample.

A digest is a function of all samples. Kept anywhere, in the clear or hashed without a secret, it confirms the one right
guess among all that the missing sample could have been.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from tests.histories.guesses import hex_in, is_in
from tests.reach import array_bytes, texts
from tests.unit.app.hosted import Hosted, hosted, wait_until
from tests.unit.app.support import forest, make_service

AGES, LABELS = range(20, 50), ("yes", "no")  # 60 guesses
TRUTH = (33, "no")


def model() -> Any:
    """Enough trees to tell neighbouring ages apart."""
    return forest(60, n_estimators=60)


def victim(age: int, label: str) -> dict[str, Any]:
    return {"id": "victim", "subject": "V", "features": [age, "b", True], "label": label}


@cache
def guesses() -> dict[tuple[int, str], tuple[str, set[str]]]:
    """What each guess would have given, with all other samples: the digest of the model, and of its other trees."""
    others, found = model(), {}
    without = {*others.tree_digests()}
    for age, label in product(AGES, LABELS):
        others.add([victim(age, label)["features"]], [label], ids=["victim"])
        found[age, label] = others.digest(), {*others.tree_digests()} - without
        others.delete(["victim"])
    return found


def salted_in(ledger: Iterable[dict[str, Any]]) -> set[str]:
    """The salted hashes that the ledger tells."""
    return {entry["digest_hash"] for entry in ledger if entry.get("digest_hash") is not None}


def confirmed(contents: list[bytes], ledger: list[dict[str, Any]]) -> set[tuple[int, str]]:
    """The guesses that something confirms: a digest, those of trees, or a salted hash with its salt."""
    everything, salted, known = b"\0".join(contents), salted_in(ledger), hex_in(contents)
    salts = [bytes.fromhex(one) for one in known]
    return {
        guess
        for guess, (digest, trees) in guesses().items()
        if is_in(digest, everything)
        or trees <= known
        or any(hashlib.sha256(salt + bytes.fromhex(digest)).hexdigest() in salted for salt in salts)
    }


class Attacker:
    """Holds the data directory but its keys, and everything that the server tells."""

    def __init__(self, host: Hosted, directory: Path, logged: Callable[[], str]) -> None:
        self._host = host
        self._directory = directory
        self._logged = logged

    def files(self) -> bytes:
        paths = sorted(path for path in self._directory.rglob("*") if path.is_file())
        contents = [path.read_bytes().rstrip(b"\0") for path in paths if "keys" not in path.parts]
        return b"\0".join([*contents, self._logged().encode()])

    def holdings(self) -> list[bytes]:
        asked = ["/jobs", "/erasures", "/ledger?limit=50", "/model/states?limit=50", "/snapshot", "/metrics"]
        asked += [f"/model/states/{entry['index']}?trees=true" for entry in self.ledger() if entry["type"] == "state"]
        asked.append("/samples?limit=50&openings=true")
        return [self.files(), *(self._host.ask_bytes("GET", path)[1] for path in asked)]

    def ledger(self) -> list[dict[str, Any]]:
        return list(self._host.ask("GET", "/ledger?limit=50")[1]["entries"])


def finished_job(host: Hosted, path: str) -> dict[str, Any]:
    status, job = host.ask("POST", path, {})
    assert status == 202
    wait_until(lambda: host.ask("GET", f"/jobs/{job['id']}")[1]["status"] in ("succeeded", "failed"))
    return dict(host.ask("GET", f"/jobs/{job['id']}")[1])


@pytest.fixture
def told(tmp_path, caplog):
    """A server that has learned the victim and told its digest wherever it can; with the attacker, and the digest."""
    caplog.set_level(logging.DEBUG)
    directory = tmp_path / "data"
    policy = CheckpointPolicy(erasure_deadline=600)
    with hosted(make_service(model(), directory, policy=policy)) as host:
        assert host.ask("POST", "/samples", {"samples": [victim(*TRUTH)]})[0] == 201
        assert finished_job(host, "/model/fit")["status"] == "succeeded"
        verified = finished_job(host, "/model/verify")["result"]
        assert host.ask("POST", "/model/states")[0] == 200, "verify has told this version"
        assert host.ask("POST", "/snapshot")[0] == 201
        with host.connect() as listening:  # to what changes, for a moment
            listening.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert listening.recv(12) == b"HTTP/1.1 200"
        yield host, Attacker(host, directory, lambda: caplog.text), verified["live_digest"]


def erase(host: Hosted) -> None:
    status, receipt = host.ask("DELETE", "/samples/victim")
    assert (status, receipt["unlearned"]) == (200, 1)
    assert host.ask("POST", "/snapshot")[0] == 201
    wait_until(lambda: host.ask("GET", f"/erasures/{receipt['id']}")[1]["status"] == "erased")


def memory(host: Hosted) -> str:
    """All that can be reached from the server, as one text."""
    return "\0".join(texts(host.everything)) + array_bytes(host.everything).decode("latin-1")


def test_nothing_that_is_kept_confirms_a_guess_about_an_erased_sample(told):
    host, attacker, digest = told
    of_trees = guesses()[TRUTH][1]
    holdings = attacker.holdings()
    assert confirmed(holdings, attacker.ledger()) == {TRUTH}, "the attack is blind"
    assert {guess for guess, (_, trees) in guesses().items() if trees <= hex_in(holdings)} == {TRUTH}
    erase(host)
    holdings, ledger = attacker.holdings(), attacker.ledger()
    assert salted_in(ledger), "no state was told"
    assert confirmed(holdings, ledger) == set()
    assert not any(trees & hex_in(holdings) for _, trees in guesses().values())
    assert not any(is_in(one, b"\0".join(holdings)) for one in of_trees)
    # The negative control: with the digest kept on purpose the attack finds one, and it is the truth.
    assert confirmed([*holdings, json.dumps({"digest": digest}).encode()], ledger) == {TRUTH}


def test_neither_digests_nor_salts_of_before_are_left_in_memory_and_those_of_trees_are_never_on_the_disk(told):
    host, attacker, digest = told
    (state,) = host.ask("GET", "/model/states")[1]["states"]
    opened = host.ask("GET", f"/model/states/{state['index']}?trees=true")[1]
    salt, trees = opened["salt"], opened["tree_digests"]
    assert hashlib.sha256(bytes.fromhex(salt + digest)).hexdigest() == state["digest_hash"]
    assert {*trees} > guesses()[TRUTH][1]
    assert digest in memory(host), "the search is blind"
    for _ in range(2):
        assert not any(is_in(one, attacker.files()) for one in trees)
        assert host.ask("POST", "/snapshot")[0] == 201
    wait_until(lambda: not any(one in memory(host) for one in trees[:3]))
    held = memory(host)
    assert not any(one in held for one in trees)
    erase(host)
    wait_until(lambda: not any(one in memory(host) for one in (digest, salt)))
