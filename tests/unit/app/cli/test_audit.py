"""`oubli audit` against servers that lie: each lie is found, exits with 1, and its rule is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oubli.app.errors import StartError
from oubli.app.ledger.set_tree import commitment_of
from oubli.core import IncrementalBoostingRegressor, OnlineBoostingClassifier
from tests.unit.app.cli.auditing import VERSION, Case, make_case, refused
from tests.unit.app.ledger.lying import Content, begun, export_of, extra_of
from tests.unit.app.support import NUMBERS, forest, rows


@pytest.fixture
def case(tmp_path, monkeypatch, capsys) -> Case:
    monkeypatch.chdir(tmp_path)
    return make_case(forest(40), capsys)


# --- what holds


def test_an_honest_server_passes(case):
    code, out, told = case.audit()
    assert code == 0, told
    assert f"version {VERSION}, " in out
    assert f"digest {case.model.digest()}: equals that of a fit on these samples" in out
    assert "Not proved" in told


@pytest.mark.parametrize("changed", [1, 5, 20])
def test_a_model_with_a_history_passes(case, changed):
    case.model.delete([f"c{i}" for i in range(changed)])
    case.model.add([[99, "new", None]], ["no"], ids=["later"])
    case.samples = export_of(case.model)
    assert case.audit()[0] == 0


def test_incremental_boosting_of_numbers_passes(case):
    model = IncrementalBoostingRegressor(n_estimators=3, random_state=4)
    model.fit(rows(40), [i / 8 for i in range(40)], ids=[f"c{i}" for i in range(40)], schema=NUMBERS)
    case.model, case.samples = model, export_of(model)
    assert case.audit()[0] == 0


def test_of_a_kind_that_is_not_exact_the_set_is_checked_and_nothing_claimed_of_the_model(case):
    model = OnlineBoostingClassifier(n_estimators=3, random_state=4)
    model.fit(rows(40), ["yes" if i % 4 else "no" for i in range(40)], ids=[f"c{i}" for i in range(40)])
    case.model, case.samples = model, export_of(model)
    honest = case.state(digest_hash=None, digest_format=None)
    code, out, told = case.audit({**honest, "salt": None, "digest": None})
    assert code == 0, told
    assert "digest" not in out
    assert "Not proved: that the model was trained on them" in told
    refused(case.audit(honest, samples=case.samples[1:]), "set-root")


def test_nothing_held_passes(case):
    case.model.delete([f"c{i}" for i in range(40)])
    case.samples = []
    assert case.audit()[0] == 0


def test_samples_that_are_restricted_are_in_no_model(case):
    kept = {**case.samples[0], "id": "kept", "restricted_at": "2026-01-01T00:00:00.000Z", "nonce": None}
    assert case.audit(samples=[*case.samples, kept])[0] == 0


def test_predictions_of_the_audited_version_are_its_own(case):
    state = case.state()
    root = entry_of(state)["set_root"]
    ours = [case.log.prediction(case.model, rows(n), VERSION, root) for n in (1, 7)]
    named = case.log.prediction(case.model, [{"job": "a", "age": 3, "member": None}], VERSION, root)
    other = case.log.prediction(forest(8), rows(2), VERSION + 1, "00" * 32)
    code, out, told = case.audit(state, **{"receipts.jsonl": [*ours, named, other]})
    assert code == 0, told
    assert "3 predictions: they come from this model" in out
    assert "1 predictions are of other versions" in told


def entry_of(state: Content) -> Content:
    return dict(json.loads(extra_of(state["proof"])["entry"]))


# --- servers that lie


def test_a_sample_that_was_left_out_of_the_export(case):
    """It is in the set and in the model: a resurrected sample that the server does not want to show."""
    refused(case.audit(samples=case.samples[1:]), "set-root")


def test_a_sample_kept_in_the_model_only(case):
    """Taken out of the set and of the export, and not out of the model."""
    gone = case.samples[:-1]
    refused(case.audit(case.state(samples=gone), samples=gone), "digest")


def test_a_sample_in_the_set_that_the_model_has_not_learned(case):
    model = forest(40)
    model.delete([case.samples[0]["id"]])
    refused(case.audit(case.state(model)), "digest")


def swapped(sample: Content) -> Content:
    return {**sample, "label": {"yes": "no", "no": "yes"}[sample["label"]]}


def test_a_swapped_label_in_the_export(case):
    first, *others = case.samples
    refused(case.audit(samples=[swapped(first), *others]), "set-root")


def test_a_swapped_label_in_the_set(case):
    first, *others = case.samples
    told = [swapped(first), *others]
    refused(case.audit(case.state(samples=told), samples=told), "digest")


def test_a_feature_that_was_altered(case):
    first, *others = case.samples
    told = [{**first, "features": {**first["features"], "age": first["features"]["age"] + 1}}, *others]
    refused(case.audit(samples=told), "set-root")


@pytest.mark.parametrize("lie", [{"random_state": 1}, {"n_estimators": 4}, {"max_depth": 3}])
def test_a_wrong_seed_or_parameter(case, lie):
    parameters = {**case.model.parameters_of_model(), "random_state": case.model.seed_, **lie}
    refused(case.audit(case.state(parameters=json.dumps(parameters))), "digest")


def test_a_wrong_salted_digest(case):
    refused(case.audit(case.state(digest_hash="00" * 32)), "salted-digest")
    honest = case.state()
    refused(case.audit({**honest, "digest": forest(8).digest()}), "salted-digest")
    refused(case.audit({**honest, "salt": "00" * 32}), "salted-digest")


def test_a_digest_of_another_model_committed_with_its_salt(case):
    refused(case.audit(case.state(digest=forest(8).digest())), "digest")


def test_a_state_of_another_version(case):
    refused(case.audit(case.state(version=VERSION - 1)), "version")
    refused(case.audit(version=VERSION + 1), "version")


def test_an_older_root_beside_the_version_of_today(case):
    older = case.log.state(case.model, case.samples[:-1], VERSION - 1)
    refused(case.audit(case.state(set_root=entry_of(older)["set_root"])), "set-root")


def test_a_root_of_positions_under_another_key(case):
    honest = case.state()
    refused(case.audit({**honest, "positions_key": bytes(32).hex()}), "positions-key")
    lie = case.state(positions_key_hash=commitment_of(bytes(32)))
    refused(case.audit({**lie, "positions_key": bytes(32).hex()}), "set-root")


def test_a_nonce_of_another_sample(case):
    first, second, *others = case.samples
    told = [{**first, "nonce": second["nonce"]}, {**second, "nonce": first["nonce"]}, *others]
    refused(case.audit(samples=told), "set-root")


def test_a_number_of_samples_that_is_not_theirs(case):
    refused(case.audit(case.state(n_samples=39)), "set-root")


def test_a_schema_of_another_model(case):
    honest = case.state()
    lie = {**honest["schema"], "named": False}
    refused(case.audit({**honest, "schema": lie}), "state")


def test_a_proof_of_something_else(case):
    honest = case.state()
    index = case.log.ledger.store.head().index
    case.log.ledger.event("export", model_version=VERSION)
    case.log.publish()
    refused(case.audit({**honest, "proof": case.log.entry_proof(index + 1)}), "state")
    refused(case.audit({**honest, "proof": honest["proof"].replace("index ", "index 1", 1)}), "inclusion")


def test_another_servers_log(case):
    refused(case.audit(begun().state(case.model, case.samples, VERSION)), "log")


def test_predictions_of_another_model_than_committed(case):
    state = case.state()
    root = entry_of(state)["set_root"]
    other = forest(40, n_estimators=4)
    lie = case.log.prediction(other, rows(9), VERSION, root)
    refused(case.audit(state, **{"receipts.jsonl": [lie]}), "prediction")


def test_predictions_signed_with_another_root(case):
    lie = case.log.prediction(case.model, rows(2), VERSION, "00" * 32)
    refused(case.audit(**{"receipts.jsonl": [lie]}), "prediction")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["instances"][0].__setitem__(0, 1),
        lambda one: one["answer"]["predictions"].__setitem__(0, "yes " + one["answer"]["predictions"][0]),
        lambda one: one["answer"]["probabilities"][0].__setitem__(0, 0.123),
        lambda one: one["answer"]["classes"].reverse(),
        lambda one: one["answer"].__setitem__("model_version", VERSION + 1),
        lambda one: one["answer"]["receipt"].__setitem__("set_root", "11" * 32),
        lambda one: one["answer"]["receipt"].__setitem__("nonce", "00" * 16),
        lambda one: one["answer"]["receipt"].__setitem__("signature", "AAAA"),
    ],
)
def test_predictions_that_were_altered(case, change):
    honest = case.log.prediction(case.model, rows(2), VERSION, "00" * 32)
    lie = json.loads(json.dumps(honest))
    change(lie)
    for one, passes in ((honest, True), (lie, False)):
        Path("one.json").write_text(json.dumps(one))
        Path("policy").write_text(case.log.policy())
        done = case.run("proof", "check", "one.json", "--policy", "policy")
        if passes:
            assert done[0] == 0
            assert f"2 predictions by version {VERSION}" in done[1]
        else:
            refused(done, "prediction-signature")


def test_predictions_signed_by_a_stranger(case):
    lie = begun().prediction(case.model, rows(2), VERSION, "00" * 32)
    refused(case.audit(**{"receipts.jsonl": [lie]}), "receipt-signature")


# --- what could not be checked


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"salt": None, "digest": None}, "forgotten"),
        ({"schema": None}, "without the schema"),
        ({"positions_key": None}, "the key is gone"),
    ],
)
def test_what_the_server_has_not_told_cannot_be_checked(case, change, rule):
    with pytest.raises(StartError, match=rule):
        case.audit({**case.state(), **change})


def test_a_download_that_is_not_whole(case):
    Path("export.jsonl").write_text(json.dumps({"samples": case.samples, "next": "x", "model_version": VERSION}))
    Path("state.json").write_text(json.dumps(case.state()))
    Path("policy").write_text(case.log.policy())
    with pytest.raises(StartError, match="last page"):
        case.run("audit", "export.jsonl", "--state", "state.json", "--policy", "policy")


def test_digests_of_another_format_and_kinds_that_are_not_known(case):
    with pytest.raises(StartError, match="digests are others"):
        case.audit(case.state(digest_format=99))
    with pytest.raises(StartError, match="cannot fit"):
        case.audit(case.state(kind="later"))
    with pytest.raises(StartError, match="cannot fit"):
        case.audit(case.state(parameters='{"unknown": 1}'))


def test_predictions_of_other_versions_alone(case):
    other = case.log.prediction(case.model, rows(2), VERSION + 1, "00" * 32)
    with pytest.raises(StartError, match="no prediction is of version"):
        case.audit(**{"receipts.jsonl": [other]})
