"""Tables of any size: sent in parts, put together again, with a bar or a function that is told how far it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from oubli.client import Client, ConflictError, DataError, IdConflictError, InvalidInputError, TooLargeError
from oubli.client.operations import predictions, requests, samples
from tests.unit.app.support import BASE, NUMBERS, forest, make_service, rows, served
from tests.unit.client.scripted import Scripted, answer, problem, ran, session

N = 103
NAMES = ["age", "job", "member"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of a server that takes few rows, so that every table is large."""
    with served(make_service(), max_rows=10) as http, Client(BASE, http_client=http) as made:
        yield made


def frame(n: int = N) -> pd.DataFrame:
    return pd.DataFrame(rows(n), columns=NAMES, index=[f"r{i}" for i in range(n)])


def predicted(n: int, version: int = 1, first: int = 0, classes: tuple[str, ...] = ("no", "yes")) -> Any:
    shares = [[i / 100, *[0.5] * (len(classes) - 1)] for i in range(first, first + n)]
    labels = [classes[i % len(classes)] for i in range(first, first + n)]
    content = {"predictions": labels, "classes": classes, "probabilities": shares, "model_version": version}
    return answer(200, content)


def test_a_table_that_the_server_takes_only_in_parts_is_predicted_whole(client: Client) -> None:
    expected = forest().query(rows(N))
    dictionaries = [dict(zip(NAMES, row, strict=True)) for row in rows(N)]
    for table in (rows(N), dictionaries, frame(), pa.Table.from_pandas(frame(), preserve_index=False)):
        told: list[float] = []
        found = client.predict(table, progress=told.append)
        parts = (found.predictions.tolist(), found.probabilities.tolist(), found.classes.tolist())
        assert parts == (expected.labels.tolist(), expected.probabilities.tolist(), expected.classes.tolist())
        assert (found.model_version, found.oldest_version) == (1, 1)
        assert (told, told[-1], len(told) >= 10) == (sorted(set(told)), 1.0, True)
        if isinstance(table, pd.DataFrame):
            assert found.to_frame().index.equals(table.index)


def test_an_array_and_ranges_are_put_together() -> None:
    model = forest(200, schema=NUMBERS)
    with served(make_service(model), max_rows=10) as http:
        client = Client(BASE, http_client=http)
        found = client.predict(rows(25), coverage=0.8)
        np.testing.assert_array_equal(found.predictions, model.predict(rows(25)))
        np.testing.assert_array_equal(found.intervals, model.predict_interval(rows(25), 0.8))
    with served(make_service(forest(200)), max_rows=10) as http:
        found = Client(BASE, http_client=http).predict(frame(25), coverage=0.8)
        inside = forest(200).predict_set(rows(25), 0.8)
        assert found.sets == [["no" if j == 0 else "yes" for j in np.flatnonzero(one)] for one in inside]
        assert len(found.to_frame()) == 25


def test_what_is_wrong_is_named_by_its_row_of_the_whole_table(client: Client) -> None:
    wrong = rows(N)
    wrong[87] = ["x", "a", True]
    with pytest.raises(InvalidInputError) as caught:
        client.predict(wrong)
    assert caught.value.pointers == ("/instances/87/0",)
    assert "/instances/87/0" in str(caught.value)
    with pytest.raises(DataError) as refused:
        client.predict([*rows(87), [float("inf"), "a", True], *rows(5)])
    assert (refused.value.row, refused.value.field) == (87, 0)


def sent_by(script: Scripted) -> list[Any]:
    return [json.loads(one.body or b"")["instances"] for one in script.sent]  # type: ignore[arg-type]


def test_parts_are_halved_until_the_server_takes_them() -> None:
    refused = (problem(413, kind) for kind in ("too-many-rows", "body-too-large"))
    script = ran(predictions.predict(session(), rows(5)), *refused, *(predicted(1, first=i) for i in range(5)))
    sent = sent_by(script)
    assert [len(part) for part in sent] == [5, 2, 1, 1, 1, 1, 1]
    assert [row for part in sent[2:] for row in part] == rows(5)
    assert script.result.probabilities[:, 0].tolist() == [0.0, 0.01, 0.02, 0.03, 0.04]
    ran(predictions.predict(session(), rows(1)), problem(413, "body-too-large"), error=TooLargeError)


def test_a_body_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MOST_BYTES", 60)
    wide = [["x" * 10, float(i)] for i in range(8)]
    script = ran(predictions.predict(session(), wide), *(predicted(2, first=2 * i) for i in range(4)))
    assert [row for part in sent_by(script) for row in part] == wide
    assert all(len(one.body) <= 60 for one in script.sent)  # type: ignore[arg-type]


def test_a_model_that_changes_between_two_parts_is_told_with_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MOST_ROWS", 10)
    answers = predicted(10, 4), predicted(5, 6, 10, ("maybe", "no", "yes"))
    script = ran(predictions.predict(session(), rows(15)), *answers)
    found = script.result
    assert (found.oldest_version, found.model_version, found.classes.tolist()) == (4, 6, ["maybe", "no", "yes"])
    assert found.probabilities[[3, 12]].tolist() == [[0.0, 0.03, 0.5], [0.12, 0.5, 0.5]]
    # The second part is asked of a server that has what the first one has seen.
    assert script.sent[1].headers["Min-Version"] == "4"


# --- additions


def test_many_samples_are_added_as_one_change(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_IN_JSON", 10)
    before = client.model().model_version
    added = client.add(frame(50), ["yes", "no"] * 25)
    assert added.ids == [f"r{i}" for i in range(50)]
    assert (added.model_version, client.get("r49").label) == (before + 1, "no")
    with pytest.raises(IdConflictError) as caught:
        client.add(frame(50), ["no"] * 50)
    assert "/samples/0/id" in caught.value.pointers
    with pytest.raises(InvalidInputError) as refused:
        client.add([*rows(49), ["x", "a", True]], ["no"] * 50)
    assert refused.value.pointers == ("/samples/49/features/age",)
    assert client.model().model_version == added.model_version
    # A repeated addition is made once.
    first, again = (client.add(rows(20), ["yes"] * 20, idempotency_key="load") for _ in range(2))
    assert (first.ids, first.model_version) == (again.ids, again.model_version)


# --- columns


def test_columns_too_many_or_too_few_go_by_what_is_asked(client: Client) -> None:
    exact = client.predict(frame(30)).probabilities
    more = frame(30).assign(other="x")
    np.testing.assert_array_equal(client.predict(more, extra_columns="ignore").probabilities, exact)
    with pytest.raises(InvalidInputError, match="missing_columns=missing"):
        client.predict(frame(30).drop(columns="age"))
    added = client.add(frame(9).drop(columns="age"), ["yes"] * 9, ids=range(900, 909), missing_columns="missing")
    assert client.get(added.ids[8]).features["age"] is None
    odd, lax = {"job": "b", "other": 1}, {"extra_columns": "ignore", "missing_columns": "missing"}
    asking: list[Any] = [client.explain, client.influence, partial(client.predict_without, ids="c1")]
    for ask in asking:
        with pytest.raises(InvalidInputError, match="_columns="):
            ask([odd])
        assert str(ask([odd], **lax)) == str(ask([[None, "b", None]]))
    with pytest.raises(InvalidInputError, match="_columns="):
        client.replace("c9", odd, "no")
    client.replace("c9", odd, "no", **lax)
    assert client.get("c9").features == {"age": None, "job": "b", "member": None}


# --- entity tags


def test_a_sample_is_changed_only_as_it_was_read(client: Client) -> None:
    held = client.get("c5")
    assert held.etag is not None
    assert next(client.samples()).etag is None
    client.replace("c5", [1, "b", True], "no", if_match=held.etag)
    with pytest.raises(ConflictError) as caught:
        client.replace("c5", [2, "b", True], "no", if_match=held.etag)
    assert (caught.value.status, caught.value.kind) == (412, "sample-changed")
    assert "etag" not in client.get("c5").model_dump()
    with pytest.raises(ConflictError):
        client.delete("c5", if_match=held.etag)
    assert client.delete("c5", if_match=client.get("c5").etag).unlearned == 1


# --- bars


@pytest.mark.parametrize("installed", [("tqdm.auto", "rich.progress"), ("rich.progress",)])
def test_a_bar_is_drawn_by_tqdm_or_rich(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], client: Client, installed: tuple[str, ...]
) -> None:
    drawn_by: list[Any] = []

    def load(name: str) -> Any:
        if name not in installed:
            raise ImportError(name)
        drawn_by.append(name)
        return import_module(name)

    monkeypatch.setattr(requests, "import_module", load)
    with pytest.raises(InvalidInputError):  # the bar is closed then: rich draws no second one beside an open one
        client.predict([*rows(30), ["x", "a", True]], progress=True)
    capfd.readouterr()
    client.predict(frame(30), progress=True)
    said = capfd.readouterr()
    text = said.out + said.err
    assert (drawn_by, "predicting" in text, "100%" in text) == ([installed[0]] * 2, True, True)
