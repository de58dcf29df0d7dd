import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.service.changes.additions import AddBody
from oubli.app.service.changes.deletions import DeleteBody, ReplaceBody
from oubli.app.service.changes.restrictions import ReleaseBody, RestrictBody
from oubli.app.service.jobs.fits import FitBody
from oubli.app.service.recovery.start import Body, decode
from oubli.core import DynamicTreeClassifier
from tests.unit.app.support import CLASSES
from tests.unit.app.support import rows as people

texts = st.text(max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
cells = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), finite, texts)
rows = st.lists(cells, max_size=4)
moments = st.integers(0, 2**53)
adds = st.builds(
    AddBody,
    st.lists(texts, max_size=3),
    st.lists(rows, max_size=3),
    st.lists(cells, max_size=3),
    st.none() | st.lists(st.none() | texts, max_size=3),
    st.none() | st.lists(st.none() | moments, max_size=3),
    st.integers(0, 2**63 - 1),
    moments,
    st.none() | texts,
)
restrictions = st.builds(RestrictBody, st.lists(texts, max_size=3), moments, st.booleans())
releases = st.builds(ReleaseBody, st.lists(texts, max_size=3))
replacements = st.builds(ReplaceBody, texts, rows, cells, st.none() | texts, st.none() | moments)
fits = st.builds(
    FitBody,
    texts,
    st.dictionaries(texts, cells, max_size=4),
    st.none() | st.just("open") | st.lists(cells, max_size=3),
    st.none() | st.integers(1, 9),
)
deletions = st.builds(DeleteBody, st.lists(texts, max_size=5))
bodies = st.one_of(adds, deletions, replacements, restrictions, releases, fits)


def shape(value: object) -> object:
    """The same with the types in it: 1, 1.0 and True are equal and mean different things."""
    if isinstance(value, list):
        return [shape(part) for part in value]
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    return type(value), repr(value)


@given(bodies)
def test_what_is_decoded_is_what_was_encoded(body: Body) -> None:
    found = decode(orjson.dumps(body))
    assert type(found) is type(body)
    for name in body.__slots__:
        assert shape(getattr(found, name)) == shape(getattr(body, name))


def test_the_form_on_disk() -> None:
    add = AddBody(["a", "7"], [[1.5, None], [2, "x"]], ["yes", "no"], ["s", None], None, 8, 1700000000000, "r-1")
    assert orjson.dumps(add) == (
        b'{"do":"add","ids":["a","7"],"rows":[[1.5,null],[2,"x"]],"labels":["yes","no"],'
        b'"subjects":["s",null],"expires":null,"next_id":8,"at":1700000000000,"request":"r-1","retentions":null,"nonces":null}'
    )
    assert orjson.dumps(RestrictBody(["s"], 1700000000000, True)) == (
        b'{"do":"restrict","subjects":["s"],"at":1700000000000,"keep":true}'
    )
    assert orjson.dumps(ReleaseBody(["s"])) == b'{"do":"release","subjects":["s"]}'
    assert orjson.dumps(DeleteBody(["a"])) == b'{"do":"delete","ids":["a"]}'
    assert orjson.dumps(ReplaceBody("a", [1], 0, None, 1700000000000)) == (
        b'{"do":"replace","id":"a","row":[1],"label":0,"subject":null,"expires":1700000000000,"nonce":null}'
    )
    assert orjson.dumps(FitBody("forest", {"k": 2}, ("a", "b"), 5)) == (
        b'{"do":"fit","kind":"forest","parameters":{"k":2},"classes":["a","b"],"max_classes":5}'
    )
    assert decode(b'{"do":"fit","kind":"forest","parameters":{"k":2}}') == FitBody("forest", {"k": 2}), "of before"


def test_additions_of_earlier_versions_say_neither_when_nor_by_which_request_and_have_no_nonces() -> None:
    body = decode(b'{"do":"add","ids":["a"],"rows":[[1]],"labels":["x"],"subjects":null,"expires":null,"next_id":1}')
    assert body == AddBody(["a"], [[1]], ["x"], None, None, 1, 0, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"do":"merge"}',
        b'{"do":["add"]}',
        b'{"do":"delete"}',
        b'{"ids":[]}',
        b'{"do":"restrict","subjects":[],"keep":true}',
        b'{"do":"delete","ids":[],"later":1}',
        b'{"do":"delete","ids":[]',
    ],
)
def test_bodies_of_other_versions_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - two libraries raise it, with texts of their own
        decode(body)


def test_what_is_beside_samples_that_have_left_the_window_is_passed_over() -> None:
    model = DynamicTreeClassifier(window=3).start(CLASSES)
    names = [f"n{i}" for i in range(5)]
    subjects = ["s0", "s1", "s2", None, "s4"]
    expires = [2**41, 2**41, None, 2**41, None]
    AddBody(names, people(5), ["yes", "no", "yes", "no", "yes"], subjects, expires, 5, 1700000000000).redo(model, 0)
    held = model.samples_
    assert {name: held.subject(name) for name in held.ids()} == {"n2": "s2", "n3": None, "n4": "s4"}
    assert {name: held.expiry(name) for name in held.ids()} == {"n2": None, "n3": 2**41, "n4": None}
