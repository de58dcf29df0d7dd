"""Data files: what they become, and that whatever is wrong is named with file, line, column and remedy."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oubli.app.datasets.loading import LoadError, Table, load_queries, load_schema, load_table
from oubli.app.settings import load_settings
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.store import SampleStore
from tests.unit.app.datasets.support import load, refusal
from tests.unit.app.datasets.writing import parquet

PEOPLE = """id,age,job,member,y
007,39,clerk,true,no
8,,None,false,yes
9,51.5,NA,,no
"""


NUMBER = Column("a", ColumnType.NUMERIC)


def types(table: Table) -> dict[str, str]:
    return {
        column.name: column.dtype if column.type is ColumnType.NUMERIC else str(column.type)
        for column in table.schema.columns
    }


def column(table: Table, name: str) -> list[Any]:
    return list(table.X[name])


def schema_of(*columns: Column, label_type: LabelType = LabelType.STRING) -> Schema:
    return Schema(columns, Task.CLASSIFICATION, label_type, label_name="y", named=True)


def declaring(schema: Schema) -> Path:
    """A file with a schema."""
    Path("schema.json").write_text(json.dumps(schema.to_dict()))
    return Path("schema.json")


# --- what a file becomes


def test_columns_get_the_types_that_their_values_show() -> None:
    table = load(PEOPLE, id_column="id")
    assert types(table) == {"age": "float32", "job": "categorical", "member": "boolean"}
    assert table.schema == schema_of(*table.schema.columns)
    assert len(table) == len(table.X) == 3
    # Only an empty field is missing.
    np.testing.assert_array_equal(column(table, "age"), [39, np.nan, 51.5])
    assert (column(table, "job"), column(table, "member")) == (["clerk", "None", "NA"], [True, False, None])


def test_ids_and_subjects_are_texts_and_never_features() -> None:
    table = load("id,who,a,y\n007,1,1,x\n7, Ann ,2,x\n1e3,,3,z\n", id_column="id", subject_column="who")
    assert (table.ids, table.subjects) == (["007", "7", "1e3"], ["1", " Ann ", None])
    assert table.schema.names == ("a",)


def test_numbers_only_become_one_matrix_and_ids_are_left_to_the_model() -> None:
    table = load("a,b,y\n1,0.5,x\n-2,1e-3,z\n")
    assert table.X.dtype == np.float32
    np.testing.assert_array_equal(table.X, np.array([[1, 0.5], [-2, 1e-3]], dtype=np.float32))
    assert (table.ids, table.subjects) == (None, None)


TYPES = {
    "float32": ["16777216|1", "16777217.5|0.5", "0.1|0.3", " 1|2 ", "+1|2", "|", "nan|1"],
    "float64": [
        *("16777217|1", "-16777217|0.5", "16777217.25|16777217.5", "16777217.0|0.5", "1700000000.25|1700000001.25"),
        *("1e-50|3e-50", "1e39|1", "9007199254740991|1", "1152921505680588800|0.5", "1152921505680588800|5"),
    ],
    "boolean": ["TRUE|false"],
    "categorical": ["true|no", "0x10|0x11", "1_000|2"],
}


def test_the_type_of_a_column() -> None:
    for kind, fields in [(kind, fields.split("|")) for kind, many in TYPES.items() for fields in many]:
        assert types(load('a,y\n"{}",p\n"{}",q\n'.format(*fields))) == {"a": kind}


def test_the_task_follows_from_the_labels_or_is_said() -> None:
    for labels, task, kind in (
        (["a", "b"], Task.CLASSIFICATION, LabelType.STRING), (["0", "1"], Task.CLASSIFICATION, LabelType.INTEGER),
        (["TRUE", "FALSE"], Task.CLASSIFICATION, LabelType.BOOLEAN),
        (["1.0", "2.0"], Task.CLASSIFICATION, LabelType.NUMBER), (["1.5", "2"], Task.REGRESSION, LabelType.NUMBER),
        ([str(i) for i in range(20)], Task.CLASSIFICATION, LabelType.INTEGER),
        ([str(i) for i in range(21)], Task.REGRESSION, LabelType.NUMBER),
    ):  # fmt: skip
        table = load("a,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
        assert (table.schema.task, table.schema.label_type) == (task, kind)
    assert load("a,y\n1,0\n2,1\n", task="regression").y.dtype == np.float64
    assert load("a,y\n1,0.5\n2,1.5\n", task="classification").schema.label_type is LabelType.NUMBER


def test_a_parquet_file_brings_its_types() -> None:
    columns = {
        "id": ["007", "8", "9"], "n": pa.array([1, None, 3], pa.int32()), "big": [1, 2, 16777217],
        "share": [0.5, None, 2.5], "text": ["1", "2", None], "kind": pa.array(["a", None, "b"]).dictionary_encode(),
        "flag": [True, None, False], "y": [0.5, 1.5, 2.5],
    }  # fmt: skip
    table = load(parquet(row_group_size=2, **columns), "data", id_column="id")
    numbers = {"n": "float32", "big": "float64", "share": "float32"}
    assert types(table) == {**numbers, "text": "categorical", "kind": "categorical", "flag": "boolean"}
    assert table.ids == ["007", "8", "9"]
    np.testing.assert_array_equal(column(table, "n"), [1, np.nan, 3])
    assert column(table, "kind") == ["a", None, "b"]
    assert table.schema.task is Task.REGRESSION


def test_progress_ends_at_its_total() -> None:
    path = Path("data.csv")
    path.write_text(PEOPLE)
    seen: dict[str, tuple[int, int]] = {}
    load_table(load_settings(data=path, target="y"), lambda stage, done, total: seen.update({stage: (done, total)}))
    assert len(seen) == 2
    assert all(done == total > 0 for done, total in seen.values())


# --- what is worth a note


def test_columns_of_float64_texts_among_numbers_and_ids_are_noted_without_values() -> None:
    rows = "".join(f"{i},p\n" for i in range(30)).replace("17,p", "unknown,q")
    for content, parts, value in (
        ("a,b,y\n0.1,16777217,p\n0.2,1,q\n", ["column 'b' is held as float64"], "16777217"),
        ("a,y\n" + rows, ["column 'a'", "line 19"], "unknown"),
        ("id,a,y\n1,1,p\n2,2,q\n", ["--id"], "2"),
    ):
        (note,) = load(content).notes
        assert [part in note for part in (*parts, value)] == [*[True] * len(parts), False]
    assert load("id,a,y\n1,1,p\n2,2,q\n", id_column="id").notes == ()


# --- what is refused


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "absent.csv", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(LoadError, match=f"cannot be read: {why}"):
            load_table(load_settings(data=path, target="y"))


def test_whole_decimals_are_integers_and_what_a_parquet_file_cannot_hold_is_named() -> None:
    def decimals(*values: int) -> bytes:
        column = pa.array([Decimal(value) for value in values], pa.decimal128(30, 0))
        return parquet(a=column, y=["p", "q"])

    assert types(load(decimals(2**24, 1), "data")) == {"a": "float32"}
    assert types(load(decimals(2**24 + 1, 1), "data")) == {"a": "float64"}
    assert "row 2, column 'a': the integer has more digits" in refusal(decimals(1, 2**60 + 1))
    table = load(decimals(1, 2**60 + 1), "data", schema_file=declaring(schema_of(NUMBER)))
    assert SampleStore(table.schema).prepare(table.X, table.y).cells.tolist() == [[1.0], [2.0**60]]
    assert "column 'a': holds list" in refusal(parquet(a=[[1], [2]], y=["p", "q"]))
    assert "row 2, column 'a'" in refusal(parquet(a=[1.0, float("inf")], y=["p", "q"]))


# --- declared schemas


AGE, CODE = Column("age", ColumnType.NUMERIC), Column("code", ColumnType.CATEGORICAL)
SCHEMA = schema_of(AGE, CODE, Column("member", ColumnType.BOOLEAN))


def test_a_schema_decides_types_and_order_and_what_is_taken() -> None:
    schema_file = declaring(SCHEMA)
    table = load("y,member,code,age\n1,1,007,39\n0,,8,\n", target=None, schema_file=schema_file)
    assert (table.schema, list(table.y)) == (SCHEMA, ["1", "0"])
    assert (column(table, "code"), column(table, "member")) == (["007", "8"], [True, None])
    for content, part in (
        ("age,code,y\n1,a,p\n", 'take them as missing with "missing_columns": "missing" in the schema'),
        ("age,code,member,more,y\n1,a,1,2,p\n", "has 'more', which the model does not know: remove them from"),
        ("age,code,member,y\ncanary,a,1,p\n", "line 2, column 'age': must be a number"),
        ("age,code,member,y\n1,a,canary,p\n", "line 2, column 'member': must be true, false, 1 or 0"),
    ):
        said = refusal(content, schema_file=schema_file)
        assert part in said
        assert "canary" not in said


def test_words_are_categories_where_a_column_is_declared_categorical() -> None:
    text = "age,code,member,y\n1,007,1,p\nNA,null,,q\n"
    assert types(load(text))["code"] == "float32"
    assert column(load(text, categorical=("code",)), "code") == ["007", "null"]
    table = load(text, target=None, schema_file=declaring(SCHEMA))
    assert column(table, "code") == ["007", "null"]
    assert load_queries(Path("data.csv"), table.schema).X["code"].tolist() == ["007", "null"]


def test_a_schema_says_what_is_done_with_other_columns() -> None:
    lax = declaring(replace(SCHEMA, extra_columns="ignore", missing_columns="missing"))
    table = load("more,y,age\nx,p,39\n,q,8\n", target=None, schema_file=lax)
    assert [column(table, name) for name in SCHEMA.names] == [[39, 8], [None, None], [None, None]]
    assert table.about.roles == {"more": "not in the schema"}


@pytest.mark.parametrize("beside", ["", ",code,member"])
def test_numbers_that_a_declared_column_cannot_hold_are_rounded(beside: str, caplog: pytest.LogCaptureFixture) -> None:
    more = ",a,1" if beside else ""
    path = declaring(SCHEMA if beside else schema_of(AGE))
    largest = 3.4028234663852886e38
    numbers = {"16777217": 2.0**24, "16777217.0": 2.0**24, "1e39": largest, "1152921504606846977": 2.0**60}
    for field, held in numbers.items():
        caplog.clear()
        table = load(f"age{beside},y\n{field}{more},p\n1{more},q\n", schema_file=path)
        assert SampleStore(table.schema).prepare(table.X, table.y).cells[:, 0].tolist() == [held, 1.0]
        (record,) = caplog.records
        assert "column 'age' are rounded to float32" in record.getMessage()


def test_labels_of_another_type_than_declared() -> None:
    for kind, labels, part in (
        (LabelType.INTEGER, ["1", "1.5"], "line 3, column 'y': the label must be a whole number"),
        (LabelType.INTEGER, ["1", "x"], "line 3, column 'y': the label must be a number"),
        (LabelType.BOOLEAN, ["true", "x"], "line 3, column 'y': must be true, false, 1 or 0"),
    ):
        declared = declaring(schema_of(NUMBER, label_type=kind))
        assert part in refusal("a,y\n1,{}\n1,{}\n".format(*labels), schema_file=declared)


def test_a_broken_schema_file_is_named(tmp_path: Path) -> None:
    for content, part in (
        ("{", "is not JSON: line 1"),
        *((content, "does not describe a model") for content in ("[]", '{"task": "classification"}')),
        ("\udc80", "not UTF-8"),
    ):
        path = tmp_path / "schema.json"
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(LoadError, match=f"{re.escape(str(path))}.*{part}"):
            load_schema(path)
    with pytest.raises(LoadError, match="cannot be read"):
        load_schema(tmp_path / "absent.json")


def test_a_file_is_read_without_pandas(tmp_path: Path) -> None:
    """pyarrow imports it on some conversions, which takes a third of a second of a server's start."""
    rows = [f"{i}.0625,{i},{2**25 + i},c{i % 3},{i % 2 == 0},{i % 2}" for i in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,d,e,y", "16777217.0,,,,,1", *rows]))
    script = (
        "import sys; from pathlib import Path; from oubli.app.datasets.loading import load_table; "
        "from oubli.app.settings import load_settings; "
        "load_table(load_settings(data='data.csv', target='y')); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


# --- rows to predict


def test_queries_are_matched_by_name(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("y,extra,key,member,code,age\np,1,007,true,a,1\n,2,8,,,\n")
    with pytest.raises(LoadError, match="has 'extra', which the model does not know"):
        load_queries(path, SCHEMA, id_column="key")
    queries = load_queries(path, replace(SCHEMA, extra_columns="ignore"), id_column="key")
    assert (queries.ids, queries.ignored, queries.X.columns) == (["007", "8"], ("extra",), ["age", "code", "member"])
    assert (len(queries), list(queries.X["code"])) == (2, ["a", None])
    path.write_text("y\n1\n")
    with pytest.raises(LoadError, match="lacks 'age', 'code', 'member'"):
        load_queries(path, replace(SCHEMA, missing_columns="missing"))
