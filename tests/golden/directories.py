"""Writes a golden data directory with the code of some commit: see README.md beside this file.

    git archive COMMIT | tar -x -C /tmp/old
    python -m tests.golden.directories NAME --code /tmp/old --kind forest [--task regression] [--stop TERM]

It starts the server of that checkout, changes the model over HTTP, notes what the server answers in the end, ends the
server and packs the directory with the notes. It uses what every version serves.
"""

import argparse
import json
import signal
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.serving import Running, serving, spawned

PLACE = Path(__file__).resolve().parent / "directories"
N_ROWS = 40
ASKED = [[0.5, "red", 30], [3.25, "blue", None], [None, "green", 61], [4.5, None, 18]]
CASE = "0f5c1d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f"


def label(i: int, task: str) -> Any:
    return (i * 53 % 89) / 16 - 2.0 if task == "regression" else ("yes", "no", "unsure")[(i * 7 + i // 5) % 3]


def features(i: int) -> list[Any]:
    """A number, a category and a whole number; some are missing. From integers only."""
    number = None if i % 11 == 3 else (i * 37 % 101) / 16
    return [number, ("red", "green", "blue", None)[i * 7 // 3 % 4], None if i % 13 == 5 else 18 + i * 29 % 60]


def sample(i: int, task: str, **more: Any) -> dict[str, Any]:
    return {"id": f"sample-{i}", "features": features(i), "label": label(i, task), **more}


def rows(task: str) -> str:
    lines = ["id,person,number,colour,age,label"]
    for i in range(N_ROWS):
        cells = [f"sample-{i}", f"person-{i // 2}", *features(i), label(i, task)]
        lines.append(",".join("" if cell is None else str(cell) for cell in cells))
    return "\n".join(lines) + "\n"


def ask(server: Running, method: str, path: str, body: Any = None) -> Any:
    """Return the answer to a request that must not be refused."""
    status, answer = server.ask(method, path, body)
    if status >= 400:
        raise SystemExit(f"{method} {path}: {status} {answer}")
    return answer


def optional(server: Running, path: str) -> Any:
    """Return what a route answers, or None where the version has no such route."""
    status, answer = server.get(path)
    return answer if status == 200 else None


def change(server: Running, task: str) -> None:
    """Give the model a history, the first half of it in a snapshot, the second in the journal, where there is one."""
    ask(server, "POST", "/samples", {"samples": [sample(i, task, subject="person-new") for i in (60, 61)]})
    ask(server, "PUT", "/samples/sample-4", {"features": features(80), "label": label(80, task)})
    ask(server, "DELETE", f"/samples/sample-5?ref={CASE}")
    ask(server, "DELETE", "/samples?subject=person-3")
    ask(server, "POST", "/snapshot")
    body = json.dumps({"samples": [sample(62, task)]}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": "golden"}
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/samples", body, headers)).close()  # noqa: S310
    expiring = sample(63, task, subject="person-new")
    if optional(server, "/ledger") is not None:  # expiry and the ledger came together
        expiring["expires_at"] = "2999-12-31T00:00:00Z"
    ask(server, "POST", "/samples", {"samples": [expiring]})
    moved = {"features": features(81), "label": label(81, task), "subject": "moved"}
    ask(server, "PUT", "/samples/sample-8", moved)
    ask(server, "POST", "/samples/batch-delete", {"ids": ["sample-10", "sample-11", "sample-60"]})


def notes(server: Running, kind: str, task: str) -> dict[str, Any]:
    """What the next version must give again; without times."""
    model = ask(server, "GET", "/model")
    ledger = optional(server, "/ledger?limit=1000")
    keys = optional(server, "/ledger/keys") or optional(server, "/keys")
    return {
        "kind": kind, "task": task, "model_version": model["model_version"], "parameters": model["parameters"],
        "samples": ask(server, "GET", "/samples?limit=1000")["samples"], "asked": ASKED,
        "answered": ask(server, "POST", "/predict", {"instances": ASKED}),
        "ledger": [] if ledger is None else ledger["entries"], "case": CASE,
        "erasures": [] if ledger is None else ask(server, "GET", f"/erasures?ref={CASE}")["erasures"],
        "keys": [] if keys is None else keys["keys"],
        "erased": ["sample-5", "sample-6", "sample-7", "sample-10", "sample-11", "sample-60"],
    }  # fmt: skip


def pack(name: str, folder: Path, document: dict[str, Any]) -> Path:
    """Write the directory and the notes, without owners and times."""
    PLACE.mkdir(exist_ok=True)
    path = PLACE / f"{name}.tar.xz"
    (folder / "notes.json").write_text(json.dumps(document, indent=1))
    files = [file for file in sorted((folder / "data").rglob("*")) if file.name not in ("lock", "journal-reserve")]
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in [*filter(Path.is_file, files), folder / "notes.json"]:
            entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
            entry.size, entry.mode = file.stat().st_size, 0o600
            with file.open("rb") as content:
                archive.addfile(entry, content)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--kind", default="forest")
    parser.add_argument("--task", default="classification")
    parser.add_argument("--stop", default="KILL", help="KILL leaves changes in the journal, TERM writes a snapshot")
    chosen = parser.parse_args()
    code = chosen.code.resolve()
    module = "oubli" if (code / "oubli" / "__main__.py").is_file() else "app"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "people.csv").write_text(rows(chosen.task))
        flags = ["--data", "people.csv", "--target", "label", "--id", "id", "--subject", "person", "--data-dir", "data"]
        flags += ["--task", chosen.task, "--model", chosen.kind, "--random-state", "5"]
        flags += [] if chosen.kind == "tree" else ["--n-estimators", "3"]
        command = (sys.executable, "-m", module)
        with serving(*flags, cwd=folder, command=command, start=spawned, PYTHONPATH=str(code)) as server:
            change(server, chosen.task)
            document = notes(server, chosen.kind, chosen.task)
            server.stop(signal.Signals[f"SIG{chosen.stop}"])
        path = pack(chosen.name, folder, document)
        print(f"{path.name}: {path.stat().st_size} bytes, {len(document['samples'])} samples")  # noqa: T201


if __name__ == "__main__":
    main()
