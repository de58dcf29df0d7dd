from __future__ import annotations

import orjson
import pytest

from oubli.app.http.parsing import (
    Reader,
    explain,
    one_value,
    parse_id,
    parse_limit,
    parse_names,
    parse_query,
)
from oubli.app.http.problems import ProblemError
from oubli.core.errors import InputError
from tests.unit.app.support import CLASSES

NOW_MS = 1_900_000_000_000  # in March 2030
READER = Reader(CLASSES, max_rows=3, max_depth=8, now_ms=lambda: NOW_MS)
DEEP = Reader(CLASSES, max_rows=10_000, max_depth=8, now_ms=lambda: NOW_MS)  # takes many values
SAMPLE = {"features": [1, "a", True], "label": "yes"}
UUID = "123e4567-e89b-12d3-a456-426614174000"


def refused(function, *arguments):
    with pytest.raises(ProblemError) as caught:
        function(*arguments)
    assert "SECRET" not in str(caught.value.content())
    return caught.value


def places(function, *arguments):
    return [pointer for pointer, _ in refused(function, *arguments).errors]


def dumps(content):
    return orjson.dumps(content)


def test_rows_are_put_in_feature_order():
    sent = [[1, "a", True], {"member": None, "job": "b", "age": 2}]
    assert READER.prediction(dumps({"instances": sent}))[0] == sent
    assert READER.rows(sent) == [[1, "a", True], [2, "b", None]]
    plain = [[1, "a", True], [2, "b", False]]
    assert READER.rows(plain) is plain


@pytest.mark.parametrize("depth", [9, 500, 5000])
def test_deep_json_is_refused_wherever_it_is(depth):
    deep = b"[" * depth + b"]" * depth
    for before, after in ((b"", b""), (b'{"x": ', b"}"), (b'{"instances": {"x": ', b"}}"), (b'{"instances": [', b"]}")):
        body = before + deep + after
        problem = refused(lambda body=body: DEEP.prediction(body))
        assert "nested too deeply: at most 8 levels" in str(problem.content())


def test_core_errors_are_explained_by_place():
    def one(error, sent):
        [(pointer, rule)] = explain(error, lambda row: ("samples", row, "features"), sent, CLASSES).errors
        return pointer, rule

    listed, named = [[1, "a", True]] * 2, [{"age": 1, "job": "a", "member": True}] * 2
    wrong = InputError("must be a number", row=1, field="job", value="SECRET")
    assert one(wrong, listed) == ("/samples/1/features/1", "(feature 'job') must be a number")
    assert one(wrong, named) == ("/samples/1/features/job", "must be a number")
    assert one(InputError("is wrong", row=1, field="income"), listed) == ("/samples/1/label", "is wrong")
    assert one(InputError("is wrong", row=1, field="id"), listed) == ("/samples/1/id", "is wrong")
    assert one(InputError("is wrong", row=1), listed) == ("/samples/1/features", "is wrong")
    assert one(InputError("is wrong"), listed) == ("", "is wrong")


def test_queries_are_strict():
    assert parse_query(b"id=a%2Fb&id=c+d&&ref=", ("id", "ref")) == {"id": ["a/b", "c d"], "ref": [""]}
    assert places(parse_query, b"SECRET=1", ("id",)) == [""]
    assert places(parse_query, b"id=%ff", ("id",)) == [""]
    assert one_value({"ref": ["a"]}, "ref") == "a"
    assert one_value({}, "ref") is None
    assert places(one_value, {"ref": ["SECRET", "b"]}, "ref") == ["/ref"]
    assert places(parse_names, ["a", ""], "id") == ["/id/1"]


def test_ids_in_paths_are_any_text():
    assert parse_id(b"/samples/a%2Fb/c%20d%0A", b"/samples/") == "a/b/c d\n"
    assert parse_id(b"/samples/%C3%A9", b"/samples/") == "é"
    assert places(parse_id, b"/samples/%FF", b"/samples/") == [""]
    assert places(parse_id, b"/samples/" + b"x" * 257, b"/samples/") == ["/id"]


def test_limits():
    assert parse_limit(None, 100, 50) == 50
    assert parse_limit("7", 100, 50) == 7
    assert parse_limit(7, 100, 50) == 7
    for value in ("0", "51", "-1", "1.5", "", "x", "٣", 0, 51, 1.0, True, [7]):
        assert places(parse_limit, value, 100, 50) == ["/limit"]
