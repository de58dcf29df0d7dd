"""Proofs of absence, roots of sets, digests of trees: what holds is taken, and every alteration is refused."""

import base64
import json
import random
from hashlib import sha256
from typing import Any

import pytest

from oubli import verifier
from oubli.app.http.routes.samples import absence_content
from oubli.app.ledger.set_tree import Positions, SetTree
from oubli.app.service.evidence.sample_set import AbsenceProof, SetRoot
from oubli.verifier.sets import DEPTH, hash_of_sample, root_of_way
from tests.oracles import set_tree
from tests.unit.verifier.test_merkle import flipped

KEY = bytes(range(32))
NOBODY = verifier.Policy((), {}, {}, "none")
HEAD = 12  # bytes of a way before its hashes


def sample(number: int, **more: Any) -> dict[str, Any]:
    draw = random.Random(number)
    return {
        "id": f"r-{number}",
        "subject": f"s-{number % 7}" if number % 2 else None,
        "features": {"age": number, "b": draw.random(), "ä": None, "a": "text"},
        "label": "yes" if number % 3 else "no",
        "expires_at": None,
        "restricted_at": None,
        "nonce": draw.randbytes(16).hex(),
        **more,
    }


def tree_of(n: int) -> SetTree:
    draw, tree = random.Random(n), SetTree(n)
    for number in range(n):
        tree.put(Positions(KEY).of(("id", f"r-{number}")), draw.randbytes(32))
    return tree


def proof_of(tree: SetTree, name: str = "nobody", by: str = "ids") -> dict[str, Any]:
    position = Positions(KEY).of(("id" if by == "ids" else "subject", name))
    others = tree.prove_absence(position)
    assert others is not None
    return absence_content(AbsenceProof(by, name, SetRoot(7, tree.root(), len(tree)), position, others))  # type: ignore[arg-type]


def check(proof: dict[str, Any], root: bytes, **more: Any) -> Any:
    return verifier.check_absence(json.dumps(proof), NOBODY, root=root, **more)


def refused(proof: dict[str, Any], root: bytes, **more: Any) -> str:
    with pytest.raises(verifier.FailedError) as caught:
        check(proof, root, **more)
    return caught.value.rule


def flipped_text(text: str, bit: int) -> str:
    """A text with one bit of what it says in hexadecimal or base64 turned, or of the text itself."""
    raw = text.encode()
    return flipped(raw, bit % (8 * len(raw))).decode("latin-1")


@pytest.mark.parametrize("n", [0, 1, 60])
def test_every_bit_of_every_field_counts(n):
    """But for another number as version: that is compared with the entry in the log."""
    tree = tree_of(n)
    proof, root = proof_of(tree), tree.root()
    n_refused = 0
    for field, value in proof.items():
        wrong: list[Any] = [None if value is not None else "", [], 1.5]
        if isinstance(value, str):
            wrong += [flipped_text(value, bit) for bit in range(8 * len(value))] + [value + "A", value[:-1]]
        elif isinstance(value, int):
            wrong += [-1, 2**60, str(value), True]
        for other in wrong:
            altered = {**proof, field: other}
            assert refused(altered, root, name="nobody", positions_key=KEY), (field, other)
            n_refused += 1
        assert refused({name: one for name, one in proof.items() if name != field}, root) == "format"
    assert refused({**proof, "more": 1}, root) == "format"
    assert n_refused > 300
    assert check(proof, root, name="nobody", positions_key=KEY)


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@pytest.mark.parametrize("n", [1, 100])
def test_every_bit_of_the_way_counts(n):
    tree = tree_of(n)
    proof, root = proof_of(tree), tree.root()
    raw = base64.b64decode(proof["way"])
    for bit in range(8 * len(raw)):
        rule = refused({**proof, "way": encoded(flipped(raw, bit))}, root, positions_key=KEY)
        # Of the position, of the depths (a hash more or less than these), and of the hashes.
        assert rule == ("position", "format", "absence")[min(bit // (4 * HEAD), 2)]
    for other in (raw + b"\0", raw + bytes(32), *(raw[:n_bytes] for n_bytes in (0, 5, 11, len(raw) - 32))):
        assert refused({**proof, "way": encoded(other)}, root) == "format"


def test_a_depth_more_or_less_leads_to_another_root():
    tree = tree_of(100)
    proof, root = proof_of(tree), tree.root()
    raw = base64.b64decode(proof["way"])
    marked = int.from_bytes(raw[6:HEAD], "big")
    for depth in range(DEPTH):
        one = 1 << DEPTH - 1 - depth
        place = HEAD + 32 * (marked >> DEPTH - depth).bit_count()
        hashes = raw[HEAD:place] + (raw[place + 32 :] if marked & one else bytes(32) + raw[place:])
        other = raw[:6] + (marked ^ one).to_bytes(6, "big") + hashes
        assert refused({**proof, "way": encoded(other)}, root) == "absence"


def test_rules_are_named():
    tree = tree_of(50)
    proof, root = proof_of(tree), tree.root()
    assert refused(proof, tree_of(49).root()) == "absence"
    for lie, more, rule in (
        *(({}, {"name": "another"}, "name"), ({}, {"positions_key": bytes(32)}, "position")),
        *(({"name": "r-7"}, {"positions_key": KEY}, "position"), ({"by": "subjects"}, {}, "position")),
        ({"state": "c2sp.org/tlog-proof@v1\n"}, {}, "format"),
    ):
        assert refused({**proof, **lie}, root, **more) == rule
    with pytest.raises(verifier.UncheckableError, match="--root"):
        verifier.check_absence(json.dumps(proof), NOBODY)
    with pytest.raises(verifier.FailedError, match="not JSON"):
        verifier.check_absence("{", NOBODY, root=root)


def test_nothing_that_is_in_the_set_is_absent():
    """Whatever depth a liar says that the way ends at, with the hashes that the root is made of, or with others."""
    position = Positions(KEY).of(("id", "r-7"))
    tree, without = tree_of(50), tree_of(50)
    without.remove(position)
    honest = without.prove_absence(position)
    assert tree.prove_absence(position) is None
    assert honest is not None
    for end in range(DEPTH):
        beside = tree.prove_absence(position ^ 1 << DEPTH - 1 - end) or {}
        for last in (honest.get(end), beside.get(max(beside, default=0)), bytes(32)):
            if last is not None:
                others = {depth: one for depth, one in honest.items() if depth < end} | {end: last}
                assert root_of_way(position, others) != tree.root()
    assert root_of_way(position, honest) == without.root()


def expected_root(samples: list[dict[str, Any]]) -> bytes:
    """By the definition."""
    contents: dict[int, bytes] = {}
    subjects: dict[str, list[bytes]] = {}
    for one in samples:
        contents[Positions(KEY).of(("id", one["id"]))] = hash_of_sample(one)
        if one["subject"] is not None:
            subjects.setdefault(one["subject"], []).append(hash_of_sample(one))
    for subject, hashes in subjects.items():
        contents[Positions(KEY).of(("subject", subject))] = set_tree.together(hashes)
    return set_tree.root(contents)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 90])
def test_the_root_of_a_list_is_that_of_the_definition(n):
    samples = [sample(number) for number in range(n)]
    expected = expected_root(samples)
    random.Random(n).shuffle(samples)
    assert verifier.set_root(samples, KEY) == expected
    assert verifier.set_root([*samples, sample(999, restricted_at="2026-01-01T00:00:00Z", nonce=None)], KEY) == expected


def test_whatever_changes_in_a_sample_changes_the_root():
    samples = [sample(number) for number in range(9)]
    known = {verifier.set_root(some, KEY) for some in (samples, samples[1:])} | {verifier.set_root(samples, bytes(32))}
    features = samples[1]["features"]
    changes: tuple[dict[str, Any], ...] = (
        *({"subject": "another"}, {"subject": None}, {"label": "maybe"}, {"nonce": "00" * 16}),
        *({"features": {**features, "age": 2}}, {"features": {**features, "b": 0.25}}),
    )
    known |= {verifier.set_root([samples[0], {**samples[1], **change}, *samples[2:]], KEY) for change in changes}
    assert len(known) == 3 + len(changes)
    with pytest.raises(verifier.FailedError, match="same one"):
        verifier.set_root([samples[0], {**samples[1], "id": "r-0"}], KEY)


@pytest.mark.parametrize("change", [{"nonce": None}, {"nonce": "g" * 32}, {"features": 1j}, {"id": 5}, {"subject": 5}])
def test_a_list_of_something_else_is_refused(change):
    lacking = {name: value for name, value in sample(1).items() if name != "label"}
    for wrong in ({**sample(1), **change}, lacking):
        with pytest.raises(verifier.FailedError) as caught:
            verifier.set_root([wrong], KEY)
        assert caught.value.rule == "set"


HEADER = '{"format":2,"kind":"forest"}'
TREES = ["aa" * 32, "bb" * 32, "cc" * 32]
DIGEST = sha256("\n".join((HEADER, *TREES)).encode()).hexdigest()


def state(trees: list[str] | None = TREES, digest: str | None = DIGEST) -> verifier.CheckedState:
    checkpoint: Any = verifier.Checkpoint
    return verifier.CheckedState(checkpoint, [], {}, {}, {}, bytes(32), digest, trees)


def test_trees_that_are_others_or_that_the_digest_is_not_made_of_are_found():
    for grown in ({}, {0: TREES[0]}, {2: TREES[2], 1: TREES[1]}):
        verifier.check_trees(state(), HEADER, 3, grown)
    lists: tuple[list[str] | None, ...] = (None, [], TREES[:2], [*TREES, TREES[0]], TREES[::-1])
    for told, header, n_trees, grown, rule in (
        (state(), HEADER, 3, {0: TREES[0], 1: TREES[0]}, "digest"),
        *((state(trees), HEADER, 3, {}, "tree-digests") for trees in lists),
        *((state(digest=digest), HEADER, 3, {}, "tree-digests") for digest in (None, "00" * 32)),
        *((state(), header, n_trees, {}, "tree-digests") for header, n_trees in (("{}", 3), (HEADER, 4))),
    ):
        with pytest.raises(verifier.FailedError) as caught:
            verifier.check_trees(told, header, n_trees, grown)
        assert caught.value.rule == rule
