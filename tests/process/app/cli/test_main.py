"""The command line as a user meets it: what it does, what it says, and how it ends."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from oubli.app.cli.console import Bars
from oubli.app.cli.examples import EXAMPLE_ROW
from oubli.app.cli.main import main
from oubli.app.version import VERSION
from oubli.core import load
from oubli.core.engine import Verification
from oubli.core.influence import influence
from tests.serving import APP, EXAMPLE, Running, environment, free_port, paste, run_cli, serving, started_cli, wait_for
from tests.tiers import ordinary

Cli = Callable[..., tuple[int, str, str]]
SMALL = ("--n-estimators", "5", "--random-state", "1")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run a command in this process, in an empty folder; return exit code, stdout and stderr (lines joined)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err.replace("\n", " ")

    return run


def done(cli: Cli, part: str, *arguments: str) -> str:
    """What a command that succeeds writes to stdout; a part of what it says besides is known."""
    code, out, err = cli(*arguments)
    assert (code, part in err) == (0, True), err
    return out


def require_refusal(cli: Cli, part: str, *arguments: str) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, ""), arguments
    assert part in err
    assert "Traceback" not in err


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A small data set with ids, subjects, categories and missing values."""
    path = tmp_path / "people.csv"
    rows = ["no,who,age,job,income"]
    for i in range(60):
        job = ("clerk", "cook", "", "None")[i % 4]
        rows.append(f"{i:03d},p{i // 2},{20 + i if i % 7 else ''},{job},{'high' if i % 4 == 1 else 'low'}")
    path.write_text("\n".join(rows) + "\n")
    return path


COLUMNS = ("--target", "income", "--id", "no", "--subject", "who")
FIT = (*COLUMNS, *SMALL)
LAX = ("--extra-columns", "ignore")


def test_help_version_fit_predict_verify(cli: Cli, people: Path) -> None:
    out = done(cli, "", "--help")
    assert all(command in out for command in ("serve", "fit", "predict", "influence", "verify", "snapshot", "warm-up"))
    assert cli("--version") == (0, f"oubli {VERSION}\n", "")

    done(cli, "60 samples, 2 features", "fit", "--data", str(people), *FIT, "--output", "m.oubli")
    out = done(cli, "not used by the model: 'who'", "predict", "m.oubli", str(people), "--id", "no", *LAX)
    header, *rows = csv.reader(io.StringIO(out))
    assert header == ["id", "prediction", "probability of high", "probability of low"]
    assert [row[0] for row in rows] == [f"{i:03d}" for i in range(60)]
    assert all(abs(float(row[2]) + float(row[3]) - 1) < 1e-9 for row in rows)

    predict = ("predict", "m.oubli", str(people), *LAX, "--output", "out.csv")
    assert cli(*predict)[:2] == (0, "")
    assert Path("out.csv").read_text().startswith("prediction,probability of high,probability of low\n")
    assert "there already" in cli(*predict)[2]
    assert cli(*predict, "--force")[0] == 0

    out = done(cli, "the model equals a fresh fit on its 60 samples", "verify", "m.oubli")
    held, fresh = (line.split()[1] for line in out.splitlines())
    assert held == fresh


PRINTING = (["predict", *LAX, "m.oubli"], ["influence", "m.oubli"], ["influence", "--json", "m.oubli"])


@pytest.mark.parametrize("arguments", ordinary(PRINTING, PRINTING[0]), ids=" ".join)
def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(cli: Cli, people: Path, arguments: list[str]) -> None:
    assert cli("fit", "--data", str(people), *FIT, "--output", "m.oubli")[0] == 0
    before = signal.getsignal(signal.SIGPIPE)
    assert cli("predict", "m.oubli", str(people), *LAX)[0] == 0
    assert signal.getsignal(signal.SIGPIPE) is before, "anyone who uses sockets in this process would be killed"
    reader, writer = os.pipe()
    os.close(reader)
    options: dict[str, Any] = {"stdout": writer, "stderr": subprocess.PIPE, "env": environment()}
    ended = subprocess.run([*APP, *arguments, str(people)], **options, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, "Error" in ended.stderr, "Broken" in ended.stderr) == (0, False, False), ended.stderr


def test_a_tree_is_another_kind_of_model(cli: Cli, people: Path) -> None:
    tree = ("fit", "--model", "tree", "--data", str(people))
    done(cli, "(tree) to", *tree, *COLUMNS, "--window", "50", "--output", "t.oubli")
    assert len(done(cli, "agrees with its 50 samples. It is approximate", "verify", "t.oubli").splitlines()) == 2
    for flags, part in (
        (("--n-estimators", "5"), "--n-estimators is for a model of kind `forest`"),
        (("--model", "forest", "--criterion", "beauty"), "'gini', 'entropy'"),
        (("--model", "forest", "--max-features", "some"), "max_features='some' must be"),
    ):
        require_refusal(cli, part, *tree, *COLUMNS, *flags, "--output", "u.oubli")
        assert not Path("u.oubli").exists()


BOOSTED = (*FIT, "--model", "incremental-boosting", "--min-child-weight", "0.1")


def test_influence_names_the_samples_that_help_and_harm(cli: Cli, people: Path, tmp_path: Path) -> None:
    done(cli, "", "fit", "--data", str(people), *BOOSTED, "--output", "m.oubli")
    (tmp_path / "wrong.csv").write_text("age,job,income,shoe\n25,cook,low,9\n31,cook,high,8\n")
    found = influence(load("m.oubli"), [[25, "cook"], [31, "cook"]], ["low", "high"])

    influence_of = ("influence", "m.oubli", "wrong.csv", "--target", "income", "--top", "3")
    code, out, err = cli(*influence_of)
    rows = list(csv.reader(io.StringIO(out)))
    assert (code, rows[0]) == (0, ["effect", "id", "score"])
    expected = [["helps", *pair] for pair in found.helpful(3)] + [["harms", *pair] for pair in found.harmful(3)]
    assert [[effect, name, float(score)] for effect, name, score in rows[1:]] == expected
    labels = "By leaf-influence, for the labels in 'income' of 2 rows"
    for part in ("not used by the model: 'shoe'", labels, "Note: leaf values lie on a grid"):
        assert part in err

    answer = json.loads(done(cli, "", *influence_of, "--json"))
    for effect, best in (("helpful", found.helpful(3)), ("harmful", found.harmful(3))):
        assert answer[effect] == [{"id": name, "score": score} for name, score in best]
    assert (answer["method"], answer["n_samples"]) == ("leaf-influence", 60)
    assert "grid" in answer["note"]


def test_influence_says_what_cannot_be_asked(cli: Cli, people: Path, tmp_path: Path) -> None:
    for name, lines in {"rows": "25,cook,low", "unlabelled": "25,cook,low\n30,cook,"}.items():
        (tmp_path / f"{name}.csv").write_text(f"age,job,income\n{lines}\n")
    (tmp_path / "narrow.csv").write_text("age,income\n25,low\n")
    assert cli("fit", "--data", str(people), *FIT, "--output", "f.oubli")[0] == 0
    for arguments, part in (
        (("absent.oubli", "rows.csv"), "absent.oubli cannot be read"),
        (("f.oubli", "absent.csv"), "absent.csv cannot be read"),
        (("f.oubli", "rows.csv", "--update-set", "0"), "--update-set must be all, single or a number"),
        (("f.oubli", "rows.csv", "--target", "salary"), "has no column 'salary', which --target names"),
        (("f.oubli", "unlabelled.csv", "--target", "income"), "unlabelled.csv, line 3, column 'income'"),
        (("f.oubli", "narrow.csv"), "lacks 'job', which the model needs"),
        (("f.oubli", "rows.csv", "--output", "rows.csv"), "rows.csv is there already"),
    ):
        require_refusal(cli, part, "influence", *arguments)


def test_a_model_that_differs_is_told_by_the_exit_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    differs = Verification("aa", "bb", [], ["the classes, rank 0: 5 kept, 4 recounted; wrong places: 1"])
    model = SimpleNamespace(verify=lambda: differs, n_samples_=1)
    monkeypatch.setattr("oubli.app.cli.predict.load_model_file", lambda path: model)
    code, out, err = cli("verify", "m.oubli")
    assert (code, out) == (1, "held   aa\nfresh  bb\n")
    assert "is not the one that training on its samples gives" in err
    assert differs.wrong_counters[0] in err


def test_what_cannot_be_done_ends_with_two_and_says_why(cli: Cli) -> None:
    for arguments, part in (
        (("serve", "--data", "absent.csv", "--target", "y"), "absent.csv cannot be read"),
        (("serve",), "nothing to serve: give --data"),
        (("serve", "--workers", "2"), "a second worker would hold a model of its own"),
        (("serve", "--schema", "absent.json", "--ephemeral"), "absent.json cannot be read"),
        (("fit", "--output", "m.oubli"), "no data file is named"),
        (("fit", "--data", "x.csv", "--target", "y"), "name one with --output"),
        (("predict", "absent.oubli", "x.csv"), "absent.oubli cannot be read"),
        (("verify", "absent.oubli"), "absent.oubli cannot be read"),
        (("verify", "."), "holds no snapshot"),
        (("snapshot", "--url", "ftp://x"), "must begin with http"),
        (("snapshot", "--url", f"http://127.0.0.1:{free_port()}"), "no server answers"),
    ):
        require_refusal(cli, part, *arguments, *(("--port", "0") if arguments[0] == "serve" else ()))
    for content in (b"", b"not a model", b"\x10\0\0\0\0\0\0\0{}", gzip.compress(b"x" * 1000, mtime=0)):
        Path("m.oubli").write_bytes(content)
        require_refusal(cli, "m.oubli", "verify", "m.oubli")


def test_a_port_that_is_taken_is_known_before_training(adult_server: Running, tmp_path: Path) -> None:
    port = str(adult_server.port)
    done = run_cli("serve", "--data", str(EXAMPLE), "--target", "income", "--port", port, cwd=tmp_path)
    assert (done.returncode, "loading" in done.stderr) == (2, False)
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert not (tmp_path / "oubli-data").exists()


def test_a_snapshot_of_a_running_server(cli: Cli, adult_server: Running, tmp_path: Path) -> None:
    digest = done(cli, "Downloaded", "snapshot", "--url", adult_server.url, "--output", "copy.safetensors")
    assert done(cli, "", "verify", "copy.safetensors").split()[1] == digest.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["copy.safetensors"]


def test_what_a_server_says_at_start_works(adult_server: Running) -> None:
    output = adult_server.output
    places = [f"{adult_server.url}/{path}" for path in ("docs", "predict", "samples", "samples/try-1")]
    assert [text for text in ("loading adult.csv.gz", "training the model", *places) if text not in output] == []
    assert output.count("curl") == 3
    predicted, added, deleted = paste(output)
    assert len(predicted["predictions"]) == 1
    assert (added["ids"], deleted["unlearned"]) == (["try-1"], 1)


def test_the_printed_line_works_for_other_data_and_with_a_key(tmp_path: Path) -> None:
    rows = [f"{20 + i},it's,{'true' if i % 3 else ''},,note {i},{'yes' if i % 4 else 'no'}" for i in range(60)]
    (tmp_path / "data.csv").write_text("\n".join(["age,job,member,gone,notes,income", *rows]) + "\n")
    (tmp_path / "my key's").write_text("k" * 20)
    flags = ("--data", "data.csv", "--target", "income", "--ephemeral", "--api-key-file", "my key's", *SMALL)
    with serving(*flags, cwd=tmp_path) as server:
        (answer,) = paste(server.output)
        assert len(answer["predictions"]) == 1
        assert "note" not in server.output.split("Try:")[1]
        assert "compiles its kernels" not in server.output


def test_a_german_export_is_served_by_its_name_alone(tmp_path: Path) -> None:
    """A position names the file; how it is written is found out, and dates may be sent as text."""
    rows = [f"{20 + i};{i}.250,5;{i % 28 + 1}.3.2021;{'ja' if i % 3 else 'nein'}" for i in range(1, 61)]
    (tmp_path / "leute.csv").write_bytes("\r\n".join(["größe;summe;seit;kauft", *rows]).encode("cp1252"))
    with serving("leute.csv", "--target", "kauft", "--ephemeral", *SMALL, cwd=tmp_path) as server:
        said = server.output
        parts = ("leute.csv: csv, encoding=cp1252, delimiter=;, decimal=,", "target: kauft, classification, 2 classes")
        assert [text for text in (*parts, "date or time: seit (days)") if text not in said] == []
        assert not any(word in said.split("Oubli", 1)[0] for word in ("nein", "60 rows")), "a log gets no values"
        status, model = server.get("/model")
        assert (status, model["features"][2]["unit"]) == (200, "days")
        assert model["understood"]["read"] == ["csv", "encoding=cp1252", "delimiter=;", "decimal=,"]
        instances = [[30, 2250.5, since] for since in ("2021-03-05", 18691)]
        answers = server.ask("POST", "/predict", {"instances": instances})[1]["probabilities"]
        assert answers[0] == answers[1]


def test_the_row_of_the_example_is_its_first() -> None:
    with gzip.open(EXAMPLE, "rt") as file:
        header, row = (next(csv.reader([next(file)])) for _ in range(2))
    assert dict(zip(header, row, strict=True)) == {k: str(v) for k, v in EXAMPLE_ROW.items()} | {"income": "<=50K"}


def test_progress_is_a_bar_for_each_stage_on_a_terminal_and_one_line_elsewhere() -> None:
    for is_terminal in (False, True):
        text = io.StringIO()
        with Bars(Console(file=text, force_terminal=is_terminal, width=100, color_system=None)) as progress:
            for stage in (("loading [x]", 1, 9), ("loading [x]", 9, 9), ("training", 0, 0), ("training", 3, 0)):
                progress(*stage)
        if is_terminal:
            assert "9/9" in text.getvalue()
            assert any("training" in line for line in text.getvalue().split("\n")[-3:])
        else:
            assert text.getvalue() == "loading [x] ...\ntraining ...\n"


def test_the_address_is_printed_when_requests_are_answered(people: Path, tmp_path: Path) -> None:
    """Anyone who reads it may paste the line below it."""
    port, output = free_port(), tmp_path / "output.txt"
    flags = ("--port", str(port), "--data", str(people), *FIT)
    process = started_cli("serve", *flags, cwd=tmp_path, output=output, errors=output)
    server = Running(process, port, tmp_path)
    try:
        wait_for(lambda: process.poll() is not None or "Try:" in server.output, "an address", 600, pause=0.001)
        assert process.poll() is None, server.output
        assert server.get("/readyz")[0] == 200
    finally:
        process.kill()
        process.wait()
