import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oubli.client.load.plan import LoadTestError
from oubli.client.load.target import Rows, Target, ask, explain, from_csv, from_held, from_schema, read_schema
from tests.unit.client.load.fake_server import Make, answering

TYPES = {"age": "numeric", "job": "categorical", "member": "boolean"}
FEATURES = [{"name": name, "type": kind, "dtype": "float32"} for name, kind in TYPES.items()]
LABEL = {"label": {"name": "income", "type": "string"}, "classes": ["high", "low"]}
MODEL = {"features": FEATURES, "task": "classification", **LABEL}
SCHEMA = read_schema(MODEL)


def test_rows_are_made_up_by_the_schema() -> None:
    rows = from_schema(SCHEMA, 1, 50)
    assert [from_schema(SCHEMA, seed, 50) == rows for seed in (1, 2)] == [True, False]
    assert [type(cell) for cell in rows.features[0]] == [float, str, bool]
    assert set(rows.labels or ()) == {"high", "low"}
    numbers = from_schema(read_schema({**MODEL, "label": {"name": "y", "type": "number"}, "classes": None}), 1, 5)
    assert all(isinstance(label, float) for label in numbers.labels or ())
    empty = from_schema(read_schema({**MODEL, "label": {"name": "y", "type": "integer"}, "classes": []}), 1, 50)
    assert set(empty.labels or ()) == {0, 1}
    # A foreign server.
    models: list[Any] = [{}, {"features": 3}, None, {"features": [], "label": {}}]
    for model in models:
        with pytest.raises(LoadTestError, match="not that of a server of Oubli"):
            read_schema(model)


def asked_of(make: Make, ask_it: Callable[[Target], Any]) -> Any:
    """What a server answers to somebody who waits."""

    async def read() -> Any:
        async with answering(make) as url:
            return await asyncio.to_thread(ask_it, Target(url))

    return asyncio.run(read())


def test_rows_of_samples_held_are_read_page_by_page_if_they_may_be() -> None:
    def sample(i: int) -> dict[str, Any]:
        return {"features": {"member": True, "job": None, "age": i}, "label": "low"}

    async def make(method: str, path: str, content: Any) -> tuple[int, Any]:
        if "cursor=more" in path:
            return 200, {"samples": [sample(2)], "next": None}
        return 200, {"samples": [sample(0), sample(1)], "next": "more"}

    async def refuse(method: str, path: str, content: Any) -> tuple[int, Any]:
        return 403, {"title": "scope needed", "detail": "The key lacks the scope read."}

    def read(target: Target) -> Rows:
        return from_held(target, SCHEMA)

    assert asked_of(make, read) == Rows([[i, None, True] for i in range(3)], ["low"] * 3)
    with pytest.raises(LoadTestError, match=r"403: The key lacks the scope read. Rows can be made up"):
        asked_of(refuse, read)


def test_rows_of_a_csv_file(tmp_path: Path) -> None:
    text = "income,extra,age,job,member\nhigh,1,40,cook,true\n,2,41,cook,no\nlow,3,40.5,,0\n"
    (tmp_path / "a.csv").write_text(text)
    expected = Rows([[40, "cook", True], [40.5, None, False]], ["high", "low"])
    assert from_csv(tmp_path / "a.csv", SCHEMA) == expected
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(text)
    assert from_csv(tmp_path / "a.csv.gz", SCHEMA) == expected
    (tmp_path / "b.csv").write_text("age,job,member\n40,cook,true\n")
    assert from_csv(tmp_path / "b.csv", SCHEMA) == Rows([[40, "cook", True]], None)


def test_a_csv_file_that_does_not_fit(tmp_path: Path) -> None:
    for text, part in (
        *(("age,member\n1,true\n", "lacks columns of the model: job"), ("age,job,member\n", "has no rows")),
        ("age,job,member\n1,a,true\nold,a,true\n", "row 2 of .*, column age: the value is not numeric"),
        ("age,job,member\n1,a,maybe\n", "row 1 of .*, column member: the value is not boolean"),
        *(("age,job,member\ninf,a,true\n", "column age"), ("age,job,member\n1,a,tr\xffue\n", "cannot be read")),
    ):
        (tmp_path / "a.csv").write_text(text, encoding="latin-1")
        with pytest.raises(LoadTestError, match=part) as raised:
            from_csv(tmp_path / "a.csv", SCHEMA)
        assert not any(value in str(raised.value) for value in ("old", "maybe"))


def test_a_request_has_path_key_and_length() -> None:
    target = Target("http://[::1]:8000/models/a/", "secret")
    assert (target.host, target.port, target.tls) == ("::1", 8000, None)
    head, _, body = target.request("POST", "/predict", b"{}").partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert (first, body) == ("POST /models/a/predict HTTP/1.1", b"{}")
    assert {"Host: [::1]:8000", "Authorization: Bearer secret", "Content-Length: 2"} <= set(lines)
    assert b"Content" not in Target("https://example.org").request("GET", "/model")
    assert Target("https://example.org").port == 443


def test_what_is_no_address_or_certificate(tmp_path: Path) -> None:
    for url in ("", "127.0.0.1:8000", "ftp://x", "http://", "http://x:port", "http://[::1", "http://u:secret@x"):
        with pytest.raises(LoadTestError, match="the server's address") as raised:
            Target(url)
        assert "secret" not in str(raised.value)
    (tmp_path / "a.pem").write_text("none")
    for name in ("a.pem", "b.pem"):
        with pytest.raises(LoadTestError, match=f"{name} cannot be read"):
            Target("https://x", None, tmp_path / name)


def test_an_answer_that_is_none() -> None:
    for answer, part in (
        (None, "closed the connection without an answer"),
        ((200, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "no JSON"),
        ((200, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"), "nothing within 0.2 s"),
    ):

        async def make(method: str, path: str, content: Any, answer: Any = answer) -> Any:
            return answer

        with pytest.raises(LoadTestError, match=part):
            asked_of(make, lambda target: ask(target, "GET", "/model", seconds=0.2))


def test_a_refusal_is_told_with_the_words_of_the_server() -> None:
    for words, content in (("403: a key", {"title": "a key"}), ("502", None)):
        assert explain("GET /model", int(words[:3]), content) == f"GET /model answered {words}"
