import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import InputError

ADULT = Schema(
    (
        Column("age", ColumnType.NUMERIC), Column("weight", ColumnType.NUMERIC, "float64"),
        Column("job", ColumnType.CATEGORICAL), Column("member", ColumnType.BOOLEAN),
    ),
    Task.CLASSIFICATION, LabelType.STRING, label_name="income", named=True,
)  # fmt: skip


def test_cells_are_float32_unless_a_column_needs_more():
    narrow = Schema((Column("a", "boolean"),), "regression", "number")
    assert (narrow.cell_dtype, ADULT.cell_dtype) == (np.float32, np.float64)
    assert (narrow.label_name, narrow.named) == ("label", False)
    assert narrow.columns[0].type is ColumnType.BOOLEAN
    assert (narrow.task, narrow.label_type) == (Task.REGRESSION, LabelType.NUMBER)


@pytest.mark.parametrize("way", [lambda s: pickle.loads(pickle.dumps(s)), copy.copy, copy.deepcopy])  # noqa: S301
def test_schemas_survive_pickling_and_copying(way):
    assert ADULT.cell_dtype == np.float64  # computed once, before
    other = way(ADULT)
    assert (other, other.cell_dtype, other.names) == (ADULT, ADULT.cell_dtype, ADULT.names)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: Column("", "numeric"), "not empty"), (lambda: Column(3, "numeric"), "must be text"),
    (lambda: Column("\ud800", "numeric"), "surrogate"), (lambda: Column("a", ["numeric"]), "must be one of"),
    (lambda: Column("a", "number"), "must be one of 'numeric', 'categorical', 'boolean'"),
    (lambda: Column("a", "numeric", "float16"), "'float32' or 'float64'"),
    (lambda: Column("a", "categorical", "float64"), "leave dtype out"),
    (lambda: Schema((), "regression", "number"), "at least one column"),
    (lambda: Schema((Column("a", "numeric"),) * 2, "regression", "number"), "unique"),
    (lambda: Schema((Column("a", "numeric"),), "ranking", "number"), "'classification', 'regression'"),
    (lambda: Schema((Column("a", "numeric"),), "regression", "integer"), "must be of type 'number'"),
    (lambda: Schema((Column("a", "numeric"),), "classification", "text"), "'string'"),
    (lambda: Schema((Column("a", "numeric"),), "classification", "string", ""), "name of the label"),
])  # fmt: skip
def test_what_makes_no_schema_is_refused(make, text):
    with pytest.raises(InputError, match=text):
        make()


def test_json():
    document = {
        "task": "classification", "label": {"name": "income", "type": "string"},
        "columns": [
            {"name": "age", "type": "numeric", "dtype": "float32"},
            {"name": "weight", "type": "numeric", "dtype": "float64"}, {"name": "job", "type": "categorical"},
            {"name": "member", "type": "boolean"},
        ],
        "named": True,
    }  # fmt: skip
    assert ADULT.to_dict() == document
    assert Schema.from_dict(document) == ADULT
    assert hash(Schema.from_dict(document)) == hash(ADULT)
    usual = Schema.from_dict({"task": "regression", "columns": [{"name": "a", "type": "numeric"}]})
    assert usual == Schema((Column("a", ColumnType.NUMERIC),), Task.REGRESSION, LabelType.NUMBER, named=True)
    lax = Schema.from_dict({**document, "extra_columns": "ignore", "missing_columns": "missing"})
    assert lax == replace(ADULT, extra_columns="ignore", missing_columns="missing")
    assert Schema.from_dict(lax.to_dict()) == lax


GOOD = {"task": "classification", "label": {"type": "string"}, "columns": [{"name": "a", "type": "numeric"}]}


@pytest.mark.parametrize(("change", "text"), [
    *((document, "a schema must be an object") for document in (None, [], "schema", 3)),
    ({"task": None}, "the task must be one of"), ({"task": ...}, "a schema needs the key 'task'"),
    ({"columns": ...}, "needs the key 'columns'"), ({"columns": {}}, "'columns' must be a list"),
    ({"columns": "a"}, "'columns' must be a list"), ({"columns": []}, "at least one column"),
    ({"columns": ["a"]}, "a column must be an object"), ({"columns": [{"name": "a"}]}, "a column needs the key 'type'"),
    ({"columns": [{"name": "a", "type": "numeric", "size": "m"}]}, "a key that is not known, 'size'"),
    ({"columns": [{"name": "a", "type": "numeric", "dtype": 4}]}, "'float32' or 'float64'"),
    ({"label": ...}, "the label needs the key 'type'"), ({"label": "income"}, "the label must be an object"),
    ({"label": {"type": "text"}}, "the type of the label must be one of"),
    ({"label": {"type": "string", "name": 3}}, "name of the label"), ({"named": "yes"}, "'named' must be true or"),
    ({"target": "a"}, "a key that is not known, 'target': use only 'columns', 'extra_columns', 'label'"),
    ({"extra_columns": "drop"}, "'extra_columns': must be 'refuse' or 'ignore'"),
    ({"missing_columns": "ignore"}, "'missing_columns': must be 'refuse' or 'missing'"),
])  # fmt: skip
def test_files_that_are_refused(change, text):
    document = change
    if isinstance(change, dict):
        document = {key: value for key, value in {**GOOD, **change}.items() if value is not ...}
    with pytest.raises(InputError, match=text):
        Schema.from_dict(document)
