"""No spreadsheet runs a text that was submitted, and reading back gives the text."""

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from oubli.app.cli.erase import read_names
from oubli.app.datasets.formulas import guarded, unguarded, unguarded_columns
from oubli.app.datasets.readers import open_source
from oubli.app.progress import silent
from tests.unit.app.support import make_service, served

RUN = ("=1+1", "+1+2", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=", "-1.5.2", "-a", "+", '=HYPERLINK("http://x")')
HARMLESS = ("-1.5", "+3", "-.5", "-1e-7", "-", "+", "@", "=", "a=1", "", " =1", "1-2", "O'Hara", "'", "''")


def test_what_a_spreadsheet_would_run_is_written_behind_an_apostrophe_and_all_else_as_it_is() -> None:
    for text in RUN:
        assert (guarded(text), guarded("'" + text)) == ("'" + text if len(text) > 1 else text, "''" + text)
    values: list[Any] = [*HARMLESS, -1.5, -3, None, True]
    for value in values:
        assert guarded(value) is value


TEXTS = st.text("='+-@\t\r1.ea", max_size=6)


@given(texts=st.lists(TEXTS | st.none(), min_size=1, max_size=20))
def test_reading_back_gives_what_was_written(texts: list[str | None]) -> None:
    written = [guarded(text) for text in texts]
    assert [None if text is None else unguarded(text) for text in written] == texts
    table = pa.table({"a": pa.array(written, pa.string()), "b": pa.array(["x"] * len(texts))})
    assert unguarded_columns(table).column("a").to_pylist() == texts
    (batch,) = table.to_batches()
    assert unguarded_columns(batch).column("a").to_pylist() == texts


NASTY = {"id": "=id()", "subject": "@person", "features": [-1.5, "+cmd|x", True], "label": "-1+1"}


def nasty(client: TestClient, *ids: str) -> None:
    samples = [{**NASTY, "id": one} for one in ids or (NASTY["id"],)]
    assert client.post("/samples", json={"samples": samples}).status_code == 201


def cells_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_no_csv_of_the_server_runs_anything(tmp_path: Path) -> None:
    with served(make_service(directory=tmp_path / "d")) as client:
        nasty(client)
        table = {"Accept": "text/csv"}
        export = client.post("/subjects/export", json={"subject": "@person"}, headers=table)
        while export.status_code == 202:
            export = client.get(client.get(f"/jobs/{export.json()['id']}").json()["result"]["url"], headers=table)
        listed = client.get("/samples", params={"subject": "@person", "format": "csv"})
        for page in (listed, client.post("/samples/search", json={"ids": ["=id()"]}, headers=table), export):
            (found,) = cells_of(page.text)
            names = ("id", "subject", "income", "age", "job")
            assert [found[name] for name in names] == ["'=id()", "'@person", "'-1+1", "-1.5", "'+cmd|x"]
        added = client.post("/samples", json={"samples": [NASTY]}, headers=table)
        assert cells_of(added.text)[0]["id"] == "'=id()"
        nasty(client, *(f"n{i}" for i in range(400)))
        predicted = client.post("/predict", json={"instances": [NASTY["features"]]}, headers=table)
        assert cells_of(predicted.text)[0]["prediction"] == "'-1+1"


def test_an_export_can_be_sent_back_and_read_as_a_data_file(tmp_path: Path) -> None:
    with served() as client:
        nasty(client)
        page = client.get("/samples", params={"id": "=id()", "format": "csv"}).content
        lines = [line.split(b",") for line in page.splitlines()]
        kept = [i for i, name in enumerate(lines[0]) if name not in (b"expires_at", b"restricted_at", b"weight")]
        page = b"".join(b",".join(line[i] for i in kept) + b"\r\n" for line in lines)
        again = client.post("/samples", content=page, headers={"Content-Type": "text/csv"})
        assert again.status_code == 200, "the same sample"
        (tmp_path / "data.csv").write_bytes(page)
        source = open_source(tmp_path / "data.csv")
        (row,) = source.read(source.header, silent, source.header).to_pylist()
        assert (row["id"], row["subject"], row["job"], row["income"]) == ("=id()", "@person", "+cmd|x", "-1+1")
        (batch,) = source.batches(source.header, silent)
        assert batch.to_pylist() == [row]
        assert list(read_names(page.decode().splitlines(), "ids", None, "data.csv")) == ["=id()"]
    # A setting writes texts as they are.
    with served(csv_formulas=True) as client:
        nasty(client)
        (found,) = cells_of(client.get("/samples", params={"id": "=id()", "format": "csv"}).text)
        assert (found["id"], found["subject"], found["income"]) == ("=id()", "@person", "-1+1")
