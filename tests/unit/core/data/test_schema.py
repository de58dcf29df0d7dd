from dataclasses import replace

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
    plain = Schema((Column("a", "boolean"),), "regression", "number")
    assert (plain.label_name, plain.named) == ("label", False)
    usual = Schema.from_dict({"task": "regression", "columns": [{"name": "a", "type": "numeric"}]})
    assert usual == Schema((Column("a", ColumnType.NUMERIC),), Task.REGRESSION, LabelType.NUMBER, named=True)
    lax = Schema.from_dict({**document, "extra_columns": "ignore", "missing_columns": "missing"})
    assert lax == replace(ADULT, extra_columns="ignore", missing_columns="missing")
    assert Schema.from_dict(lax.to_dict()) == lax


COLUMN = {"name": "a", "type": "numeric"}
GOOD = {"task": "classification", "label": {"type": "string"}, "columns": [COLUMN]}


@pytest.mark.parametrize(("change", "text"), [
    *((document, "a schema must be an object") for document in (None, [], "schema", 3)),
    *(({"task": task}, "the task must be one of 'classification', 'regression'") for task in (None, "ranking")),
    ({"task": "regression", "label": {"type": "integer"}}, "must be of type 'number'"),
    ({"task": ...}, "a schema needs the key 'task'"),
    ({"columns": ...}, "needs the key 'columns'"), ({"columns": {}}, "'columns' must be a list"),
    ({"columns": "a"}, "'columns' must be a list"), ({"columns": []}, "at least one column"),
    ({"columns": ["a"]}, "a column must be an object"), ({"columns": [{"name": "a"}]}, "a column needs the key 'type'"),
    *(({"columns": [{**COLUMN, "name": name}]}, "must be text and not empty") for name in ("", 3)),
    ({"columns": [{**COLUMN, "name": "\ud800"}]}, "surrogate"), ({"columns": [COLUMN, COLUMN]}, "must be unique"),
    *(
        ({"columns": [{**COLUMN, "type": kind}]}, "must be one of 'numeric', 'categorical', 'boolean'")
        for kind in ("number", ["numeric"])
    ),
    *(({"columns": [{**COLUMN, "dtype": dtype}]}, "'float32' or 'float64'") for dtype in (4, "float16")),
    ({"columns": [{"name": "a", "type": "categorical", "dtype": "float64"}]}, "leave dtype out"),
    ({"columns": [{**COLUMN, "size": "m"}]}, "a key that is not known, 'size'"),
    ({"label": ...}, "the label needs the key 'type'"), ({"label": "income"}, "the label must be an object"),
    ({"label": {"type": "text"}}, "the type of the label must be one of 'string'"),
    *(({"label": {"type": "string", "name": name}}, "name of the label") for name in (3, "")),
    *(({"label": {"type": "string", "max_classes": most}}, "integer of at least 1") for most in (0, True, "5")),
    *(
        ({"label": {"type": "string", "classes": classes}}, "must be a list of labels|must be different labels")
        for classes in ("abc", [], ["a", "a"], [1.5], [None])
    ), ({"named": "yes"}, "'named' must be true or"),
    ({"target": "a"}, "a key that is not known, 'target': use only 'columns', 'extra_columns', 'label'"),
    ({"extra_columns": "drop"}, "'extra_columns': must be 'refuse' or 'ignore'"),
    ({"missing_columns": "ignore"}, "'missing_columns': must be 'refuse' or 'missing'"),
])  # fmt: skip
def test_what_makes_no_schema_is_refused(change, text):
    document = change
    if isinstance(change, dict):
        document = {key: value for key, value in {**GOOD, **change}.items() if value is not ...}
    with pytest.raises(InputError, match=text):
        Schema.from_dict(document)
