"""The row that a server prints to try it with: accepted by the model, and nobody's."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.cli.examples import EXAMPLE_ROW, EXAMPLE_TARGET, plausible_row, tour
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.store import SampleStore

NUMBER, CATEGORY, BOOLEAN = ColumnType.NUMERIC, ColumnType.CATEGORICAL, ColumnType.BOOLEAN


def store(rows: list[Any], *types: ColumnType, subjects: Sequence[str] = (), dtype: str = "float32") -> SampleStore:
    columns = tuple(Column(f"x{j}", kind, dtype) for j, kind in enumerate(types))
    samples = SampleStore(Schema(columns, Task.CLASSIFICATION, LabelType.INTEGER, named=True))
    if rows:
        samples.commit(samples.prepare(rows, [0] * len(rows)))
    for slot, subject in enumerate(subjects):
        samples.subjects.link(slot, subject)
    return samples


def column(values: list[Any], kind: ColumnType, **options: Any) -> Any:
    """What is told of one column, beside one that keeps the row from being empty."""
    return plausible_row(store([[value, 1] for value in values], kind, NUMBER, **options))[0]


def test_numbers_are_round() -> None:
    for values, expected in (
        ([20 + i for i in range(60)], 50), ([17_313 + 1_117 * i for i in range(40)], 40_000), ([7] * 40, 7),
        ([0.0] * 30 + [812.5] * 9, 0), ([0.5 + i / 1000 for i in range(40)], 0.52), ([None] * 40, 0),
        ([36, 52, 41, None, 29, 63, 37], 0), ([1.7e10 + 1e9 * i for i in range(40)], 4e10),
        ([-3.0e38, 3.0e38] * 20, 3e38), ([None] * 30 + [float(i) for i in range(40)], 20),
    ):  # fmt: skip
        told = column(values, NUMBER)
        assert told == pytest.approx(expected)
        assert len(repr(told)) <= 14
        assert isinstance(told, int) == (float(told).is_integer() and abs(told) <= 2**24)


def test_a_number_is_not_that_of_the_person_in_the_middle_and_extremes_are_left_out() -> None:
    values = np.random.default_rng(0).lognormal(10, 1, size=501).round(2).tolist()
    assert column(values, NUMBER) not in values
    assert plausible_row(store([[value] for value in [-1.7e308, 1.7e308] * 30], NUMBER, dtype="float64")) == [0]


def test_only_frequent_categories_are_told() -> None:
    for values, expected in (
        (["cook"] * 9 + ["clerk"] * 5, None), (["cook"] * 10 + ["clerk"] * 5, "cook"), ([None] * 500, None),
        ([f"name {i}" for i in range(300)], None), (["rare"] * 12 + [f"name {i}" for i in range(300)], None),
        (['Zoë\'s "q" $(x) :smile:'] * 40, 'Zoë\'s "q" $(x) :smile:'),
    ):  # fmt: skip
        assert column(values, CATEGORY) == expected


def test_samples_of_one_person_count_once_and_a_row_is_not_all_null() -> None:
    mails = ["ada@example.org"] * 200 + [f"{i}@example.org" for i in range(40)]
    assert column(mails, CATEGORY) == "ada@example.org"
    assert column(mails, CATEGORY, subjects=mails) is None
    assert column([3] * 30 + [9], NUMBER, subjects=["ada"] * 30 + ["bob"]) == 0

    for values, is_told in (([True] * 30 + [False] * 9 + [None], True), ([False] * 30 + [True] * 9, False)):
        assert column(values, BOOLEAN) is is_told
    assert column([True] * 19, BOOLEAN) is False
    assert plausible_row(store([["a", "b"]], CATEGORY, CATEGORY)) == ["other", "other"]
    assert [plausible_row(store([], *kinds)) for kinds in ((NUMBER, CATEGORY), (CATEGORY,))] == [[0, None], ["other"]]


@given(st.data())
def test_the_model_accepts_the_row(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    cells = st.none() | st.floats(width=32 if dtype == "float32" else 64, allow_nan=False, allow_infinity=False)
    values = data.draw(st.lists(cells, min_size=20, max_size=40))
    samples = store([[value] for value in values], NUMBER, dtype=dtype)
    (row,) = json.loads(json.dumps([plausible_row(samples)], allow_nan=False))
    cells_of_row, _ = samples.encode_queries([row])
    assert np.isfinite(cells_of_row).all()


def test_a_line_of_other_data_predicts() -> None:
    samples = store([["it's", 20 + i, True] for i in range(60)], CATEGORY, NUMBER, BOOLEAN)
    (line,) = tour("https://h:1", samples, certificate=Path("my certs/c.pem"))
    words = shlex.split(line)
    assert words[:4] == ["curl", "--cacert", str(Path.cwd() / "my certs/c.pem"), "https://h:1/predict"]
    assert json.loads(words[-1]) == {"instances": [["it's", 50, True]]}


def test_lines_of_the_example_predict_add_and_delete(tmp_path: Path) -> None:
    columns = tuple(Column(name, NUMBER) for name in EXAMPLE_ROW)
    schema = Schema(columns, Task.CLASSIFICATION, LabelType.STRING, label_name=EXAMPLE_TARGET, named=True)
    lines = tour("http://h:1", SampleStore(schema), tmp_path / "my key")
    assert len(lines) == 3
    assert all(f"$(cat '{tmp_path}/my key')" in line for line in lines)
