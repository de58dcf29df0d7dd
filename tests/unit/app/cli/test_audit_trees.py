"""`oubli audit --trees`: the same answers as all trees give, in as far as the trees that are drawn can know."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oubli.app.cli import audit_fits
from oubli.core import DynamicForestClassifier
from oubli.core.engine import model_digest
from oubli.core.rng import draw_trees
from oubli.verifier import check_state, read_policy
from tests.unit.app.cli.auditing import VERSION, Case, holds, make_case, refused
from tests.unit.app.ledger.lying import Content, export_of
from tests.unit.app.support import NUMBERS, fitted, forest, rows

T = 9


@pytest.fixture
def case(run) -> Case:
    return make_case(forest(40, n_estimators=T), run)


@pytest.fixture
def draws(monkeypatch) -> Callable[..., None]:
    """Have the next audits draw certain trees."""

    def draws(*trees: int) -> None:
        def sample(population: range, n: int) -> list[int]:
            assert (len(population) > max(trees), n) == (True, len(trees))
            return list(trees)

        monkeypatch.setattr(audit_fits, "_randomness", SimpleNamespace(sample=sample))

    return draws


def trees_with(model: Any, name: str) -> set[int]:
    """The trees that a sample is in."""
    settings, order = model.engine_.settings, np.arange(T, dtype=np.int32)
    id_hash = model.samples_.id_hashes[model.samples_.find([name])[0]]
    draw_trees(model.engine_.parameters[0]["seed_key"], id_hash, T, settings.occurrences, order)
    return set(order[: settings.occurrences].tolist())


# --- what holds


@pytest.mark.parametrize("trees", [1, 4, T])
def test_an_honest_server_passes(case, trees):
    out, told = holds(case.audit(trees=trees))
    assert f"digest {case.model.digest()}: matches the digests of {T} trees" in out
    (line,) = (line for line in out.splitlines() if line.startswith("trees "))
    named = [int(number) for number in line.removeprefix("trees ").split(", drawn")[0].split(", ")]
    assert (len(named), named) == (trees, sorted({*named}))
    assert "Not proved: the same for the other trees" in told


def many_classes() -> Any:
    model = DynamicForestClassifier(n_estimators=T, random_state=2)
    return model.fit(rows(90), [f"class {i % 30}" for i in range(90)], ids=[f"c{i}" for i in range(90)])


@pytest.mark.parametrize("model", [lambda: forest(60, NUMBERS, T), many_classes], ids=["numbers", "many classes"])
@pytest.mark.parametrize("trees", [3, T])
def test_forests_of_other_labels_pass_and_are_told_apart(case, model, trees, draws):
    case.of(model())
    assert case.audit(trees=trees)[0] == 0
    gone = case.samples[:-1]
    assert case.audit(case.state(samples=gone), samples=gone)[0] == 1
    draws(min(trees_with(case.model, case.samples[-1]["id"])))
    refused(case.audit(case.state(samples=gone), samples=gone, trees=1), "digest")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_few_samples_or_none_pass(case, left):
    case.model.delete([f"c{i}" for i in range(left, 40)])
    case.samples = export_of(case.model)
    assert case.audit(trees=T)[0] == 0


def test_which_trees_are_drawn_nobody_knows_before(case):
    state = check_state(case.state(), read_policy(case.log.policy().encode()))
    drawn = {tuple(audit_fits.draw(state, 3).trees) for _ in range(60)}
    assert len(drawn) > 20
    assert {tree for trees in drawn for tree in trees} == {*range(T)}


# --- servers that lie


def test_a_sample_kept_in_the_model_only_is_found_by_the_trees_that_hold_it(case, draws):
    gone = case.samples[:-1]
    holding = trees_with(case.model, case.samples[-1]["id"])
    assert 0 < len(holding) < T
    lie = case.state(samples=gone)
    refused(case.audit(lie, samples=gone, trees=T), "digest")
    for tree in range(T):
        draws(tree)
        done = case.audit(lie, samples=gone, trees=1)
        if tree in holding:
            refused(done, "digest")
            assert f"tree {tree} is another" in done[2]
        else:
            assert done[0] == 0, "it holds for this tree"


def test_the_set_is_checked_whatever_trees_are_drawn(case):
    refused(case.audit(samples=case.samples[1:], trees=1), "set-root")
    refused(case.audit(case.state(version=VERSION - 1), trees=1), "version")
    refused(case.audit({**case.state(), "digest": "00" * 32}, trees=1), "salted-digest")
    parameters = {**case.model.parameters_of_model(), "random_state": case.model.seed_ + 1}
    refused(case.audit(case.state(parameters=json.dumps(parameters)), trees=1), "tree-digests")


def other(told: list[str]) -> list[str]:
    return ["00" * 32, *told[1:]]


def test_digests_of_trees_that_do_not_belong_to_the_digest_are_found(case):
    honest = case.state()
    first, *rest = told = honest["tree_digests"]
    named = {str(i): one for i, one in enumerate(told)}
    for lie in (
        *([one, *rest] for one in ("00" * 32, first.upper(), first + "\n", None)),
        *([first + "\n" + rest[0], *rest[1:]], named, first),
    ):
        refused(case.audit({**honest, "tree_digests": lie}, trees=1), "tree-digests")


def test_more_or_fewer_trees_than_the_parameters_say_are_found_in_the_digest_itself(case):
    """The server commits to a digest of such a list."""
    for change in (lambda told: [*told, told[0]], lambda told: told[:-1]):
        lie = change(case.model.tree_digests())
        state = case.state(digest=model_digest(case.model.header_text(), lie))
        refused(case.audit({**state, "tree_digests": lie}, trees=1), "tree-digests")


def test_one_tree_of_another_model_is_found_when_it_is_drawn(case, draws):
    """The digest is made of it, so only growing that tree shows it."""
    lie = other(case.model.tree_digests())
    state: Content = {**case.state(digest=model_digest(case.model.header_text(), lie)), "tree_digests": lie}
    draws(3, 5)
    assert case.audit(state, trees=2)[0] == 0
    draws(0, 5)
    refused(case.audit(state, trees=2), "digest")
    refused(case.audit(state), "digest")


# --- what could not be checked


def test_what_cannot_be_checked(case):
    honest = case.state()
    for one in ({**honest, "tree_digests": None}, {k: v for k, v in honest.items() if k != "tree_digests"}):
        case.cannot_tell("oubli proof fetch", one, trees=1)
        holds(case.audit(one))
    case.cannot_tell("forgotten", {**honest, "salt": None, "digest": None, "tree_digests": None}, trees=1)
    case.cannot_tell(f"a number from 1 to {T}", trees=T + 1)
    for n in (0, -1):
        assert case.audit(trees=n)[:2] == (2, "")
    case.cannot_tell("digests are others", case.state(digest_format=99), trees=1)
    one = case.log.prediction(case.model, rows(2), VERSION, "00" * 32)
    case.cannot_tell("leave out --trees, or --receipts", trees=1, **{"receipts.jsonl": [one]})


def test_trees_of_kinds_that_cannot_be_checked_one_by_one(case):
    none = {"salt": None, "digest": None}
    for kind, why in (("incremental-boosting", "depends on those before it"), ("online-boosting", "not exact")):
        case.of(fitted(kind, 40, n_estimators=3, random_state=4))
        is_exact = case.model.guarantee == "exact"
        state = case.state() if is_exact else {**case.state(digest_hash=None, digest_format=None), **none}
        for told in (state, {**state, "tree_digests": ["00" * 32] * 3}):
            case.cannot_tell(why, told, trees=1)
