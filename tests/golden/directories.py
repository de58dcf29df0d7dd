"""Writes a golden data directory with the code of some commit: see README.md beside this file.

    git archive COMMIT | tar -x -C /tmp/old
    python tests/golden/directories.py NAME --code /tmp/old --kind forest [--task regression] [--stop TERM]

It starts the server of that checkout, changes the model over HTTP, notes what the server answers in the end, ends the
server and packs the directory with the notes. It uses the standard library only, and what every version serves.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().parent / "directories"
N_ROWS = 40
ASKED = [[0.5, "red", 30], [3.25, "blue", None], [None, "green", 61], [4.5, None, 18]]
CASE = "0f5c1d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f"
SECONDS = 900  # for an empty kernel cache


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


class Server:
    """A server of the checkout, in a folder of its own."""

    def __init__(self, code: Path, folder: Path, flags: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        module = "oubli" if (code / "oubli" / "__main__.py").is_file() else "app"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "serve", "--port", str(port), *flags],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(code)},
        )
        deadline = time.monotonic() + SECONDS
        while self.ask("GET", "/readyz", refused=True)[0] != 200:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit("the server is not ready")
            time.sleep(0.2)

    def ask(self, method: str, path: str, body: Any = None, *, refused: bool = False, **headers: str) -> Any:
        """Send a request; return status and answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **{name.replace("_", "-"): it for name, it in headers.items()}}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if refused:
                return error.code, None
            raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from None
        except OSError:
            if refused:
                return 0, None
            raise

    def optional(self, path: str) -> Any:
        """Return what a route answers, or None where the version has no such route."""
        return self.ask("GET", path, refused=True)[1]


def change(server: Server, task: str) -> None:
    """Give the model a history, the first half of it in a snapshot, the second in the journal, where there is one."""
    server.ask("POST", "/samples", {"samples": [sample(i, task, subject="person-new") for i in (60, 61)]})
    server.ask("PUT", "/samples/sample-4", {"features": features(80), "label": label(80, task)})
    server.ask("DELETE", f"/samples/sample-5?ref={CASE}")
    server.ask("DELETE", "/samples?subject=person-3")
    server.ask("POST", "/snapshot")
    server.ask("POST", "/samples", {"samples": [sample(62, task)]}, Idempotency_Key="golden")
    expiring = sample(63, task, subject="person-new")
    if server.optional("/ledger") is not None:  # expiry and the ledger came together
        expiring["expires_at"] = "2999-12-31T00:00:00Z"
    server.ask("POST", "/samples", {"samples": [expiring]})
    server.ask("PUT", "/samples/sample-8", {"features": features(81), "label": label(81, task), "subject": "moved"})
    server.ask("POST", "/samples/batch-delete", {"ids": ["sample-10", "sample-11", "sample-60"]})


def notes(server: Server, kind: str, task: str) -> dict[str, Any]:
    """What the next version must give again; without times."""
    model = server.ask("GET", "/model")[1]
    held = server.ask("GET", "/samples?limit=1000")[1]
    ledger = server.optional("/ledger?limit=1000")
    keys = server.optional("/ledger/keys") or server.optional("/keys")
    return {
        "kind": kind,
        "task": task,
        "model_version": model["model_version"],
        "parameters": model["parameters"],
        "samples": held["samples"],
        "asked": ASKED,
        "answered": server.ask("POST", "/predict", {"instances": ASKED})[1],
        "ledger": [] if ledger is None else ledger["entries"],
        "case": CASE,
        "erasures": [] if ledger is None else server.ask("GET", f"/erasures?ref={CASE}")[1]["erasures"],
        "keys": [] if keys is None else keys["keys"],
        "erased": ["sample-5", "sample-6", "sample-7", "sample-10", "sample-11", "sample-60"],
    }


def pack(name: str, folder: Path, document: dict[str, Any]) -> Path:
    """Write the directory and the notes, without owners and times."""
    PLACE.mkdir(exist_ok=True)
    path = PLACE / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted((folder / "data").rglob("*")):
            if file.is_file() and file.name not in ("lock", "journal-reserve"):
                entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
                entry.size, entry.mode = file.stat().st_size, 0o600
                with file.open("rb") as content:
                    archive.addfile(entry, content)
        content_of_notes = json.dumps(document, indent=1).encode()
        entry = tarfile.TarInfo("notes.json")
        entry.size = len(content_of_notes)
        archive.addfile(entry, io.BytesIO(content_of_notes))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--kind", default="forest")
    parser.add_argument("--task", default="classification")
    parser.add_argument("--stop", default="KILL", help="KILL leaves changes in the journal, TERM writes a snapshot")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "people.csv").write_text(rows(chosen.task))
        flags = ["--data", "people.csv", "--target", "label", "--id", "id", "--subject", "person", "--data-dir", "data"]
        flags += ["--task", chosen.task, "--model", chosen.kind, "--random-state", "5"]
        flags += [] if chosen.kind == "tree" else ["--n-estimators", "3"]
        server = Server(chosen.code.resolve(), folder, flags)
        try:
            change(server, chosen.task)
            document = notes(server, chosen.kind, chosen.task)
        finally:
            server.process.send_signal(signal.Signals[f"SIG{chosen.stop}"])
            server.process.wait()
        path = pack(chosen.name, folder, document)
        print(f"{path.name}: {path.stat().st_size} bytes, {len(document['samples'])} samples")  # noqa: T201


if __name__ == "__main__":
    main()
