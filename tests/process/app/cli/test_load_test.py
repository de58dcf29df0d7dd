"""`oubli load-test` against real servers: what it says, how it ends, and that it leaves nothing behind."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from oubli.app.cli.main import main
from tests.process.app.http.test_tls import TLS, Tls, make_certificate
from tests.servers import module_server
from tests.serving import ROOT, Process, Running, output_of, run_cli, small_table, started_cli, wait_for
from tests.tiers import ordinary

SHORT = ("--duration", "0.5", "--warm-up", "0.1")
EXAMPLE = str(ROOT / "examples" / "adult.csv.gz")
CHANGING = ("--mix", "predict=80,add=10,delete=10")


def subject_of(output: str) -> str:
    return str(re.findall(r"oubli-load-test-[0-9a-f]{12}", output)[0])


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a load test in this process says that cannot be done."""
    with pytest.raises(SystemExit) as ended:
        main(["load-test", *arguments])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    return said.err.replace("\n", " ")


def held_of(server: Running, subject: str) -> int:
    status, page = server.ask("POST", "/samples/search", {"subject": subject})
    return len(page["samples"]) if status == 200 else 0


def test_both_loops_by_two_processes(adult_server: Running, tmp_path: Path) -> None:
    n_before = adult_server.get("/model")[1]["n_samples"]
    loops = {
        "open": ("--rate", "100", "--rate", "160", "--plot", "open.png"),
        "closed": ("--concurrency", "4", "--fail-if", "predict.p99>1us", "--rows", EXAMPLE),
    }
    for name, flags in loops.items():
        arguments = (*SHORT, *CHANGING, *flags, "--processes", "2", "--json", f"{name}.json", "--fail-if", "errors>0")
        done = run_cli("load-test", adult_server.url, *arguments, cwd=tmp_path)
        n_met = int(name == "closed")
        assert (done.returncode, done.stderr.count("is met")) == (n_met, n_met), done.stderr
        assert n_met == done.stderr.count("the condition 'predict.p99>1us' is met (measured: ")
        assert ("Read-your-writes held" in done.stdout, "p99.9" in done.stdout) == (True, True)
        found = json.loads((tmp_path / f"{name}.json").read_text())
        subject = subject_of(done.stderr)
        assert (found["subject"], found["left_behind"], held_of(adult_server, subject)) == (subject, None, 0)
        assert found["read_your_writes"]["violations"] == {}
        assert found["read_your_writes"]["samples_read_back"] > 0
        measured = [step for step in found["steps"] if not step["is_warm_up"]]
        assert len(measured) == (2 if name == "open" else 1)
        for step in measured:
            operations = step["operations"]
            assert set(operations) == {"predict", "add", "delete", "all"}
            assert operations["all"]["statuses"].keys() <= {"200", "201"}
            sums = [operations[one]["requests"] for one in ("predict", "add", "delete")]
            assert operations["all"]["requests"] == sum(sums)
            times = operations["predict"]["latency_ms"]
            assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["p99.9"] <= times["max"]
            assert len(step["client"]["processes"]) == 2
            if step["rate_asked"] is not None:
                assert operations["all"]["requests"] == step["rate_asked"] * 0.5
    assert (tmp_path / "open.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert adult_server.get("/model")[1]["n_samples"] == n_before


def test_what_cannot_be_done(
    adult_server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.txt").touch()
    for flags, part in (
        (("--rate", "5", "--concurrency", "5"), "give one of them"),
        (("--json", "there.txt"), "there.txt is there already"),
        (("--api-key-file", "none.key"), "none.key cannot be read"),
    ):
        assert part in refusal(capsys, adult_server.url, *flags)


def start(url: str, folder: Path, *flags: str) -> Process:
    """Begin a long load test; it sends when this returns."""
    command = ["load-test", url, "--duration", "120", "--warm-up", "0", *flags]
    process = started_cli(*command, cwd=folder, output=folder / "out.txt", errors=folder / "err.txt")

    def sends() -> bool:
        text = (folder / "err.txt").read_text()
        assert process.poll() is None, text
        return "..." in text

    wait_for(sends, "a request is sent", 120)
    return process


def children_of(process: Process) -> list[int]:
    pairs = [line.split() for line in output_of("ps", "-e", "-o", "pid=,ppid=").splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == process.pid]


def test_ctrl_c_leaves_nothing_behind(adult_server: Running, tmp_path: Path) -> None:
    process = start(adult_server.url, tmp_path, *CHANGING, "--rate", "50", "--processes", "2", "--rows", "schema")
    workers = children_of(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    err = (tmp_path / "err.txt").read_text()
    assert held_of(adult_server, subject_of(err)) == 0
    assert ("was stopped before its end" in err, "may be left" in err) == (True, False)
    assert "Read-your-writes held" in (tmp_path / "out.txt").read_text()
    assert len(workers) == 2
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.long
def test_a_worker_that_dies_is_told_and_leaves_nothing_behind(adult_server: Running, tmp_path: Path) -> None:
    process = start(adult_server.url, tmp_path, *CHANGING, "--rate", "50", "--processes", "2")
    os.kill(children_of(process)[0], signal.SIGKILL)
    assert process.wait(timeout=120) == 2
    err = (tmp_path / "err.txt").read_text()
    assert "of the load test has ended with code -9" in err.replace("\n", " ")
    assert held_of(adult_server, subject_of(err)) == 0


class Secured(Tls):
    """A server that is asked by TLS and with a key."""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return super().ask(method, path, body, **headers, **{"X-API-Key": "k" * 20})


def with_tls_and_a_key(folder: Path) -> tuple[str, ...]:
    (folder / "key").write_text("k" * 20)
    make_certificate(folder)
    return (*small_table(folder), "--ephemeral", "--api-key-file", "key", *TLS)


secured = module_server(with_tls_and_a_key, running=Secured)


TRUSTING = ("--ca-file", "cert.pem")
WITH_KEY = ("--api-key-file", "key")


@pytest.mark.long
def test_tls_and_a_key(secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(secured.folder)
    url = f"https://127.0.0.1:{secured.port}"
    flags = (*SHORT, *CHANGING, *TRUSTING, *WITH_KEY, "--rate", "40", "--fail-if", "errors>0")
    done = run_cli("load-test", url, *flags, cwd=secured.folder)
    assert done.returncode == 0, done.stderr
    assert secured.get("/model")[1]["n_samples"] == 60
    assert "k" * 20 not in done.stdout + done.stderr
    for part, arguments in {"GET /model answered 401": TRUSTING, "no server answers": WITH_KEY}.items():
        assert part in refusal(capsys, url, *arguments)


@pytest.mark.long
def test_a_server_that_is_killed_is_told(secured: Secured) -> None:
    flags = (*CHANGING, *TRUSTING, *WITH_KEY, "--concurrency", "4", "--timeout", "1")
    process = start(f"https://127.0.0.1:{secured.port}", secured.folder, *flags)
    secured.process.kill()
    secured.process.wait()
    assert process.wait(timeout=120) == 2
    err = (secured.folder / "err.txt").read_text().replace("\n", " ")
    parts = ("the test was not done to its end: the server at", "is gone", f"Delete the subject {subject_of(err)}")
    assert [text for text in parts if text not in err] == []
    assert "Traceback" not in err
    assert "Read-your-writes held" in (secured.folder / "out.txt").read_text()


@pytest.mark.parametrize("missing", ordinary(["httpx", "httpx2"], "httpx2"))
def test_the_example_is_short_and_works(adult_server: Running, tmp_path: Path, missing: str) -> None:
    example = ROOT / "examples" / "load_test.py"
    assert sum(bool(line.strip()) for line in example.read_text().splitlines()) <= 70
    n_before = adult_server.get("/model")[1]["n_samples"]
    hidden = tmp_path / f"{missing}.py"  # stands where the package would be found
    hidden.write_text("raise ImportError")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    told = output_of(sys.executable, example, adult_server.url, "40", "2", cwd=tmp_path, PYTHONPATH=path)
    assert re.search(r"^predict +\d+ requests +p50 +[\d.]+ ms", told, re.MULTILINE), told
    assert "answers older than an acknowledged change: 0" in told
    assert adult_server.get("/model")[1]["n_samples"] == n_before
