"""`oubli audit` against servers that lie: each lie is found, exits with 1, and its rule is named."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from oubli.app.ledger.set_tree import commitment_of
from tests.unit.app.cli.auditing import VERSION, Case, Done, holds, make_case, refused
from tests.unit.app.ledger.lying import Content, begun, export_of, extra_of
from tests.unit.app.support import NUMBERS, fitted, forest, rows


@pytest.fixture
def case(run) -> Case:
    return make_case(forest(40), run)


# --- what holds


@pytest.mark.parametrize("changed", [0, 1, 20])
def test_an_honest_server_passes_whatever_the_history_of_its_model(case, changed):
    if changed:
        case.model.delete([f"c{i}" for i in range(changed)])
        case.model.add([[99, "new", None]], ["no"], ids=["later"])
        case.samples = export_of(case.model)
    out, told = holds(case.audit())
    assert f"version {VERSION}, " in out
    assert f"digest {case.model.digest()}: equals that of a fit on these samples" in out
    assert "Not proved" in told


def test_of_a_kind_that_is_not_exact_the_set_is_checked_and_nothing_claimed_of_the_model(case):
    holds(case.of(fitted("incremental-boosting", 40, NUMBERS, n_estimators=3, random_state=4)).audit())
    case.of(fitted("online-boosting", 40, n_estimators=3, random_state=4))
    honest = case.state(digest_hash=None, digest_format=None)
    out, told = holds(case.audit({**honest, "salt": None, "digest": None}))
    assert "digest" not in out
    assert "Not proved: that the model was trained on them" in told
    refused(case.audit(honest, samples=case.samples[1:]), "set-root")


def test_samples_that_are_restricted_are_in_no_model_and_there_may_be_none(case):
    kept = {**case.samples[0], "id": "kept", "restricted_at": "2026-01-01T00:00:00.000Z", "nonce": None}
    holds(case.audit(samples=[*case.samples, kept]))
    case.model.delete([f"c{i}" for i in range(40)])
    case.samples = []
    holds(case.audit())


def test_predictions_of_the_audited_version_are_its_own(case):
    state = case.state()
    root = entry_of(state)["set_root"]
    ours = [case.log.prediction(case.model, rows(n), VERSION, root) for n in (1, 7)]
    named = case.log.prediction(case.model, [{"job": "a", "age": 3, "member": None}], VERSION, root)
    other = case.log.prediction(forest(8), rows(2), VERSION + 1, "00" * 32)
    out, told = holds(case.audit(state, **{"receipts.jsonl": [*ours, named, other]}))
    assert "3 predictions: they come from this model" in out
    assert "1 predictions are of other versions" in told


def entry_of(state: Content) -> Content:
    return dict(json.loads(extra_of(state["proof"])["entry"]))


# --- servers that lie


def older_root(case: Case) -> str:
    return str(entry_of(case.log.state(case.model, case.samples[:-1], VERSION - 1))["set_root"])


def kept_in_the_model(case: Case) -> Done:
    return case.audit(case.state(samples=case.samples[:-1]), samples=case.samples[:-1])


def under_another_key(case: Case) -> Done:
    return case.audit({**case.state(positions_key_hash=commitment_of(bytes(32))), "positions_key": NO_KEY})


def with_unnamed_schema(case: Case) -> Content:
    state = case.state()
    return {**state, "schema": {**state["schema"], "named": False}}


NO_KEY = bytes(32).hex()
LIES: dict[str, tuple[str, Callable[[Case], Done]]] = {
    "a sample left out of the export": ("set-root", lambda case: case.audit(samples=case.samples[1:])),
    "a sample kept in the model only": ("digest", kept_in_the_model),
    "a wrong hash of the digest": ("salted-digest", lambda case: case.audit(case.state(digest_hash="00" * 32))),
    "a wrong digest": ("salted-digest", lambda case: case.audit({**case.state(), "digest": forest(8).digest()})),
    "a wrong salt": ("salted-digest", lambda case: case.audit({**case.state(), "salt": "00" * 32})),
    "a digest of another model": ("digest", lambda case: case.audit(case.state(digest=forest(8).digest()))),
    "a state of another version": ("version", lambda case: case.audit(case.state(version=VERSION - 1))),
    "an export of another version": ("version", lambda case: case.audit(version=VERSION + 1)),
    "an older root": ("set-root", lambda case: case.audit(case.state(set_root=older_root(case)))),
    "another key of positions": ("positions-key", lambda case: case.audit({**case.state(), "positions_key": NO_KEY})),
    "a root of positions under another key": ("set-root", under_another_key),
    "a number of samples that is not theirs": ("set-root", lambda case: case.audit(case.state(n_samples=39))),
    "a schema of another model": ("state", lambda case: case.audit(with_unnamed_schema(case))),
    "another server's log": ("log", lambda case: case.audit(begun().state(case.model, case.samples, VERSION))),
}


@pytest.mark.parametrize(("rule", "lie"), LIES.values(), ids=LIES)
def test_a_lie_is_found(case, rule, lie):
    refused(lie(case), rule)


def test_a_wrong_seed_or_parameter(case):
    for lie in ({"random_state": 1}, {"n_estimators": 4}, {"max_depth": 3}):
        parameters = {**case.model.parameters_of_model(), "random_state": case.model.seed_, **lie}
        refused(case.audit(case.state(parameters=json.dumps(parameters))), "digest")


def test_a_proof_of_something_else(case):
    honest = case.state()
    index = case.log.ledger.store.head().index
    case.log.ledger.event("export", model_version=VERSION)
    case.log.publish()
    refused(case.audit({**honest, "proof": case.log.entry_proof(index + 1)}), "state")
    refused(case.audit({**honest, "proof": honest["proof"].replace("index ", "index 1", 1)}), "inclusion")


def test_predictions_of_another_model_or_server_than_committed(case):
    state = case.state()
    root = entry_of(state)["set_root"]
    for lie, rule in (
        (case.log.prediction(forest(40, n_estimators=4), rows(9), VERSION, root), "prediction"),
        (case.log.prediction(case.model, rows(2), VERSION, "00" * 32), "prediction"),
        (begun().prediction(case.model, rows(2), VERSION, "00" * 32), "receipt-signature"),
    ):
        refused(case.audit(state, **{"receipts.jsonl": [lie]}), rule)


RECEIPT = {"set_root": "11" * 32, "nonce": "00" * 16, "signature": "AAAA"}
ALTERED: list[Callable[[Any], Any]] = [
    lambda one: one["instances"][0].__setitem__(0, 1),
    lambda one: one["answer"]["predictions"].__setitem__(0, "yes " + one["answer"]["predictions"][0]),
    lambda one: one["answer"]["probabilities"][0].__setitem__(0, 0.123),
    lambda one: one["answer"]["classes"].reverse(),
    lambda one: one["answer"].update(model_version=VERSION + 1),
    *(lambda one, name=name: one["answer"]["receipt"].update({name: RECEIPT[name]}) for name in RECEIPT),
]


def test_predictions_that_were_altered(case):
    def checked(prediction: Content) -> Done:
        files = {"one.json": json.dumps(prediction), "policy": case.log.policy()}
        return case.run("proof", "check", "one.json", "--policy", "policy", files=files)

    honest = case.log.prediction(case.model, rows(2), VERSION, "00" * 32)
    assert f"2 predictions by version {VERSION}" in holds(checked(honest))[0]
    for change in ALTERED:
        lie = json.loads(json.dumps(honest))
        change(lie)
        refused(checked(lie), "prediction-signature")


# --- what could not be checked


def test_what_cannot_be_checked(case):
    for change, entry, rule in (
        ({"salt": None, "digest": None}, {}, "forgotten"), ({"schema": None}, {}, "without the schema"),
        ({"positions_key": None}, {}, "the key is gone"), ({}, {"digest_format": 99}, "digests are others"),
        ({}, {"kind": "later"}, "cannot fit"), ({}, {"parameters": '{"unknown": 1}'}, "cannot fit"),
    ):  # fmt: skip
        case.cannot_tell(rule, {**case.state(**entry), **change})


def test_a_download_that_is_not_whole_or_has_predictions_of_other_versions_alone(case):
    other = case.log.prediction(case.model, rows(2), VERSION + 1, "00" * 32)
    case.cannot_tell("no prediction is of version", **{"receipts.jsonl": [other]})
    page = {"samples": case.samples, "next": "x", "model_version": VERSION}
    case.cannot_tell("last page", **{"export.jsonl": [page]})
