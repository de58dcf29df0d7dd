"""`oubli erase` against a server: what it reports, and that a run that was broken off does nothing twice."""

import csv
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.servers import module_server
from tests.serving import APP, Running, environment, run_cli, started_cli, wait_for

N_HELD, N_NAMED, BATCH = 200, 3000, 20
N_BATCHES = N_NAMED // BATCH


def with_people(folder: Path) -> tuple[str, ...]:
    """Some are h0, h1, ... to be erased, others the subjects s0 to s9, of 4 samples each."""
    people = [*((f"h{i}", "") for i in range(N_HELD)), *((f"k{i}", f"s{i % 10}") for i in range(40))]
    rows = ["no,who,age,y", *(f"{n},{s},{i % 50},{'yes' if i % 3 else 'no'}" for i, (n, s) in enumerate(people))]
    (folder / "data.csv").write_text("\n".join(rows) + "\n")
    return ("--data", "data.csv", "--target", "y", "--id", "no", "--subject", "who", "--n-estimators", "3")


server = module_server(with_people)


def erase(server: Running, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_cli("erase", "--url", server.url, *arguments, cwd=cwd)


def ledger(server: Running) -> list[dict[str, Any]]:
    """The entries of erasures."""
    entries = [entry for page in server.pages("/ledger", 1000) for entry in page["entries"]]
    return [entry for entry in entries if entry["type"] == "unlearned"]


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def broken_off(server: Running, folder: Path, n_batches: int, how: signal.Signals) -> tuple[int, str]:
    """Run the command until so many batches are in the journal, and send it a signal."""
    journal, output = folder / "ids.csv.report.csv.journal", folder / "output.txt"
    n_before = n_lines(journal)
    command = ["erase", "--url", server.url, "--file", "ids.csv", "--batch-size", str(BATCH)]
    process = started_cli(*command, cwd=folder, output=output, errors=output)

    def has_erased() -> bool:
        assert process.poll() is None, output.read_text()
        return n_lines(journal) >= n_before + n_batches

    wait_for(has_erased, "something is erased", 120, pause=0.002)
    process.send_signal(how)
    return process.wait(timeout=60), output.read_text()


def test_a_run_that_is_killed_and_interrupted_does_nothing_twice(server: Running, tmp_path: Path) -> None:
    names = [f"h{i // 15}" if i % 15 == 0 else f"x{i}" for i in range(N_NAMED)]
    (tmp_path / "ids.csv").write_text("id\n" + "\n".join(names) + "\n")
    report, journal = tmp_path / "ids.csv.report.csv", tmp_path / "ids.csv.report.csv.journal"
    n_before = len(ledger(server))

    assert broken_off(server, tmp_path, 4, signal.SIGKILL)[0] == -signal.SIGKILL
    # As if the answer to the last batch had been lost: the server knows it by its key.
    *kept, _ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(kept))
    code, said = broken_off(server, tmp_path, 4, signal.SIGINT)
    assert (code, "start the same command again to continue" in said) == (130, True), said
    command = ("--file", "ids.csv", "--batch-size", str(BATCH))
    done = erase(server, *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"named": N_NAMED, "held": N_HELD, "samples": N_HELD, "receipts": N_BATCHES}
    rows = list(csv.DictReader(report.read_text().splitlines()))
    assert [row["id"] for row in rows] == names
    assert {row["id"] for row in rows if row["held"] == "true"} == {f"h{i}" for i in range(N_HELD)}
    assert sum(int(row["samples"]) for row in rows) == N_HELD
    entries = ledger(server)[n_before:]
    assert len(entries) == N_BATCHES, "one for each batch, however often it was sent"
    for field in ("receipt", "deadline"):
        assert {row[field] for row in rows} == {entry[field] for entry in entries}
    assert sum(entry["unlearned"] for entry in entries) == N_HELD
    assert server.get("/model")[1]["n_samples"] == 40

    again = erase(server, *command, cwd=tmp_path)
    assert (again.returncode, again.stdout, "finished before" in again.stderr) == (0, done.stdout, True)
    assert len(ledger(server)) == n_before + N_BATCHES
    (tmp_path / "ids.csv").write_text("id\nk1\n" + "\n".join(names) + "\n")
    other = erase(server, *command, cwd=tmp_path)
    assert (other.returncode, "another list of names" in other.stderr) == (2, True)
    assert server.get("/samples/k1")[0] == 200


def test_subjects_from_standard_input_are_reported_in_json(server: Running, tmp_path: Path) -> None:
    command = [*APP, "erase", "--url", server.url, "--file", "-", "--subjects", "--report", "report.json"]
    options: dict[str, Any] = {"env": environment(), "capture_output": True, "text": True, "check": False}
    done = subprocess.run(command, cwd=tmp_path, input="s1\nnobody\ns2\n", **options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"named": 3, "held": 2, "samples": 8, "receipts": 1}
    rows = [json.loads(line) for line in (tmp_path / "report.json").read_text().splitlines()]
    told = [(row["subject"], row["held"], row["samples"]) for row in rows]
    assert told == [("s1", True, 4), ("nobody", False, 0), ("s2", True, 4)]
    assert rows[0]["receipt"] == rows[1]["receipt"] == ledger(server)[-1]["receipt"]


def test_a_list_of_which_nothing_is_held_has_an_exit_code_of_its_own(server: Running, tmp_path: Path) -> None:
    """It may be the wrong column, or ids in place of subjects."""
    (tmp_path / "left.txt").write_text("nobody\nelse\n")
    for _ in range(2):  # also when it is only told again
        done = erase(server, "--file", "left.txt", cwd=tmp_path)
        assert (done.returncode, "was held" in done.stderr) == (3, True), done.stderr
        assert json.loads(done.stdout) == {"named": 2, "held": 0, "samples": 0, "receipts": 1}


def test_what_is_wrong_is_told_before_anything_is_sent(server: Running, tmp_path: Path) -> None:
    n_before = len(ledger(server))
    (tmp_path / "ids.csv").write_text("id\nk3\n" + "y" * 300 + "\n")
    (tmp_path / "emails.csv").write_text("email\nk3\n")
    for arguments, said in (
        (("--file", "ids.csv", "--batch-size", "1"), "line 3, field 'id'"),
        (("--file", "-"), "--report FILE"),
        (("--file", "nothing.csv"), "cannot be read"),
        (("--file", "emails.csv"), "emails.csv, line 1: this is a header"),
    ):
        done = erase(server, *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True), done.stderr
    assert len(ledger(server)) == n_before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["emails.csv", "ids.csv"]
