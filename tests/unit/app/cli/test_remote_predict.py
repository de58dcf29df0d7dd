"""`oubli predict --url`: a running server predicts a file as the command does with a model file."""

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from oubli.app.cli.main import cli
from tests.unit.app.hosted import Hosted, hosted
from tests.unit.app.support import forest, make_service, rows


@pytest.fixture(scope="module")
def host() -> Iterator[Hosted]:
    with hosted(make_service(forest(60)), max_body_bytes=2**21) as one:
        yield one


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["predict", *map(str, arguments)])
    return done.exit_code, done.output if done.exception is None else f"{done.output}{done.exception}"


LAX = ("--extra-columns", "ignore", "--missing-columns", "missing")


def url(host: Hosted) -> str:
    return f"http://127.0.0.1:{host.port}"


def table(n: int) -> str:
    lines = [f"k{i},{a},{b},{str(c).lower()},x\n" for i, (a, b, c) in enumerate(rows(n))]
    return "key,age,job,member,other\n" + "".join(lines)


def test_a_file_is_predicted_as_with_a_model_file(host: Hosted, tmp_path: Path) -> None:
    data, model = tmp_path / "data.csv", tmp_path / "model.oubli"
    data.write_text(table(30_000))  # several pieces
    forest(60).save(model)
    assert run(model, data, *LAX, "--id", "key", "-o", tmp_path / "here.csv")[0] == 0
    assert run("--url", url(host), "--data", data, *LAX, "--id", "key", "-o", tmp_path / "there.csv")[0] == 0
    here, there = (list(csv.reader(io.StringIO((tmp_path / f"{p}.csv").read_text()))) for p in ("here", "there"))
    assert there[0] == [*here[0], "model_version"]
    assert [row[:2] for row in there[1:]] == [row[:2] for row in here[1:]]
    assert [[float(x) for x in row[2:4]] for row in there[1:]] == [[float(x) for x in row[2:]] for row in here[1:]]
    packed, columns = tmp_path / "data.csv.gz", tmp_path / "data.parquet"
    packed.write_bytes(gzip.compress(data.read_bytes()))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(data), columns, row_group_size=7000)
    for file in (packed, columns):
        output = tmp_path / f"{file.suffix}.csv"
        assert run("--url", url(host), "--data", file, *LAX, "--id", "key", "-o", output)[0] == 0
        assert output.read_text() == (tmp_path / "there.csv").read_text()


@pytest.mark.parametrize("n_before", [0, 30_000])
def test_a_wrong_field_is_named_by_its_line(host: Hosted, tmp_path: Path, n_before: int) -> None:
    data = tmp_path / "data.csv"
    data.write_text(table(n_before) + "k,SEKRET,a,true,x\n" + table(20_000).partition("\n")[2])
    status, output = run("--url", url(host), "--data", data, *LAX, "-o", tmp_path / "out.csv")
    assert status != 0
    assert f"line {n_before + 2}, column 'age': must be a number" in output
    assert "SEKRET" not in output


def test_what_cannot_be_is_refused_with_the_remedy(host: Hosted, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text(table(3))
    assert "no column 'nobody'" in run("--url", url(host), "--data", data, "--id", "nobody")[1]
    for words, arguments in (("--data", ("--url", url(host), data)), ("--url", (data,))):
        assert words in run(*arguments)[1]
    assert "start it" in run("--url", "http://127.0.0.1:9", "--data", data)[1]
    data.write_text(table(20_000) + "k,1,a\n")
    assert "has 3 fields" in run("--url", url(host), "--data", data, *LAX, "-o", tmp_path / "out.csv")[1]


@pytest.mark.parametrize("where", ["here", "there"])
def test_columns_too_many_or_too_few_are_named_or_go_by_what_is_asked(host: Hosted, tmp_path: Path, where: str) -> None:
    data, model, output = tmp_path / "data.csv", tmp_path / "model.oubli", tmp_path / "out.csv"
    forest(60).save(model)
    first = [model, data] if where == "here" else ["--url", url(host), "--data", data]

    def predicted(*rules: str) -> str:
        status, said = run(*first, *rules, "--force", "-o", output)
        assert status == 0, said
        return output.read_text()

    data.write_text("age,job,member,income\n3,a,true,yes\n30,b,,no\n")  # the target is known
    exact = predicted()
    data.write_text("job,other,age,member\na,x,3,true\nb,x,30,\n")
    status, said = run(*first, "--force", "-o", tmp_path / "refused.csv")
    assert (status, "has 'other', which the model does not know" in said, "--extra-columns" in said) == (1, True, True)
    assert predicted("--extra-columns", "ignore") == exact
    data.write_text("age,job\n3,a\n30,b\n")
    status, said = run(*first, "--force", "-o", tmp_path / "refused.csv")
    assert (status, "lacks 'member'" in said, "--missing-columns missing" in said) == (1, True, True)
    filled = predicted("--missing-columns", "missing")
    data.write_text("age,job,member\n3,a,\n30,b,\n")
    assert predicted() == filled
    data.write_text("none\n1\n")
    assert run(*first, *LAX, "--force", "-o", tmp_path / "refused.csv")[0] == 1
    assert run(*first, "--extra-columns", "drop")[0] == 2


def test_a_file_is_sent_as_it_is_understood(host: Hosted, tmp_path: Path) -> None:
    """The server knows nothing of decimal commas and of words for missing values."""
    plain, german = tmp_path / "plain.csv", tmp_path / "german.csv"
    people = [(a + 0.5 if i % 3 else "", b, str(c).lower()) for i, (a, b, c) in enumerate(rows(200))]
    plain.write_text("age,job,member\n" + "".join(f"{a},{b},{c}\n" for a, b, c in people))
    lines = (f"{str(a).replace('.', ',') or 'NA'};{b};{c[:1]}\n" for a, b, c in people)
    german.write_bytes(("age;job;member\n" + "".join(lines)).encode("utf-16"))
    (_, one), (status, other) = (run("--url", url(host), "--data", file) for file in (plain, german))
    assert (status, one.replace("plain", "german")) == (0, other)
    german.write_text("age;job;member\n1,5;a;t\nSEKRET;b;f\n")
    assert "line 3, column 'age': must be a number" in run("--url", url(host), "--data", german)[1]
