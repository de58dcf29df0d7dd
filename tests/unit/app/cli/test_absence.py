"""`oubli proof check` with proofs of absence, and servers that lie about them: each lie is found and named."""

import json
from typing import Any

import pytest

from oubli.app.errors import StartError
from oubli.app.http.routes.samples import absence_content
from oubli.app.ledger.file import Opening
from oubli.app.ledger.set_tree import Positions, SetTree, commitment_of
from oubli.app.service.evidence.sample_set import AbsenceProof, SetRoot
from tests.unit.app.cli.auditing import Done, holds, refused
from tests.unit.app.ledger.lying import begun

KEY = bytes(range(32))
VERSION = 7


def tree_of(*names: str) -> SetTree:
    tree = SetTree()
    for number, name in enumerate(names):
        tree.put(Positions(KEY).of(("id", name)), bytes([number + 1]) * 32)
    return tree


HELD = tree_of("a", "b", "c", "d")
ROOT = HELD.root().hex()


def absence(name: str = "gone", tree: SetTree = HELD, key: bytes = KEY) -> dict[str, Any]:
    position = Positions(key).of(("id", name))
    others = tree.prove_absence(position)
    assert others is not None
    return absence_content(AbsenceProof("ids", name, SetRoot(VERSION, tree.root(), len(tree)), position, others))


@pytest.fixture
def check(run):
    """Check a proof against the policy of a log; return exit code, stdout and what was told."""

    def check(proof: dict[str, Any], *more: str, policy: str = "quorum none\n") -> Done:
        files = {"absence.json": json.dumps(proof), "policy": policy}
        return run("proof", "check", "absence.json", "--policy", "policy", *more, files=files)

    return check


@pytest.fixture(scope="module")
def policy() -> str:
    return begun().policy()


def test_a_name_that_is_not_in_a_set_that_is_trusted(check, policy):
    for more in ((), ("--name", "gone"), ("--name", "gone", "--positions-key", KEY.hex())):
        out, told = holds(check(absence(), "--root", ROOT, *more, policy=policy))
        assert out.splitlines() == [
            f"set root {ROOT}, model version {VERSION}",
            "the id is not in the set, in a state that you trust",
        ]
        assert "Not proved" in told
        assert ("as far as the server" in told) == (len(more) < 4)


def told_state(proof: dict[str, Any], **lies: Any) -> tuple[dict[str, Any], str]:
    """The proof with that of an entry of the log that tells of its state, and the policy."""
    log, honest = begun(), {"model_version": proof["model_version"], "n_samples": 4, "set_root": ROOT}
    fields = {**honest, "positions_key_hash": commitment_of(KEY), **lies}
    return {**proof, "state": log.tell_state(fields, Opening())}, log.policy()


def test_a_state_that_the_log_tells_of(check):
    proof, policy = told_state(absence())
    for more in ((), ("--positions-key", KEY.hex())):
        out, _ = holds(check(proof, "--name", "gone", *more, policy=policy))
        assert out.splitlines() == [
            f"set root {ROOT} of 4 samples, model version {VERSION}",
            "the id is not in the set, in the state of entry 3",
        ]


def test_the_state_of_another_version_is_refused(check):
    for lie, rule in (
        ({"set_root": tree_of("a").root().hex()}, "absence"), ({"model_version": VERSION + 1}, "state"),
        ({"n_samples": None}, "state"), ({"positions_key_hash": commitment_of(bytes(32))}, "position"),
    ):  # fmt: skip
        proof, policy = told_state(absence(), **lie)
        refused(check(proof, "--positions-key", KEY.hex(), policy=policy), rule)


def test_an_entry_of_another_kind_is_no_state_and_a_log_must_be_trusted(check, policy):
    log = begun()
    log.publish()
    refused(check({**absence(), "state": log.entry_proof(2)}, policy=log.policy()), "state")
    refused(check(told_state(absence())[0], policy=policy), "log")


def test_lies_and_what_cannot_be_checked(check, policy):
    for proof, more, rule in (
        (absence("another"), ("--name", "gone"), "name"),
        (absence(key=bytes(32)), ("--positions-key", KEY.hex()), "position"),
        (absence(tree=tree_of("a", "b")), (), "absence"),  # against an older root
    ):
        refused(check(proof, "--root", ROOT, *more, policy=policy), rule)
    for more, why in (
        ((), "give the root of a state"),  # one that nobody has signed proves nothing
        *(((option, "00" * 32), "this is one of absence") for option in ("--opening", "--receipt")),
        (("--root", "beef"), "64 hexadecimal"),
    ):
        with pytest.raises(StartError, match=why):
            check(absence(), *more, policy=policy)
