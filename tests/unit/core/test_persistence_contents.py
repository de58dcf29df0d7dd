"""Model files: what was written wrong or on purpose is refused, and nothing of deleted samples is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor, load, persistence
from oubli.core.data.schema import Task
from oubli.core.errors import FileError
from oubli.core.forest.layout.blocks import ATTRIBUTE_SIZE, HI, LO, N_ATTRIBUTES, NEXT_FREE, layout_of
from oubli.core.forest.parameters import ForestSettings
from oubli.core.forest.state import FREE_ROOMS, MAX_ROOM, N_MEMBERS
from oubli.core.jit.nodes import MISSING_LEFT
from tests.unit.core.mutated import counters, fitted, make
from tests.unit.core.test_persistence import Arrays

# What was written wrong, or on purpose, under a checksum that is right. A kernel that followed a wrong index would
# end the process.


@pytest.fixture(scope="module", params=["forest", "forest-regressor"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Arrays]:
    path = tmp_path_factory.mktemp("parts") / "model"
    with counters():
        make(request.param, 90).save(path)
    return persistence.read(path)


def written(path: Path, document: dict[str, Any], arrays: Arrays) -> Path:
    """A file with these parts and the checksum that belongs to them."""
    with patch("os.fsync"):  # a thousand files need not reach the disk
        persistence.write(path, arrays, document)
    return path


def tampered(arrays: Arrays, name: str, index: Any, value: Any) -> Arrays:
    changed = arrays[name].copy()
    changed[index] = value
    return {**arrays, name: changed}


def test_the_parts_are_sound_as_they_are(tmp_path: Path, parts: tuple[dict[str, Any], Arrays]) -> None:
    document, arrays = parts
    model = load(written(tmp_path / "model", document, arrays))
    assert model.verify().ok
    meta = arrays["forest.meta"].tolist()
    assert meta[2] > 0, "free pairs of nodes"
    assert meta[5] > 0, "free leaves"
    assert meta[8] > 0, "free counters"
    assert (arrays["forest.nodes.block"] >= 0).any()


ROOT = 0
FAR, ALL = 2**31 - 1, slice(None)
WRONG_INDICES = [
    ("nodes.child", ROOT, [FAR, -(2**31), 0, 5]),  # its own child, and one between two pairs
    ("nodes.attribute", ROOT, [4, -1]),
    ("nodes.block", ROOT, [10_000, 0]),  # the working space
    ("nodes.n_samples", ROOT, [FAR, 0, -5]),
    ("nodes.kind", ROOT, [4]),
    ("leaves.starts", ALL, [0, FAR, -2]),  # all leaves in one room
    ("leaves.rooms", ALL, [0, MAX_ROOM, 255]),  # too small
    ("leaves.statistics", 0, [1000]),
    ("members", ALL, [0]),
    ("members", 3, [FAR, -(2**31)]),
    ("places", ALL, [0]),
    ("places", 3, [FAR, -(2**31)]),
    ("meta", 0, [2**62]),
    ("meta", 1, [2**62, 0]),
    ("meta", 2, [2**62]),
    ("meta", 4, [2**62, 0]),
    ("meta", 5, [2**62]),
    ("meta", 7, [0]),
    ("meta", 8, [-1]),
    ("meta", 9, [1]),
    ("meta", N_MEMBERS, [2**62]),
    ("meta", FREE_ROOMS + MAX_ROOM, [0]),  # no room of that size
    ("meta", FREE_ROOMS, [2**62]),
    ("blocks", (1, N_ATTRIBUTES), [2**30, -1]),
    ("blocks", (1, NEXT_FREE), [2**30]),
    # An attribute and the number of its cells are the halves of two numbers at the end of an attribute.
    ("blocks", (1, slice(16, None)), [2**40 + 4, -1]),
]


@pytest.mark.parametrize(("name", "index", "values"), WRONG_INDICES)
def test_wrong_indices_are_refused(
    tmp_path: Path, parts: tuple[dict[str, Any], Arrays], name: str, index: Any, values: list[int]
) -> None:
    document, arrays = parts
    for value in values:
        path = written(tmp_path / "model", document, tampered(arrays, f"forest.{name}", index, value))
        with pytest.raises(FileError, match=": restore another file"):
            load(path)


def test_class_codes_beyond_the_trees_are_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    document, arrays = persistence.read(tmp_path / "model")
    highest = int(arrays["class_table.codes"].max())
    for code in (highest + 1, 2**31 - 2, -1):
        changed = tampered(arrays, "class_table.codes", arrays["class_table.codes"] == highest, code)
        changed = tampered(changed, "samples.targets", arrays["samples.targets"] == highest, code)
        with pytest.raises(FileError, match="restore another file"):
            load(written(tmp_path / "model", document, changed))


@pytest.mark.parametrize("field", ["kind", "task"])
def test_unknown_kinds_of_models_ask_for_an_upgrade(
    tmp_path: Path, parts: tuple[dict[str, Any], Arrays], field: str
) -> None:
    document, arrays = parts
    for value in (None, "", "tree of life", 1, [], {}, ["forest"]):
        with pytest.raises(FileError, match="a kind of model that this program does not know: upgrade oubli"):
            load(written(tmp_path / "model", {**document, field: value}, arrays))


# Nothing of deleted samples

MARK = 98765.4321
PERSON, SUBJECT, CLASS, COLOUR = (f"{what} to be forgotten" for what in ("person", "subject", "class", "colour"))


def traces(task: str) -> list[bytes]:
    label = CLASS.encode() if task == "classification" else np.float64(MARK + 1).tobytes()
    return [np.float32(MARK).tobytes(), label, *(text.encode() for text in (COLOUR, PERSON, SUBJECT))]


def add_marked(model: Any) -> None:
    """Add a sample that leaves a trace wherever it goes."""
    label = CLASS if model.task is Task.CLASSIFICATION else MARK + 1
    model.add([[MARK, COLOUR, -MARK, True]], [label], ids=[PERSON])
    model.samples_.set_subject(PERSON, SUBJECT)


def let_go(model: Any, way: str) -> None:
    """Make the marked sample leave."""
    if way == "replace":
        model.replace(PERSON, [5.0, "red", 3.0, True], 1.0 if model.task is Task.REGRESSION else "1")
        model.samples_.set_subject(PERSON, None)
    model.delete([PERSON, *(f"sample {i}" for i in range(0, 60, 2))] if way == "in a batch" else PERSON)


def finite_numbers(path: Path) -> np.ndarray:
    """Every number in a file that a cell of the first column or a range or threshold of it could be."""
    document, arrays = persistence.read(path)
    kinds = arrays["forest.nodes.kind"]
    thresholds = arrays["forest.nodes.category"][kinds <= MISSING_LEFT].view(np.float64)
    settings = document["settings"]
    n_columns = len(document["schema"]["columns"])
    layout = layout_of(ForestSettings(**settings), n_columns, document["n_classes"], has_categories=True)
    longs = arrays["forest.blocks"]
    end = layout.attributes_at + settings["max_features"] * ATTRIBUTE_SIZE
    attributes = np.ascontiguousarray(longs[:, layout.attributes_at : end]).reshape(-1, ATTRIBUTE_SIZE)
    ranges = attributes.view(np.float64)[:, [LO, HI]]
    values = np.concatenate([a.ravel().astype(np.float64) for a in (thresholds, ranges, arrays["samples.cells"])])
    return values[np.isfinite(values)]


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("way", ["alone", "in a batch", "replace"])
@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("resolved", [True, False])
def test_a_file_holds_nothing_of_deleted_samples(
    tmp_path: Path, task: str, way: str, lazy: bool, resolved: bool
) -> None:
    model = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    X = [[float(i % 11), ("red", "blue")[i % 2], float(i % 7), i % 3 == 0] for i in range(80)]
    y = [float(i % 9) for i in range(80)] if task == "regression" else [str(i % 3) for i in range(80)]
    # All features at every node: the mark is an end of a range wherever it is.
    model = model(n_estimators=3, random_state=0, max_features=4, n_thresholds=4, lazy=lazy, occurrence=1.0)
    model.fit(X, y, ids=[f"sample {i}" for i in range(80)])
    add_marked(model)
    if resolved:
        model.resolve()
    model.copy().save(tmp_path / "control")
    let_go(model, way)
    model.save(tmp_path / "model")
    control, content = (tmp_path / "control").read_bytes(), (tmp_path / "model").read_bytes()
    for trace in traces(task):
        assert trace in control, trace
        assert trace not in content, trace
    # No threshold or range lies beyond the samples that are left.
    assert finite_numbers(tmp_path / "control").max() > 100
    rest = finite_numbers(tmp_path / "model")
    assert rest.max() <= 79
    assert rest.min() >= -1


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
