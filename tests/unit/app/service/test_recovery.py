"""Snapshots that are sent in, and what a start makes of files whose trees are not those of their samples."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.app.service.build import open_directory
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.core.data.schema import Task
from oubli.core.estimators import KINDS, load_foreign, load_own
from tests.unit.app.support import CLASSES, forest, make_service, problem_of, rows, samples, served
from tests.unit.core.mutated import Parts, Tensor

HEADERS = {"Content-Type": "application/octet-stream"}
OTHER_NAN = 0x7FC00001
KINDS_TRIED = [
    *(("forest", {"n_estimators": 5}), ("tree", {"max_depth": 5})),
    ("online-boosting", {"n_estimators": 4, "max_leaf_nodes": 5}),
    ("incremental-boosting", {"n_estimators": 4, "max_depth": 3}),
]
SPLITS = {"forest": "forest.nodes.attribute", "tree": "tree.attribute", "online-boosting": "boosting.place"}
SPLITS["incremental-boosting"] = "boosting.feature"


def model_of(kind: str, parameters: dict[str, Any], n: int = 40) -> Any:
    model = KINDS[kind, Task.CLASSIFICATION](**parameters, random_state=0)
    labels = ["yes" if i % 4 else "no" for i in range(n)]
    with_gaps = [[None if i % 5 == 0 else row[0], *row[1:]] for i, row in enumerate(rows(n))]
    return model.fit(with_gaps, labels, ids=[f"c{i}" for i in range(n)], schema=CLASSES)


def changed(path: Path, name: str, change: Any) -> bytes:
    """A file with one of its arrays changed, and right checksums."""
    parts = Parts.read(path)
    tensors = dict(parts.tensors)
    array = tensors[name].array
    change(array)
    parts.tensors = [*{**tensors, name: Tensor.of(array)}.items()]
    return parts.bytes()


def other_nans(cells: np.ndarray) -> None:
    cells.view(np.uint32)[np.isnan(cells)] = OTHER_NAN
    cells[cells == 0] = -0.0


def put(client: Any, content: bytes) -> Any:
    return client.put("/snapshot/file", content=content, headers=HEADERS)


@pytest.mark.parametrize(("kind", "parameters"), KINDS_TRIED)
def test_numbers_in_another_form_are_brought_into_ours_and_nothing_is_lost(tmp_path, kind, parameters):
    """Sent in, a few deletions, a clean stop, a start: this lost all data."""
    model_of(kind, parameters).save(tmp_path / "sent")
    content = changed(tmp_path / "sent", "samples.cells", other_nans)
    with served(service := make_service(model_of(kind, parameters, 20), tmp_path / "data")) as client:
        answer = put(client, content)
        assert (answer.status_code, answer.json().get("verified")) == (200, "grown-anew"), answer.text
        assert client.post("/model/verify").status_code == 202
        for i in range(6):
            assert client.delete(f"/samples/c{i}").status_code == 200
        assert client.post("/samples", json=samples(3)).status_code == 201
        service.model.state.model.check_invariants()
        assert client.post("/snapshot").status_code == 201
        digest = service.model.state.model.digest()
    with closing(open_directory(tmp_path / "data")) as opened:
        recovered = opened.snapshots.recover()
    found, model = recovered.regrown, recovered.model
    assert (found, model.digest(), model.n_samples_, model.verify().ok) == (False, digest, 37, True)


@pytest.mark.parametrize(("kind", "parameters"), KINDS_TRIED)
def test_a_start_that_finds_no_sound_trees_grows_them_again(tmp_path, kind, parameters):
    model = model_of(kind, parameters)
    policy = CheckpointPolicy(snapshot_mutations=10**9, snapshot_age=1e9, erasure_deadline=1e6)
    with served(service := make_service(model, tmp_path / "data", policy=policy)) as client:
        assert client.post("/samples", json=samples(2)).status_code == 201
        version = service.model.state.version
    for path in (tmp_path / "data").glob("snapshot-*"):
        path.write_bytes(changed(path, SPLITS[kind], _spoil))
    with closing(open_directory(tmp_path / "data")) as opened:
        recovered = opened.snapshots.recover()
        assert recovered.regrown
        assert any("rebuilt" in note for note in recovered.notes)
        live = opened.recover(recovered).state
        expected = (42, version + (model.guarantee != "exact"), True)
        assert (live.model.n_samples_, live.version, live.model.verify().ok) == expected
        (*_, entry) = opened.database.entries(0, 1000)
        assert (entry["type"], entry["model_version"]) == ("trees-grown-anew", live.version)
    with closing(open_directory(tmp_path / "data")) as opened:  # and the next one finds them
        recovered = opened.snapshots.recover()
        assert not recovered.regrown
        again = opened.recover(recovered).state
        assert (again.version, again.model.digest()) == (live.version, live.model.digest())


def _spoil(array: np.ndarray) -> None:
    array[0] = 99


NUMBERS = ("model_version", "next_id", "seq", "epoch", "exports", "ledger_index")
NO_NUMBERS = ("-7", "1" + 30 * "0", "9" * 5000, "1_0", " 7", "", "x", "1.5", "\u0661")
NO_TIMES = (
    *("10000-01-01T00:00:00+00:00", "2026-01-01T00:00:00", "x"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
)
BAD_NOTES: list[tuple[str, Any]] = [
    *((name, value) for name in NUMBERS for value in NO_NUMBERS),
    *(("created_at", value) for value in NO_TIMES),
    *(("lineage", value) for value in ("x" * 10_000, 7, None)),
    *(("model_version", 7), ("next_id", None), ("restore_notes", ["x"]), ("ledger_hash", {})),
]


def test_numbers_of_sent_files_are_bounded(tmp_path: Path) -> None:
    service = make_service(forest(20), tmp_path / "data")
    extra = {"model_version": "3", "next_id": "50", "created_at": "2026-01-02T03:04:05.678+00:00"}
    forest(10).save(tmp_path / "sent", extra)
    with served(service) as client:
        before = client.get("/model").json()
        contents: list[bytes] = []
        changes: list[tuple[str, str, Any]] = [
            *(("extra", name, value) for name, value in BAD_NOTES),
            *(("", "extra", value) for value in ([], "x", None, [1], {"a": 1}, {"": None})),
            *(("", "n_classes", 2**28), ("", "n_samples", True), ("", "n_samples", 10**30), ("", "digest", "0" * 64)),
            *(("settings", "occurrences", 0), ("settings", "n_trees", 2**15)),
            *(("settings", "seed", 2**70), ("settings", "max_depth", 1.5)),
        ]
        for within, field, value in changes:
            parts = Parts.read(tmp_path / "sent")
            (parts.document[within] if within else parts.document)[field] = value
            contents.append(parts.bytes())
        for text in ("[" * 100_000, '{"a":' * 100_000, '{"n_samples":' + "9" * 5000 + "}", '{"n_samples":NaN}', "\x00"):
            parts = Parts.read(tmp_path / "sent")
            parts.document = text
            contents.append(parts.bytes())
        for content in contents:
            answer = put(client, content)
            assert problem_of(answer) == (422, "unreadable-file"), (content[:3000], answer.text)
        assert client.get("/model").json() == before
        assert client.post("/samples", json=samples(1)).status_code == 201
        # As it is, it is taken, and new ids follow those that it names.
        answer = put(client, (tmp_path / "sent").read_bytes())
        assert (answer.status_code, answer.json()["verified"]) == (200, "verified")
        body = {"samples": [{"features": rows(1)[0], "label": "yes"}]}
        assert client.post("/samples", json=body).json()["ids"] == ["50"]


def test_what_takes_long_to_compare_is_checked_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.service.recovery.rebuild._LONGEST_CHECK", 0.0)
    forest(10).save(tmp_path / "sent")
    with served(make_service(forest(20))) as client:
        assert put(client, (tmp_path / "sent").read_bytes()).json()["verified"] == "checked"


def test_files_of_ours_may_ask_for_more_memory_than_sent_ones(tmp_path: Path) -> None:
    model = KINDS["online-boosting", Task.CLASSIFICATION](n_estimators=300, max_leaf_nodes=256, random_state=0)
    model.fit(rows(30), ["yes", "no"] * 15, schema=CLASSES)
    model.save(tmp_path / "model")
    assert load_foreign(tmp_path / "model").model.digest() == model.digest(), "it is as large as it has to be"
    parts = Parts.read(tmp_path / "model")
    parts.tensors = [(name, tensor) for name, tensor in parts.tensors if name != "filler"]
    (tmp_path / "small").write_bytes(parts.bytes())
    assert load_own(tmp_path / "small").model.digest() == model.digest()
    if len(parts.tensors) < len(Parts.read(tmp_path / "model").tensors):
        with pytest.raises(ValueError, match="more than a file of its size may"):
            load_foreign(tmp_path / "small")
