"""Both clients against the application in this process: every operation, as a user calls it."""

import asyncio
import inspect
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import pytest

import oubli
from oubli.client import AsyncClient, Client, errors, operations
from oubli.core import DynamicForestClassifier
from oubli.verifier.checkpoints import Policy, read_policy
from oubli.verifier.sets import check_absence
from oubli.verifier.states import check_prediction, check_state
from tests.unit.app.support import BASE, CLASSES, forest, make_service, rows, served, served_here

NAMES = ["age", "job", "member"]
FRAME = pd.DataFrame(
    {"age": [1.5, None], "job": pd.Categorical(["a", None]), "member": pd.array([True, None], "boolean")},
    index=["p", "q"],
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    service = make_service(directory=tmp_path_factory.mktemp("client") / "d")
    with served(service) as http, Client(BASE, http_client=http) as made:
        yield made


def test_both_clients_have_every_operation() -> None:
    modules = [import_module(f"{operations.__name__}.{one.name}") for one in iter_modules(operations.__path__)]
    public = {
        name
        for module in modules
        for name, function in vars(module).items()
        if inspect.isgeneratorfunction(function) and not name.startswith("_") and function.__module__ == module.__name__
    } - {"paged", "result_of"}  # what lists, and answers that may be jobs, have in common
    assert len(public) > 30
    for kind in (Client, AsyncClient):
        assert {name for name in public if not callable(getattr(kind, name, None))} == set()
        assert all(getattr(kind, name).__doc__ for name in public)


def test_predictions_are_those_of_the_library_whatever_the_table(client: Client) -> None:
    model = forest()
    expected = model.predict_proba(FRAME[NAMES])
    found = client.predict(FRAME[["member", "age", "job"]])  # by name, whatever the order
    np.testing.assert_array_equal(found.probabilities, expected)
    table = found.to_frame()
    assert (list(table.index), list(table.columns)) == (["p", "q"], ["prediction", *model.classes_])
    assert list(table["prediction"]) == list(model.predict(FRAME[NAMES]))
    listed = [[1.5, "a", True], {"age": None, "job": float("nan"), "member": None}]
    np.testing.assert_array_equal(client.predict(listed).probabilities, expected)
    np.testing.assert_array_equal(client.predict(np.array(rows(5), object)).predictions, model.predict(rows(5)))


def test_what_a_frame_adds_is_what_the_library_adds(client: Client) -> None:
    model = DynamicForestClassifier(n_estimators=5, random_state=0).start(CLASSES)
    model.add(FRAME, ["yes", "no"])
    with served(make_service(forest(0))) as http:
        other = Client(BASE, http_client=http)
        added = other.add(FRAME, pd.Series(["yes", "no"], index=[7, 8]), subjects=["ada", None])
        assert (added.ids, added.n_samples) == (["p", "q"], 2)
        assert [(one.subject, one.label) for one in other.samples()] == [("ada", "yes"), (None, "no")]
        np.testing.assert_array_equal(other.predict(FRAME).probabilities, model.predict_proba(FRAME))


def test_the_life_of_a_sample(client: Client) -> None:
    before, row = client.min_version, [[1, "a", True]]
    added = client.add(row, ["yes"], ids=["life/1?"], subjects="zoe")
    assert client.min_version == added.model_version > before
    client.forget_version()
    with pytest.raises(errors.IdConflictError) as caught:
        client.add([[2, "a", True]], ["yes"], ids=["life/1?"])
    assert caught.value.pointers == ("/samples/0/id",)
    receipt = client.replace("life/1?", {"age": 3, "job": None, "member": False}, "no", subject=None)
    assert (receipt.kind, receipt.unlearned) == ("rectification", 1)
    held = client.get("life/1?")
    assert (held.features, held.label, held.subject) == ({"age": 3, "job": None, "member": False}, "no", None)
    ref = str(uuid.uuid4())
    deleted = client.delete("life/1?", ref=ref)
    assert (deleted.status, deleted.unlearned, deleted.ref) == ("unlearned", 1, ref)
    assert [one.id for one in client.erasures(ref)] == [client.erasure(deleted).id] == [deleted.id]
    with pytest.raises(errors.NotFoundError):
        client.get("life/1?")
    with pytest.raises(errors.ErasedLatelyError):
        client.add(row, ["yes"], ids=["life/1?"])
    assert client.add(row, ["yes"], ids=["life/1?"], subjects="zoe", readd=True).ids == ["life/1?"]
    assert client.delete(subjects=["zoe", "nobody"]).absent == 1
    first, again = (client.add(row, ["yes"], idempotency_key="mine") for _ in range(2))
    assert first == again


def test_restriction_release_and_export(client: Client) -> None:
    added = client.add([[1, "a", True], [2, "b", None]], ["yes", "no"], ids=["r1", "r2"], subjects="rosa")
    made = client.restrict(["rosa", "nobody"], keep_expired=True, ref="0b4fa0c4-5c0a-4f9e-9c7d-7f3a3d0d6d55")
    assert (made.samples, made.absent, made.n_samples) == (2, 1, added.n_samples - 2)
    assert made.model_version == client.min_version
    with pytest.raises(errors.RestrictedError):
        client.add([[3, "a", True]], ["yes"], ids=["r3"], subjects="rosa")
    bundle = client.export("rosa")
    assert [(one.id, one.restricted_at) for one in bundle.samples] == [("r1", made.at), ("r2", made.at)]
    assert all(one.added_at is not None and one.request_id for one in bundle.samples)
    assert (bundle.content["subject"], client.model().n_restricted) == ("rosa", 2)
    assert (client.release("rosa").samples, client.delete(subjects="rosa").unlearned) == (2, 2)
    assert not client.export("rosa").held


def test_samples_come_page_by_page(client: Client) -> None:
    by_page = [sample.id for sample in client.samples(page_size=7)]
    assert by_page == [sample.id for sample in client.samples()]
    assert len(by_page) == len(set(by_page)) == client.model().n_samples
    assert {sample.subject for sample in client.samples(subject="s1", page_size=5)} == {"s1"}
    assert next(client.samples(page_size=1)).id == by_page[0]  # and the rest is never asked for
    assert list(client.samples(subject="nobody")) == []


def test_a_fit_takes_parameters_and_an_explanation_columns(client: Client) -> None:
    client.wait(client.fit(parameters={"n_estimators": 4}), timeout=60)
    assert client.model().parameters["n_estimators"] == 4
    assert client.explain([[1, "a", True]], columns=2, features=["age", "job"]).changes is not None
    assert client.explain([[1, "a", True]]).changes is None


def test_receipts_snapshots_and_the_ledger(client: Client, tmp_path: Path) -> None:
    added = client.add([[5, "b", True]], ["no"])
    receipt = client.delete(added.ids)
    keys = client.keys()
    assert client.verify_receipt(receipt, in_ledger=True) == keys[0].key_id
    kept = json.loads(json.dumps(receipt.content))
    assert client.verify_receipt(kept, keys=keys) == keys[0].key_id
    for name, value in {"unlearned": 2, "ledger_index": 1}.items():
        with pytest.raises(errors.ReceiptError):
            client.verify_receipt({**kept, name: value}, in_ledger=True)
    with pytest.raises(errors.ReceiptError, match="trusted"):
        Client(BASE, http_client=client.transport.http, trusted_keys=[]).verify_receipt(kept)
    client.snapshot()
    size = client.download_snapshot(tmp_path / "file")
    assert (size, (tmp_path / "file").stat().st_mode & 0o777) == ((tmp_path / "file").stat().st_size, 0o600)
    assert client.restore_snapshot(tmp_path / "file").model_version == client.min_version
    indices = [entry.index for entry in client.ledger(page_size=3)]
    assert indices == list(range(1, len(indices) + 1))
    later = [entry.index for entry in client.ledger(after=2)]  # erasures of earlier tests may append meanwhile
    assert later[: len(indices) - 2] == indices[2:]


def trusted_by(client: Client) -> Policy:
    published = client.keys()
    return read_policy("".join(f"log {one.log_key}\n" for one in published).encode() + b"quorum none\n")


def test_states_and_absence_are_proved(client: Client) -> None:
    told, policy = client.tell_state(), trusted_by(client)
    assert [one.index for one in client.states(page_size=1)][-1] == told.index
    proved = client.state(told, trees=True)
    checked = check_state(proved.content, policy)
    assert (client.state(told.index).tree_digests, proved.tree_digests) == (None, checked.tree_digests)
    assert (checked.model_version, checked.digest) == (told.model_version, proved.digest)
    for absent, by in ((client.prove_absence("nobody"), "ids"), (client.prove_absence(subject="nobody"), "subjects")):
        assert (absent.by, absent.name, absent.model_version) == (by, "nobody", told.model_version)
        found = check_absence(json.dumps(absent.content), policy, name="nobody")
        assert (found.root.hex(), found.n_samples) == (told.set_root, told.n_samples)
    with pytest.raises(errors.ConflictError):
        client.prove_absence(next(client.samples()).id)
    with pytest.raises(errors.DataError):
        client.prove_absence("a", subject="b")


def test_predictions_are_signed(client: Client) -> None:
    signed = client.predict_signed(FRAME)
    np.testing.assert_array_equal(signed.predictions.probabilities, client.predict(FRAME).probabilities)
    assert list(signed.predictions.to_frame().index) == ["p", "q"]
    checked = check_prediction(json.loads(json.dumps(signed.content)), trusted_by(client))
    assert (checked.set_root, checked.model_version) == (signed.set_root, signed.predictions.model_version)


def test_the_awaiting_client_does_the_same() -> None:
    async def run() -> None:
        async with served_here(make_service(), max_rows=10) as http, AsyncClient(BASE, http_client=http) as client:
            added = await client.add(FRAME, ["yes", "no"], subjects="zoe")
            assert client.min_version == added.model_version
            found = await asyncio.gather(*(client.predict(FRAME) for _ in range(8)))
            assert len((await client.predict(rows(103))).predictions) == 103, "in parts"
            assert {one.model_version for one in found} == {added.model_version}
            assert [sample.id async for sample in client.samples(subject="zoe", page_size=1)] == ["p", "q"]
            assert (await client.samples_frame(subject="zoe")).shape == (2, 5)
            states = [state.status async for state in client.watch(await client.verify())]
            assert states[-1] == "succeeded"
            receipt = await client.delete(["p", "q"])
            assert await client.verify_receipt(receipt) == receipt.key_id
            with pytest.raises(errors.NotFoundError):
                await client.get("p")
            told = await client.tell_state()
            assert [state.index async for state in client.states()][-1] == told.index
            assert (await client.predict_signed(rows(1))).set_root == told.set_root

    asyncio.run(run())


def test_the_client_is_imported_when_it_is_asked_for_and_the_extra_that_is_missing_is_named() -> None:
    loaded = "print(was, 'httpx2' in sys.modules, any(n.startswith(('oubli.core', 'oubli.app')) for n in sys.modules))"
    for before, after, printed in (
        ("import sys, oubli; was = 'httpx2' in sys.modules", loaded, "False True False"),
        ("import sys; sys.modules['httpx2'] = None; import oubli", "", "pip install 'oubli-server[client]'"),
    ):
        script = f"{before}\ntry: oubli.Client\nexcept ImportError as error: print(error)\n{after}"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert printed in done.stdout
    assert {"Client", "AsyncClient"} <= set(dir(oubli))


def test_looking_at_the_model_says_what_the_library_says() -> None:
    with served() as http, Client(BASE, http_client=http) as client:
        expected = dict(zip(NAMES, forest().feature_importances_, strict=True))
        assert client.importances() == pytest.approx(expected)
        node = client.tree(1, node="l", levels=0)["node"]
        assert (node["path"], node["left"]) == ("l", None)
        with pytest.raises(errors.NotFoundError):
            client.tree(7)


def test_predictions_without_somebody_are_those_of_a_model_that_was_never_told(monkeypatch) -> None:
    model = forest()
    model.delete([f"c{i}" for i in range(60) if i % 5 == 2])
    expected = model.predict_proba(FRAME[NAMES])
    with served(make_service()) as http, Client(BASE, http_client=http) as client:
        for long in (120.0, 0.0):  # at once, and as a job
            monkeypatch.setattr("oubli.app.service.model.influence._LONG", long)
            told: list[float] = []
            found = client.predict_without(FRAME, subjects="s2", progress=told.append)
            assert (found.removed, found.absent, found.n_samples) == (12, 0, 48)
            assert found.after is not None
            np.testing.assert_array_equal(found.after.probabilities, expected)
            assert (list(found.before.to_frame().index), bool(told)) == (["p", "q"], long == 0.0)
        everybody = client.predict_without(rows(1), subjects=[f"s{i}" for i in range(5)])
        assert everybody.after is None
