"""Columns of a data file that say when its rows expire, and how much they count."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from oubli.app.datasets.loading import LoadError, Table, load_table
from oubli.app.service.jobs.fits import train
from oubli.app.settings import SettingsError, load_settings
from oubli.app.times import parse_time

NOW = parse_time("2030-01-01T00:00:00Z")
LATER = "2031-06-01T12:00:00+02:00"


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def load(path: Path, **flags: Any) -> Table:
    settings = load_settings(data=path, target="y", expiry_column="until", **flags)
    return load_table(settings, now_ns=lambda: NOW * 1_000_000)


def csv(tmp_path: Path, *fields: str) -> Path:
    path = tmp_path / "data.csv"
    rows = [f"n{i},{i},{field},{'ab'[i % 2]}" for i, field in enumerate(fields)]
    path.write_text("\n".join(["no,age,until,y", *rows]) + "\n")
    return path


def test_times_are_read_and_the_column_is_no_feature(tmp_path: Path):
    table = load(csv(tmp_path, LATER, "", "2030-01-01T00:00:00.001Z"), id_column="no")
    assert table.expires == [parse_time(LATER), None, NOW + 1]
    assert list(table.schema.names) == ["age"]
    assert table.notes == ()


def test_rows_whose_time_is_over_are_left_out_and_told(tmp_path: Path):
    path = csv(tmp_path, LATER, "2029-12-31T23:59:59Z", "", "2030-01-01T00:00:00Z", LATER)
    table = load(path, id_column="no")
    assert (table.ids, len(table), table.y.tolist()) == (["n0", "n2", "n4"], 3, ["a", "a", "a"])
    assert table.X[:, 0].tolist() == [0, 2, 4]
    assert any("'until' says that the time of 2 rows is over" in note for note in table.notes)
    unnamed = load(path, drop=("no",))
    assert unnamed.ids == ["0", "2", "4"], "ids are still the numbers of the rows"
    with pytest.raises(LoadError, match="every row is over"):
        load(csv(tmp_path, "2020-01-01T00:00:00Z"), id_column="no")


def test_bad_values_are_refused_with_row_column_and_remedy(tmp_path: Path):
    for field, rule in (
        ("soon", "RFC 3339"),
        ("2031-06-01", "RFC 3339"),
        ("2031-06-01T12:00:00", "time zone"),
        ("2031-02-30T12:00:00Z", "day that exists"),
        ("1893456000", "RFC 3339"),
    ):
        with pytest.raises(LoadError) as refused:
            load(csv(tmp_path, LATER, "", field), id_column="no")
        text = str(refused.value)
        assert "line 4" in text
        assert "column 'until'" in text
        assert rule in text
        assert "leave the field empty" in text
        assert field not in text


def test_weights_are_read_learned_and_left_out_with_their_rows(tmp_path: Path):
    path = tmp_path / "data.csv"
    rows = [f"{i},{i % 7 / 3},{'2020-01-01T00:00:00Z' * (i == 3)},{['', '2', '0.5', '7'][i % 4]}" for i in range(20)]
    path.write_text("\n".join(["age,y,until,w", *rows]) + "\n")
    table = load(path, weight_column="w")
    assert table.weights is not None
    assert table.weights[:4].tolist() == [1, 2, 0.5, 1]
    assert list(table.schema.names) == ["age"]
    model, _ = train(load_settings(data=path, target="y", weight_column="w", drop=["until"], n_estimators=3))
    assert [model.samples_.get(str(i)).weight for i in range(4)] == [1, 2, 0.5, 7]
    for wrong in ("x", "0", "40000"):
        path.write_text("\n".join(["age,y,until,w", *rows, f"1,1,,{wrong}"]) + "\n")
        with pytest.raises(LoadError, match="column 'w'") as refused:
            load(path, weight_column="w")
        assert "line 22" in str(refused.value)


def test_a_parquet_file_may_have_times(tmp_path: Path):
    path = tmp_path / "data.parquet"
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    columns = {"age": [1, 2], "y": ["a", "b"]}
    zoned = pa.array([moment, None], pa.timestamp("us", "Europe/Paris"))
    pa.parquet.write_table(pa.table({**columns, "until": zoned}), path)
    assert load(path).expires == [parse_time("2031-01-01T00:00:00Z"), None]
    for wrong, rule in ((pa.array([moment.replace(tzinfo=None)] * 2), "without a time zone"), ([1, 2], "convert")):
        pa.parquet.write_table(pa.table({**columns, "until": wrong}), path)
        with pytest.raises(LoadError, match=rule):
            load(path)


def test_the_column_must_be_there_and_be_one_of_its_own(tmp_path: Path):
    path = csv(tmp_path, LATER)
    with pytest.raises(LoadError, match="--expiry names"):
        load_table(load_settings(data=path, target="y", expiry_column="when"))
    with pytest.raises(SettingsError, match="different columns"):
        load_settings(data=path, target="y", expiry_column="y")


def test_trained_samples_expire(tmp_path: Path):
    fields = ["2090-01-01T00:00:00Z", ""] * 10
    settings = load_settings(
        data=csv(tmp_path, *fields), target="y", id_column="no", expiry_column="until", n_estimators=3
    )
    model, _ = train(settings)
    assert model.samples_.expiry("n0") == parse_time("2090-01-01T00:00:00Z")
    assert model.samples_.expiry("n1") is None
    model.samples_.check_invariants()
