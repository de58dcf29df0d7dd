"""Model files: what they give back, what they refuse, and what they do not hold."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from safetensors.numpy import save_file

from oubli.core import load, persistence
from oubli.core.errors import FileError
from oubli.core.forest.layout.blocks import NEXT_FREE
from oubli.core.samples.indexes import Addition
from oubli.core.samples.owners import Mark
from tests.golden.make import HERE, classifier, regressor, rows
from tests.unit.core.mutated import Parts, Tensor, counters, fitted, make

Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def _counters() -> Iterator[None]:
    with counters():
        yield


# Round trips


def test_saving_again_or_what_was_loaded_writes_the_same_parts(tmp_path: Path) -> None:
    model = make("forest", 80)
    model.save(tmp_path / "one")
    model.save(tmp_path / "two")
    other = load(tmp_path / "one")
    assert other.digest() == model.digest()
    assert other.verify().ok
    other.check_invariants()
    other.save(tmp_path / "three")
    document, arrays = persistence.read(tmp_path / "one")
    for name in ("two", "three"):
        again = persistence.read(tmp_path / name)
        assert again[0] == document | {"parameters": document["parameters"] | {"random_state": model.seed_}}
        assert {part: a.tobytes() for part, a in again[1].items()} == {part: a.tobytes() for part, a in arrays.items()}


# Golden files

GOLDEN_QUERIES = [
    [None, None, None, None], [-4.9, float(2**40), "red", True], [7.5, float(2**40 + 12), "never seen", False],
    [0.25, float(2**40 + 5), "green", None], [3.0, float(2**40 + 1), "blue", True],
]  # fmt: skip


CLASSIFIER = "5fc35e5952a0053389ba140dfd6ad0f87ace249ada875bac52039c752e773e7d"
REGRESSOR = "fbb0bde443136594f33c4c98366931d45af6c6f8130375b7242c111f284cfcd2"


@pytest.mark.parametrize("version", [1, 2, 4])
def test_the_golden_classifier(version: int) -> None:
    model = load(HERE / f"forest-classifier-v{version}.safetensors")
    assert (model.digest(), model.classes_.tolist()) == (CLASSIFIER, ["no", "yes", "ünsure"])
    result = model.query(GOLDEN_QUERIES)
    assert result.labels.tolist() == ["yes", "yes", "no", "yes", "yes"]
    assert [[p.hex() for p in row] for row in result.probabilities.tolist()] == [
        ["0x1.1c71c71c71c71p-2", "0x1.1c71c71c71c71p-1", "0x1.5555555555555p-3"],
        ["0x1.5555555555555p-3", "0x1.5555555555555p-1", "0x1.5555555555555p-3"],
        ["0x1.71c71c71c71c8p-1", "0x1.c71c71c71c71cp-3", "0x1.c71c71c71c71cp-5"],
        ["0x1.8618618618618p-5", "0x1.79e79e79e79e8p-1", "0x1.b6db6db6db6dbp-3"],
        ["0x1.8618618618618p-5", "0x1.2492492492493p-1", "0x1.8618618618618p-2"],
    ]
    assert_golden(model, "yes")


@pytest.mark.parametrize("version", [1, 2, 4])
def test_the_golden_regressor(version: int) -> None:
    model = load(HERE / f"forest-regressor-v{version}.safetensors")
    assert model.digest() == REGRESSOR
    assert [y.hex() for y in model.predict(GOLDEN_QUERIES).tolist()] == [
        "0x1.3555555555555p-1", "-0x1.8d55555555555p+0", "0x1.6aaaaaaaaaaabp-3", "0x1.38e38e38e38e5p-5",
        "-0x1.6aaaaaaaaaaabp-1",
    ]  # fmt: skip
    assert_golden(model, 1.25)


@pytest.mark.parametrize("version", [3, 5])
def test_the_golden_classifier_with_restricted_samples(version: int) -> None:
    model = load(HERE / f"forest-classifier-v{version}.safetensors")
    kept = model.samples_.restricted
    model.check_invariants()
    assert (model.n_samples_, kept.marks) == (89, {"person ä": Mark(1_700_000_000_000, True)})
    assert kept.ids_of_subject("person ä") == ["sample 7", "sample 9"]
    assert kept.get("sample 9").features == rows()[9]
    assert kept.addition("sample 7") == model.samples_.addition("sample 10")
    assert model.samples_.addition("sample 10") == Addition(1_600_000_000_000, "request-1")
    model.release(["sample 7", "sample 9"])
    assert model.digest() == CLASSIFIER


def assert_golden(model: Any, label: Any) -> None:
    """What both golden files hold; and they can be changed."""
    model.check_invariants()
    assert model.verify().ok
    assert (model.n_samples_, model.samples_.ids_of_subject("person ä")) == (91, ["sample 7"])
    assert model.samples_.get("sample 8").features == rows()[9]
    assert (model.samples_.next_expiry(), model.samples_.origin("sample 8")) == (None, 0), "older files have neither"
    assert not model.samples_.contains("sample 20")
    assert model.samples_.ids()[-3:] == ["0", "1", "sample 8"]
    assert model.add(rows()[:1], [label]) == ["2"]
    model.delete(["sample 0", "sample 90"])
    assert model.verify().ok


def test_a_model_made_today_as_the_golden_ones_were_is_the_same() -> None:
    assert (classifier().digest(), regressor().digest()) == (CLASSIFIER, REGRESSOR)


# Writing is all or nothing


def no_space(*args: Any, **kwargs: Any) -> None:
    raise OSError(28, "No space left on device")


def interrupted(handle: int, arrays: Arrays, metadata: dict[str, str]) -> None:
    os.write(handle, bytes(1000))
    raise KeyboardInterrupt


@pytest.mark.parametrize(("step", "fail"), [
    ("oubli.core.persistence.write_tensors", no_space), ("oubli.core.persistence.write_tensors", interrupted),
    ("os.fsync", no_space), ("pathlib.Path.replace", no_space), ("json.dumps", no_space),
])  # fmt: skip
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, step: str, fail: Any) -> None:
    path = tmp_path / "model"
    model = fitted()
    model.save(path)
    before = path.read_bytes()
    model.delete("id 0")
    with patch(step, fail), pytest.raises((OSError, KeyboardInterrupt)):
        model.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    model.save(path)
    assert load(path).digest() == model.digest()


def test_the_new_file_is_on_the_disk_before_it_takes_the_place_of_the_old(tmp_path: Path) -> None:
    events, replace = list[str](), Path.replace

    def spy(self: Path, target: Path) -> Path:
        events.append("move")
        return replace(self, target)

    with patch("os.fsync", lambda handle: events.append("flush")), patch("pathlib.Path.replace", spy):
        fitted().save(tmp_path / "model")
    assert events == ["flush", "move", "flush"]  # the file, then the directory that names it


def test_parameters_may_be_numbers_of_numpy_and_only_the_owner_can_read_a_file(tmp_path: Path) -> None:
    """A search over np.arange(...) sets them."""
    numbers = {"n_estimators": np.int64(3), "max_features": np.float64(0.5), "min_samples_split": np.uint8(2)}
    model = fitted(**numbers, lazy=np.bool_(True))
    model.save(tmp_path / "model")
    other = load(tmp_path / "model")
    assert other.digest() == model.digest()
    assert other.get_params() == {**model.get_params(), "random_state": model.seed_}
    assert os.name == "nt" or (tmp_path / "model").stat().st_mode & 0o077 == 0
    with pytest.raises(FileNotFoundError):
        model.save(tmp_path / "nowhere" / "model")


# Damage


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "model"
    with counters():
        fitted(n=40, n_estimators=2).save(path, {"note": "é"})
    return path.read_bytes()


def refused(path: Path, content: bytes) -> FileError:
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        load(path)
    assert str(caught.value) == caught.value.rule
    return caught.value


REMEDIES = ("restore another file", "use one that `save` or a snapshot wrote", "upgrade oubli")


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, sound: bytes) -> None:
    for length in {*range(0, len(sound), 151), *range(20), len(sound) - 1, len(sound) - 8}:
        assert str(refused(tmp_path / "model", sound[:length])).endswith(REMEDIES)
    (tmp_path / "model").write_bytes(sound)
    assert load(tmp_path / "model").n_samples_ == 40


@pytest.mark.parametrize("step", [151, pytest.param(1, marks=pytest.mark.long)])
def test_one_flipped_bit_is_refused_wherever_it_is(tmp_path: Path, sound: bytes, step: int) -> None:
    for i in [*range(8), *range(8, len(sound), step)]:
        damaged = bytearray(sound)
        damaged[i] ^= 1 << (i % 8)
        assert str(refused(tmp_path / "model", bytes(damaged))).endswith(REMEDIES)


@pytest.mark.parametrize("content", [
    b"", b"\0", b"\0" * 4096, b"\xff" * 4096, b"{}", b"id,age\n1,2\n", b"\x80\x04K\x01.", b"PK\x03\x04" + b"\0" * 100,
], ids=["empty", "one byte", "zeros", "ones", "JSON", "CSV", "pickle", "zip"])  # fmt: skip
def test_files_of_other_kinds_are_refused(tmp_path: Path, content: bytes) -> None:
    assert "not a model file: use one that `save` or a snapshot wrote" in str(refused(tmp_path / "model", content))


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "oubli"}, {"document": "{}"}])
def test_safetensors_of_others_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"weight": np.zeros((2, 2), np.float32)}, tmp_path / "model", metadata)
    with pytest.raises(FileError, match="was not written by Oubli: use one that `save` or a snapshot wrote"):
        load(tmp_path / "model")
    with pytest.raises(FileError, match="was not written by Oubli"):
        persistence.read_metadata(tmp_path / "model")


def test_arrays_of_no_rows_and_endless_length_are_refused(tmp_path: Path, sound: bytes) -> None:
    """Before they are read: whatever goes through their other dimension would never end."""
    (tmp_path / "model").write_bytes(sound)
    parts = Parts.read(tmp_path / "model")
    parts.tensors = [("weight", Tensor("F32", (0, 2**40), b""))]
    (tmp_path / "model").write_bytes(parts.bytes())
    with pytest.raises(FileError, match="has a type or a shape that none can have"):
        load(tmp_path / "model")


def test_a_missing_file_is_reported_as_such_and_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    with pytest.raises(FileError, match="this is a directory: name a file that `save` or a snapshot wrote"):
        load(tmp_path)
    denied = patch("safetensors.safe_open", side_effect=PermissionError(13, "Permission denied"))
    with denied, pytest.raises(FileError, match=r"cannot be read \(Permission denied\): check its permissions"):
        load(tmp_path / "model")


@pytest.mark.parametrize(("changes", "rule"), [
    ({"version": "6"}, r"format version 6, newer than 5, .*: upgrade oubli"),
    *(
        ({"version": version}, "has no format version: use one that `save` or a snapshot wrote")
        for version in ("", "-1", "1.0", "one", "0", "00", "9" * 5000, "\u0661")
    ),
    *(
        ({"document": document}, "header is damaged: restore another file")
        for document in ("", "[]", "{", "1", "null", "[" * 100_000)
    ),
    ({"sha256": "0" * 64}, "does not match its checksum: restore another file"),
], ids=lambda value: str(value)[:30])  # fmt: skip
def test_metadata_that_cannot_be_are_refused(tmp_path: Path, sound: bytes, changes: dict[str, str], rule: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(sound)
    parts = Parts.read(path)
    parts.document = changes.get("document", parts.document)
    parts.metadata.update(changes)
    path.write_bytes(parts.bytes())
    for read in (load, persistence.read_metadata) if "version" in changes else (load,):
        with pytest.raises(FileError, match=rule):
            read(path)


# What was written on purpose, under a checksum that is right; of arrays see tests/exact/core/contracts/test_damage.py


def test_class_codes_beyond_the_trees_are_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    document, arrays = persistence.read(tmp_path / "model")
    names = ("class_table.codes", "samples.targets")
    highest = int(arrays[names[0]].max())
    for code in (highest + 1, 2**31 - 2, -1):
        changed = {name: np.where(arrays[name] == highest, code, arrays[name]) for name in names}
        persistence.write(tmp_path / "model", {**arrays, **changed}, document)
        with pytest.raises(FileError, match="restore another file"):
            load(tmp_path / "model")


@pytest.mark.parametrize("field", ["kind", "task"])
def test_unknown_kinds_of_models_ask_for_an_upgrade(tmp_path: Path, field: str) -> None:
    fitted().save(tmp_path / "model")
    document, arrays = persistence.read(tmp_path / "model")
    for value in (None, "", "tree of life", 1, [], {}, ["forest"]):
        persistence.write(tmp_path / "model", arrays, {**document, field: value})
        with pytest.raises(FileError, match="a kind of model that this program does not know: upgrade oubli"):
            load(tmp_path / "model")


def test_a_file_of_a_model_that_forgot_everything_holds_zeros(tmp_path: Path) -> None:
    """Texts and cells are gone; rows that the pools keep are empty."""
    model = fitted()
    model.delete(model.samples_.ids())
    model.save(tmp_path / "model")
    _, arrays = persistence.read(tmp_path / "model")
    for name, array in arrays.items():
        if name.startswith(("samples.ids", "samples.cells", "samples.targets", "samples.slots", "categories.")):
            assert not array.any(), name
    assert not arrays["forest.nodes.category"].any()
    assert not arrays["forest.leaves.statistics"].any()
    blocks = arrays["forest.blocks"].copy()
    blocks[:, NEXT_FREE] = 0  # the list of those that are free
    assert not blocks.any()
