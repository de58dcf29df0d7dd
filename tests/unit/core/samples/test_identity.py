"""What a caller says of rows: ids, subjects and expiries, as sequences or columns of any table."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oubli.core import DynamicForestClassifier
from oubli.core.errors import InputError, UnknownIdError
from oubli.core.samples.owners import Mark
from oubli.core.samples.slots import COUNTER_LIMIT, end_of_numbers, read_ids
from tests.unit.core.data.test_libraries import LIBRARIES

N = 8
Y = ["a", "b"] * (N // 2)
END = datetime.datetime(2030, 1, 31, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
END_MS = 1_896_087_600_000
TABLES = {name: LIBRARIES[name] for name in ("pandas", "table", "batch")}


def frame() -> pd.DataFrame:
    return pd.DataFrame({
        "key": [f"k{i}" for i in range(N)], "x": np.arange(N) * 1.0,
        "person": ["ada", None, "bob", "ada", None, "eve", "bob", "bob"],
        "until": pd.to_datetime([END, None] * (N // 2), utc=True), "z": np.arange(N)[::-1] * 1.0,
    })  # fmt: skip


def new(**parameters: Any) -> DynamicForestClassifier:
    return DynamicForestClassifier(**{"n_estimators": 2, "random_state": 0, **parameters})


def said(model: DynamicForestClassifier) -> dict[str, tuple[str | None, int | None]]:
    store = model.samples_
    return {name: (store.subject(name), store.expiry(name)) for name in store.ids()}


def labelled() -> DynamicForestClassifier:
    return new().fit(frame(), Y, ids="key", subjects="person", expires_at="until")


@pytest.mark.parametrize("kind", TABLES)
def test_columns_say_what_sequences_say(kind: str) -> None:
    X, table = frame(), TABLES[kind]
    named = {"ids": "key", "subjects": "person", "expires_at": "until"}
    expected = new().fit(X[["x", "z"]], Y, ids=X["key"], subjects=X["person"], expires_at=X["until"])
    assert (said(expected)["k0"], said(expected)["k1"]) == (("ada", END_MS), (None, None))
    model = new().fit(table(X), Y, **named)
    assert model.schema_.names == ("x", "z")
    assert (said(model), model.digest()) == (said(expected), expected.digest())
    model.check_invariants()
    more = X.assign(key=[f"m{i}" for i in range(N)])[["until", "z", "person", "key", "x"]]
    for one in (model, expected):
        assert one.add(table(more), Y, **named) == more["key"].tolist()
        one.check_invariants()
    assert (said(model), model.digest()) == (said(expected), expected.digest())
    assert new().partial_fit(table(X), Y, **named).n_features_in_ == 2


def test_one_time_is_that_of_all_rows_and_texts_are_read() -> None:
    rows = [[0.0], [1.0]]
    for one in (END, END.isoformat(), "2030-01-31T11:00:00Z", pd.Timestamp(END)):
        assert said(new().fit(rows, ["a", "b"], expires_at=one)) == {"0": (None, END_MS), "1": (None, END_MS)}
    model = new().fit(rows, ["a", "b"], subjects=[7, np.nan], expires_at=[None, END.isoformat()])
    assert said(model) == {"0": ("7", None), "1": (None, END_MS)}
    assert model.add([[2.0]], ["a"], subjects=["ada"]) == ["2"]
    assert model.samples_.subject("2") == "ada"
    assert model.add([[2.0]], ["a"], expires_at=END) == ["3"]
    assert model.samples_.expiry("3") == END_MS


NO_MOMENT = "must be a datetime with a time zone"


@pytest.mark.parametrize(("said", "part"), [
    ({"ids": "nothing"}, "'id': X has no column of this name"), ({"ids": "person"}, "row 1, 'id': must be text of"),
    ({"ids": set("abcdefgh")}, "ids must be a list in the order of the rows, not a set"),
    ({"ids": np.arange(16).reshape(8, 2)}, "ids must be a 1d array or a list"),
    ({"subjects": "nothing"}, "'subject': X has no column of this name"),
    ({"subjects": "x"}, "row 0, 'subject': must be text of"),
    ({"subjects": ["ada"]}, "'subject': X has 8 rows, but 1 values are given"),
    ({"subjects": set("abcdefgh")}, "subjects must be a list in the order of the rows, not a set"),
    ({"subjects": bytearray(b"12345678")}, r"subjects must be a list: pass \[subject\]"),
    ({"subjects": frame()}, "subjects must be a 1d array or a list, not a table"),
    ({"expires_at": END.replace(tzinfo=None)}, NO_MOMENT), ({"expires_at": "soon"}, NO_MOMENT),
    ({"expires_at": END_MS}, "expires_at must be a list"),
    ({"expires_at": [END_MS] * N}, f"row 0, 'expires_at': {NO_MOMENT}"),
    ({"expires_at": "x"}, "row 0, 'expires_at': must be a datetime"),
    ({"expires_at": [END] * 2}, "'expires_at': X has 8 rows, but 2 values"),
])  # fmt: skip
def test_what_cannot_be_said_is_refused_and_changes_nothing(said: dict[str, Any], part: str) -> None:
    X = frame().drop(columns="until")
    model = new().fit(X, Y)
    before = model.digest()
    for call in (new().fit, model.add):
        with pytest.raises(InputError, match=part):
            call(X, Y, **said)
    assert (model.digest(), model.n_samples_) == (before, N)


def test_a_list_has_no_columns() -> None:
    with pytest.raises(InputError, match="X has no column of this name"):
        new().fit([[0.0], [1.0]], ["a", "b"], ids="key")
    assert new().fit([[0.0], [1.0]], ["a", "b"], ids="generate").samples_.ids() == ["0", "1"]


# Ids alone


@pytest.mark.parametrize(("ids", "expected"), [
    (["a", "b"], ["a", "b"]), (("a", 7), ["a", "7"]), ([7, "007"], ["7", "007"]), (np.array([1, 2]), ["1", "2"]),
    (np.array(["a", "b"]), ["a", "b"]), (np.array(["a", 1], object), ["a", "1"]), (pd.Series([1, 2]), ["1", "2"]),
    (pd.Series(["a", "b"]), ["a", "b"]), (pd.Index([3]), ["3"]), (range(3), ["0", "1", "2"]), ([], []),
    (iter(["é"]), ["é"]), ([np.int64(5)], ["5"]), ({"k"}, ["k"]), ({"k": 0}.keys(), ["k"]), (pa.array(["k"]), ["k"]),
    (pa.chunked_array([["j"], ["k"]]), ["j", "k"]),
])  # fmt: skip
def test_ids_of_every_shape(ids, expected):
    assert read_ids(ids) == expected


NUMBERS = st.integers(0, 2 * COUNTER_LIMIT).map(str)
NAMES = st.one_of(NUMBERS, NUMBERS.map("0".__add__), st.sampled_from(["00", "9" * 16, "9" * 17, "9" * 256]))
OTHERS = st.sampled_from(["-1", "+1", "7a", "x", "٣", "²", "1.0", " 5", "1_0", "1e3"])


@example([str(COUNTER_LIMIT)])
@given(st.lists(NAMES | OTHERS) | st.lists(NAMES) | st.lists(OTHERS))
def test_the_end_of_numbers_is_behind_the_largest_that_is_written_as_the_counter_writes_it(names):
    numbers = [int(name) for name in names if name.isascii() and name.isdecimal() and str(int(name)) == name]
    assert end_of_numbers(names) == max((number + 1 for number in numbers if number < COUNTER_LIMIT), default=0)


# Deleting


@pytest.mark.parametrize("given", [
    bytearray(b"6"), b"6", memoryview(b"6"), {"6": 1}, frame(), frame().iloc[[0]], None, object(),
    TABLES["table"](frame()), TABLES["batch"](frame()), np.array([["54"]]), np.array(54), 54.0, np.float64(54), True,
    np.True_, pd.NaT, np.datetime64("2024-01-01"), np.array(["2024"], "M8[ns]"),
], ids=lambda given: type(given).__name__)  # fmt: skip
def test_what_is_no_list_of_ids_deletes_nothing(given: Any) -> None:
    # 54 is the byte of "6"; a table is a list of its columns.
    model = new().fit([[0.0], [1.0], [2.0]], ["a", "b", "a"], ids=["54", "6", "x"])
    with pytest.raises(InputError, match=r"'id': (ids must be a|must be text of 1 to 256 characters, or an integer)"):
        model.delete(given)
    assert model.n_samples_ == 3


def test_a_row_is_no_list_of_ids() -> None:
    X = pd.DataFrame({"p": [1, 2, 3, 4], "q": [2, 1, 4, 3]})
    model = new().fit(X, list("abab"))
    with pytest.raises(InputError, match="not a row of X: pass its label"):
        model.delete(X.iloc[0])
    model.delete(X["p"].iloc[:2])
    assert model.samples_.ids() == ["0", "3"]


def test_all_samples_of_subjects_are_deleted_restricted_ones_too() -> None:
    X = frame()
    model = labelled()
    model.delete(subjects="ada")
    assert [name for name in X["key"] if not model.holds(name)] == ["k0", "k3"]
    model.restrict(["k2", "k6", "k7"], {"bob": Mark(1, keeps=True)})
    with pytest.raises(InputError, match="row 1, 'subject': is restricted: release it first"):
        model.add([[0.0, 0.0]] * 2, ["a", "b"], subjects=[None, "bob"])
    for unknown in ("ada", ["eve", "nobody"], [7]):
        with pytest.raises(UnknownIdError, match=r"no sample with this subject is held: '(ada|nobody|7)'; nothing"):
            model.delete(subjects=unknown)
    model.delete(subjects=pd.Series(["bob", "eve", "bob"]))
    assert model.samples_.ids() == ["k1", "k4"]
    assert (len(model.samples_.restricted), model.samples_.restricted.marks) == (0, {})
    model.check_invariants()
    assert model.verify().ok
    with pytest.raises(InputError, match="ids or subjects, and not both"):
        model.delete("k1", subjects="ada")
    for wrong in (frame(), b"ada", {"ada": 1}, [None], [1.5]):
        with pytest.raises(InputError, match="'subject'"):
            model.delete(subjects=wrong)
    assert model.n_samples_ == 2


# Replacing


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_one_row_replaces_a_sample_and_what_is_said_of_it(kind: str) -> None:
    model, named = labelled(), {"ids": "key", "subjects": "person", "expires_at": "until"}
    store = model.samples_
    store.set_retention("eve", 1000, 5)
    row = frame().iloc[[0]].assign(x=70.0)
    model.replace("k0", TABLES[kind](row[["z", "x"]]), "b")
    assert (store.get("k0").features, store.subject("k0"), store.expiry("k0")) == ([70.0, 7.0], "ada", END_MS)
    model.replace("k0", TABLES[kind](row.assign(person="eve")), "b", **named)
    assert (store.subject("k0"), store.expiry("k0")) == ("eve", 1005)
    assert store.ids_of_subject("ada") == ["k3"]
    model.replace("k0", [1.0, 2.0], "b", subjects=[None], expires_at=[None])
    assert (store.subject("k0"), store.expiry("k0")) == (None, None)
    with pytest.raises(InputError, match="x must be one row with the id of the sample"):
        model.replace("k1", TABLES[kind](row), "b", **named)
    with pytest.raises(InputError, match="1 rows, but 2 values"):
        model.replace("k1", [1.0, 2.0], "b", subjects=["a", "b"])
    model.check_invariants()
    assert model.verify().ok
