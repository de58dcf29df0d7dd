"""What is said of a data file: in lines, by `oubli inspect`, when a server asks, and in `GET /model`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oubli.app.cli.console import Bars
from oubli.app.cli.main import cli, main
from oubli.app.datasets.loading import CLASSES, LoadError, Table, load_table
from oubli.app.progress import silent
from oubli.app.service.build import build_service
from oubli.app.settings import load_settings
from tests.unit.app.datasets.writing import STYLES, people
from tests.unit.app.support import served

N = 200


@pytest.fixture
def odd() -> Path:
    """A file with something to say about each column."""
    lines = ["no,name,age,code,always,given,since,y"]
    for i in range(N):
        label = "yes" if i % 3 else "no"
        lines.append(f"{i},person {i},{i % 70},{i % 4},same,{label.upper()},2024-01-{i % 28 + 1:02},{label}")
    Path("odd.csv").write_text("\n".join(lines) + "\n")
    return Path("odd.csv")


def load(path: Path, ask: Callable[[str, Sequence[str]], str | None] | None = None, **flags: Any) -> Table:
    settings = load_settings(data=path, **flags)
    return load_table(settings, silent) if ask is None else load_table(settings, silent, ask=ask)


def test_what_looks_odd_is_said(odd: Path) -> None:
    about = load(odd, target="y", drop=("code",)).about
    assert about.remarks == {"no": "id", "name": "id", "always": "constant", "given": "leak"}
    assert about.classes == (("yes", 133), ("no", 67))
    assert list(about.lines(values=True)) == [
        "odd.csv: csv; 200 rows",
        "target: y, classification, 2 classes: yes (133), no (67)",
        "numeric: no, age",
        "categorical: name (200), always (1), given (2)",
        "date or time: since (days)",
        "not learned from: code (dropped)",
        "no, name looks like an id: use it as --id, or --drop it",
        "always is the same in all rows: --drop it",
        "given goes with one label only, value by value: --drop it if it is not known before the label is",
    ]


def test_a_log_gets_no_values_and_no_counts(odd: Path) -> None:
    about = load(odd, target="y", id_column="no").about
    for text, same in (("\n".join(about.lines(values=False)), "same,"), (json.dumps(about.content()), "same")):
        assert not any(part in text for part in ("200", "133", "person 1", "YES", same))


def test_columns_without_anything_odd_are_not_remarked_and_many_categories_are(odd: Path) -> None:
    odd.write_bytes(STYLES["excel-german"].write(people(5, 400)))
    about = load(odd, target="y").about
    assert about.remarks == {}
    assert next(about.lines(values=True)) == "odd.csv: csv, encoding=cp1252, delimiter=;, decimal=,; 400 rows"
    odd.write_text("a,y\n" + "".join(f"c{i % 1500},{i // 7 % 2}\n" for i in range(9000)))
    assert load(odd, target="y").about.remarks == {"a": "many"}


# --- the target


def test_without_a_target_the_columns_are_listed_or_a_person_is_asked(odd: Path) -> None:
    with pytest.raises(LoadError, match="--target COLUMN") as caught:
        load(odd)
    assert "'y' (categorical), 'age' (numeric), 'code' (numeric), 'given' (categorical)" in str(caught.value)
    assert "'name'" not in str(caught.value), "it looks like an id"

    def ask(question: str, answers: Sequence[str]) -> str:
        assert ("odd.csv" in question, answers[0]) == (True, "y")
        return "given"

    schema = load(odd, ask).schema
    assert (schema.label_name, "y" in schema.names) == ("given", True)


def test_some_distinct_whole_numbers_are_asked_about_or_said_unless_the_task_is(odd: Path) -> None:
    odd.write_text("a,y\n" + "".join(f"{i},{i % 25}\n" for i in range(N)))
    for answer, task in ((CLASSES, "classification"), (None, "regression")):
        table = load(odd, lambda question, answers, answer=answer: answer, target="y")
        assert table.schema.task == task
        line = next(line for line in table.about.lines(values=True) if line.startswith("target"))
        hint = "25 distinct whole numbers are read as quantities: --task classification if not"
        assert (hint in line) == (not answer)

    def ask(question: str, answers: Sequence[str]) -> str:
        raise AssertionError(question)

    for task in ("regression", "classification"):
        assert load(odd, ask, target="y", task=task).about.hint == ""


def test_more_classes_than_a_model_holds_are_refused_unless_the_schema_allows_them(odd: Path) -> None:
    odd.write_text("a,y\n" + "".join(f"{i},c{i % 1200}\n" for i in range(2400)))
    with pytest.raises(LoadError, match=r"column 'y': has 1,200 different labels.* choose another --target"):
        load(odd, target="y")
    label = {"name": "y", "type": "string", "max_classes": 1200}
    schema = {"task": "classification", "label": label, "columns": [{"name": "a", "type": "numeric"}]}
    Path("schema.json").write_text(json.dumps(schema))
    assert len(load(odd, schema_file=Path("schema.json")).about.classes) == 1200


def test_the_terminal_asks_until_an_answer_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["7", "nobody", " 2 ", "a"])
    bars = Bars()
    assert bars.ask("Which?", ("a", "b")) is None, "there is no terminal"
    monkeypatch.setattr(bars, "_draws", True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(bars._console, "input", lambda prompt: next(said))
    with bars:
        assert (bars.ask("Which?", ("a", "b")), bars.ask("Which?", ("a", "b"))) == ("b", "a")


# --- inspect


def inspect(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["inspect", *arguments])
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def test_inspect_shows_types_and_examples_and_writes_a_schema(odd: Path) -> None:
    odd.write_bytes(STYLES["excel-german"].write(people(6)))
    text = inspect("odd.csv")
    assert "target: none yet; --target COLUMN says which: y, age" in text
    text = inspect("odd.csv", "--target", "y", "--drop", "age", "--read", "dates=day-first", "--output", "schema.json")
    assert all(part in text for part in ("height  numeric", "since   numeric, days", "Zürich"))
    document = json.loads(Path("schema.json").read_text())
    assert document["read"] == ["encoding=cp1252", "delimiter=;", "decimal=,", "dates=day-first"]
    assert {"name": "since", "type": "numeric", "dtype": "float32", "unit": "days"} in document["columns"]
    table = load(odd, schema_file=Path("schema.json"), drop=("age",))
    assert table.schema == load(odd, target="y", drop=("age",)).schema


def test_a_data_file_is_named_once(odd: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for more, told in (("--data odd.csv", "file is named twice"), ("--output schema.json", "no column is named")):
        with pytest.raises(SystemExit):
            main(["inspect", "odd.csv", *more.split()])
        assert told in capfd.readouterr().err
    assert not Path("schema.json").exists()


# --- a server


def test_a_server_tells_what_was_understood_until_a_sample_is_erased(odd: Path, tmp_path: Path) -> None:
    shown: list[Any] = []
    settings = load_settings(data=odd, target="y", id_column="no", data_dir=tmp_path / "data", n_estimators=3)
    with served(build_service(settings, show=shown.append)) as client:
        model = client.get("/model").json()
        assert (understood := model["understood"]) == shown[0].content()
        assert (understood["read"], understood["roles"]) == (["csv"], [{"name": "no", "role": "ids"}])
        assert {"name": "always", "remark": "constant"} in understood["remarks"]
        (since,) = (one for one in model["features"] if one["name"] == "since")
        assert since == {"name": "since", "type": "numeric", "dtype": "float32", "unit": "days"}
        receipt = client.delete("/samples/7").json()
        assert client.get("/model").json()["understood"]["remarks"], "the erasure is not finished"
        assert client.post("/snapshot").status_code == 201
        assert client.get(f"/erasures/{receipt['id']}").json()["status"] == "erased"
        understood = client.get("/model").json()["understood"]
        assert (understood["remarks"], understood["left_out"], understood["read"]) == (None, None, ["csv"])
    with served(build_service(settings)) as client:
        assert client.get("/model").json()["understood"] is None, "the data directory is read, not the file"
