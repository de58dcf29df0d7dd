"""Columns of a data file that say when its rows expire, and how much they count."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oubli.app.datasets.loading import LoadError, Table, load_table
from oubli.app.service.jobs.fits import train
from oubli.app.settings import SettingsError, load_settings
from oubli.app.times import parse_time
from tests.unit.app.datasets.writing import parquet

NOW = parse_time("2030-01-01T00:00:00Z")
LATER = "2090-06-01T12:00:00+02:00"


def load(path: Path, **flags: Any) -> Table:
    settings = load_settings(data=path, **{"target": "y", "expiry_column": "until", **flags})
    return load_table(settings, now_ns=lambda: NOW * 1_000_000)


def refusal(path: Path, **flags: Any) -> str:
    with pytest.raises(LoadError) as refused:
        load(path, **flags)
    return str(refused.value)


def csv(*fields: str) -> Path:
    rows = [f"n{i},{i},{field},{'ab'[i % 2]}" for i, field in enumerate(fields)]
    Path("data.csv").write_text("\n".join(["no,age,until,y", *rows]) + "\n")
    return Path("data.csv")


def test_times_are_read_and_rows_whose_time_is_over_are_left_out_and_told():
    table = load(csv(LATER, "", "2030-01-01T00:00:00.001Z"), id_column="no")
    assert (table.expires, table.schema.names, table.notes) == ([parse_time(LATER), None, NOW + 1], ("age",), ())
    path = csv(LATER, "2029-12-31T23:59:59Z", "", "2030-01-01T00:00:00Z", LATER)
    table = load(path, id_column="no")
    assert (table.ids, len(table), table.y.tolist()) == (["n0", "n2", "n4"], 3, ["a", "a", "a"])
    assert table.X[:, 0].tolist() == [0, 2, 4]
    assert any("'until' says that the time of 2 rows is over" in note for note in table.notes)
    unnamed = load(path, drop=("no",))
    assert unnamed.ids == ["0", "2", "4"], "ids are still the numbers of the rows"
    assert "every row is over" in refusal(csv("2020-01-01T00:00:00Z"), id_column="no")


def test_bad_values_are_refused_with_row_column_and_remedy():
    for field, rule in (("soon", "RFC 3339"), ("2031-06-01T12:00:00", "time zone")):
        said = refusal(csv(LATER, "", field), id_column="no")
        assert all(part in said for part in (rule, "line 4", "column 'until'", "leave the field empty"))
        assert field not in said


def test_weights_and_times_are_read_learned_and_left_out_with_their_rows():
    path = Path("data.csv")
    until = {0: LATER, 3: "2020-01-01T00:00:00Z"}
    rows = [f"{i},{i % 7 / 3},{until.get(i, '')},{['', '2', '0.5', '7'][i % 4]}" for i in range(20)]
    path.write_text("\n".join(["age,y,until,w", *rows]) + "\n")
    table = load(path, weight_column="w")
    assert table.weights is not None
    assert (table.weights[:4].tolist(), table.schema.names) == ([1, 2, 0.5, 1], ("age",))
    model, _ = train(load_settings(data=path, target="y", weight_column="w", expiry_column="until", n_estimators=3))
    assert [model.samples_.get(str(i)).weight for i in (0, 1, 2, 7)] == [1, 2, 0.5, 7]
    assert [model.samples_.expiry(str(i)) for i in (0, 1)] == [parse_time(LATER), None]
    model.samples_.check_invariants()
    for wrong in ("x", "0", "40000"):
        path.write_text("\n".join(["age,y,until,w", *rows, f"1,1,,{wrong}"]) + "\n")
        assert "line 22, column 'w'" in refusal(path, weight_column="w")


def test_a_parquet_file_may_have_times():
    path = Path("data.parquet")
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    columns: dict[str, Any] = {"age": [1, 2], "y": ["a", "b"]}
    zoned = pa.array([moment, None], pa.timestamp("us", "Europe/Paris"))
    path.write_bytes(parquet(**columns, until=zoned))
    assert load(path).expires == [parse_time("2031-01-01T00:00:00Z"), None]
    for wrong, rule in ((pa.array([moment.replace(tzinfo=None)] * 2), "without a time zone"), ([1, 2], "convert")):
        path.write_bytes(parquet(**columns, until=wrong))
        assert rule in refusal(path)


def test_the_column_must_be_there_and_be_one_of_its_own():
    assert "--expiry names" in refusal(csv(LATER), expiry_column="when")
    with pytest.raises(SettingsError, match="different columns"):
        load(csv(LATER), expiry_column="y")
