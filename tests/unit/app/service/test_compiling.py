"""A server answers while kernels are compiled, and nothing is compiled or loaded on its event loop."""

import json
import logging
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import config

import oubli.core.jit.policy
from oubli.app.progress import Progress, silent
from oubli.app.service import compiling
from oubli.app.service.compiling import VARIABLE, load_beside, prepare_kernels, use_kernel_cache
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.estimators import KINDS
from oubli.core.jit.policy import NotKeptError
from oubli.core.warmup import FIT_STEPS, Usage
from tests.serving import Running, serving, spawned, wait_for

GUARDED = (sys.executable, "-m", "tests.unit.app.http.guarded_server")
LABELS: dict[str, list[Any]] = {"string": ["no", "yes", "maybe"], "integer": [3, 1, 2], "number": [0.5, 1.25, -2.0]}
LABELS["boolean"] = [False, True, True]


def schema_of(task: str, label_type: str, dtype: str) -> Schema:
    columns = (Column("x", ColumnType.NUMERIC, dtype), Column("c", ColumnType.CATEGORICAL))
    return Schema(columns, Task(task), LabelType(label_type), label_name="y", named=True)


def rows(n: int, first: int = 0) -> list[list[Any]]:
    return [[i / 7, f"value {i % 4}"] for i in range(first, first + n)]


def labels(label_type: str, n: int, n_labels: int = 2) -> list[Any]:
    return [LABELS[label_type][(i * i // 3) % n_labels] for i in range(n)]


def ask(server: Running, method: str, path: str, body: Any = None, *, expect: int | tuple[int, ...] = 200) -> Any:
    status, answer = server.ask(method, path, body)
    assert status in (expect if isinstance(expect, tuple) else (expect,)), (method, path, status, answer)
    return answer


def finish(server: Running, job: dict[str, Any]) -> None:
    place = f"/jobs/{job['id']}"
    wait_for(lambda: ask(server, "GET", place)["status"] in ("succeeded", "failed"), "a job ends", 900)
    job = ask(server, "GET", place)
    assert job["status"] == "succeeded", job


def upload(server: Running, path: Path) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{server.url}/snapshot/file", path.read_bytes(), headers, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=900) as answer:  # noqa: S310
        assert answer.status == 200


def walk(server: Running, kind: str, task: str, label_type: str, name: str, *, influence: bool = True) -> None:
    """Ask for everything that reads or changes the model, first in ways that are answered on the event loop."""
    y = labels(label_type, 40)

    def add(first: int, values: list[Any]) -> None:
        each = [
            {"id": f"{name}-{first + i}", "features": row, "label": label, "subject": f"s{i % 3}"}
            for i, (row, label) in enumerate(zip(rows(len(values), first), values, strict=True))
        ]
        ask(server, "POST", "/samples", {"samples": each}, expect=201)

    add(0, y[:1])
    ask(server, "POST", "/predict", {"instances": rows(1)})
    add(1, y[:30])
    add(31, LABELS[label_type][2:])
    wide = {"id": f"{name}-wide", "features": [1e30, "a new value"], "label": LABELS[label_type][2]}
    ask(server, "POST", "/samples", {"samples": [wide]}, expect=201)
    for instances in (rows(1), rows(2), rows(40), [[None, None], [3, "unknown"]]):
        ask(server, "POST", "/predict", {"instances": instances})
    for i in range(2, 9):
        ask(server, "DELETE", f"/samples/{name}-{i}")
        ask(server, "POST", "/predict", {"instances": rows(1)})
    ask(server, "PUT", f"/samples/{name}-9", {"features": [9.5, "value 1"], "label": y[1]})
    ask(server, "POST", "/samples/batch-delete", {"ids": [f"{name}-{i}" for i in range(10, 14)]})
    ask(server, "POST", "/samples/batch-delete", {"subjects": ["s2"]})
    ask(server, "GET", f"/samples/{name}-16")
    for path in ("/samples", "/model", "/erasures", "/ledger", "/snapshot", "/ledger/keys", "/v2", "/readyz"):
        server.ask("GET", path)
    for path in ("/model/verify", "/model/scrub"):
        finish(server, ask(server, "POST", path, expect=202))
    add(50, y[:3])
    change = {"columns": 2, "target": 1.5 if task == "regression" else None}
    for content in ({"instances": rows(1)}, {"instances": rows(40)}, {"instances": rows(2), "change": change}):
        ask(server, "POST", "/explain", content)
    if influence and kind != "tree":
        for _ in range(2):
            answer = ask(server, "POST", "/influence", {"instances": rows(2), "labels": y[:2]}, expect=(200, 202))
            if "status" in answer:
                finish(server, answer)
    add(60, y[:2])
    ask(server, "POST", "/predict", {"instances": rows(3)})


@contextmanager
def guarded(folder: Path, schema: Schema, *flags: str, **variables: str) -> Iterator[Running]:
    """A server that starts empty; nothing may be compiled or loaded on its event loop until the end."""
    (folder / "schema.json").write_text(json.dumps(schema.to_dict()))
    notes = folder / "guard.txt"
    notes.write_text("")
    flags = ("--schema", "schema.json", *flags)
    with serving(*flags, cwd=folder, command=GUARDED, start=spawned, GUARD_NOTES=str(notes), **variables) as server:
        yield server
        assert notes.read_text() == ""
    assert notes.read_text() == ""


def test_no_route_compiles_or_loads_on_the_event_loop(tmp_path: Path) -> None:
    with guarded(tmp_path, schema_of("classification", "string", "float32"), "--n-estimators", "3") as server:
        walk(server, "forest", "classification", "string", "forest", influence=False)
        finish(server, ask(server, "POST", "/model/fit", {"parameters": {"n_estimators": 2}}, expect=202))
        walk(server, "forest", "classification", "string", "fitted", influence=False)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_an_empty_cache_nothing_is_compiled_on_the_event_loop_by_any_kind_and_label(tmp_path, dtype):
    """Fits of every kind, restores of every kind, task and type of labels, and all that can be asked for after each."""
    tasks = [("classification", label_type) for label_type in LABELS] + [("regression", "number")]
    cache = str(tmp_path / "kernels")
    schema = schema_of("classification", "integer", dtype)
    with guarded(tmp_path, schema, "--n-estimators", "3", NUMBA_CACHE_DIR=cache) as server:
        walk(server, "forest", "classification", "integer", "first")
        for kind in ("tree", "online-boosting", "incremental-boosting", "forest"):
            body = {"kind": kind, "parameters": {} if kind == "tree" else {"n_estimators": 3}}
            finish(server, ask(server, "POST", "/model/fit", body, expect=202))
            walk(server, kind, "classification", "integer", f"fit-{kind}")
        for (kind, own_task), estimator in KINDS.items():
            for task, label_type in (one for one in tasks if one[0] == own_task.value):
                model: Any = estimator(**({} if kind == "tree" else {"n_estimators": 3, "random_state": 0}))
                model.fit(rows(40), labels(label_type, 40), schema=schema_of(task, label_type, dtype))
                model.save(tmp_path / "model")
                upload(server, tmp_path / "model")
                walk(server, kind, task, label_type, f"{kind}-{task}-{label_type}")


# What gets kernels ready


class Elsewhere:
    """Processes that compile: what is waited for is there at once."""

    is_over = False

    def __init__(self, done: list[Any], exit_code: int = 0) -> None:
        self.done, self.exit_code = done, exit_code

    def wait(self, n_steps: int | None, report: Any) -> int:
        self.done.append(f"wait for {n_steps}")
        if report is not None:
            report(1, 3)
        return self.exit_code


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done to have kernels ready, in order; only those of a fit are kept."""
    monkeypatch.setattr(compiling, "_prepared", set())
    done: list[Any] = []

    def do(usage: Usage, *, steps: Any) -> None:
        assert usage == USAGE
        compiles = not getattr(oubli.core.jit.policy._here, "only_kept", False)
        done.append(("compile" if compiles else "load") + f" {len(steps)}")
        if not compiles and steps != FIT_STEPS:
            raise NotKeptError("a kernel")

    def begin(usage: Usage, *, niceness: int) -> Elsewhere:
        done.append((usage, niceness))
        return Elsewhere(done)

    monkeypatch.setattr(compiling, "do", do)
    monkeypatch.setattr(compiling, "compilation_of", begin)
    return done


USAGE = Usage("model", "incremental-boosting", "regression", "float64", '{"quantization": null}')
SCHEMA = schema_of("regression", "number", "float64")
PARAMETERS = {"quantization": None, "n_estimators": 7}


def prepare(progress: Progress = silent, part: compiling.Part = "model") -> None:
    prepare_kernels("incremental-boosting", SCHEMA, PARAMETERS, progress, part=part)


def test_what_is_not_kept_is_compiled_by_other_processes_once(done: list[Any]) -> None:
    for _ in range(2):
        prepare(lambda *told: done.append(told))
    assert done == ["load 9", (USAGE, 10), "wait for None", ("compiling the kernels", 1, 3), "compile 9"]


def test_who_needs_less_waits_for_less_and_the_rest_is_compiled_by_the_same_processes(done: list[Any]) -> None:
    for _ in range(2):
        prepare(part="fit")
        prepare(part="predictions")
    prepare()
    for part in ("model", "fit", "predictions"):
        prepare(part=part)
    of_predictions = ["load 2", "load 4", (USAGE, 10), "wait for 4", "compile 4"]
    assert done == [*of_predictions, "load 9", (USAGE, 10), "wait for None", "compile 9"]


@pytest.mark.parametrize("fault", ["exit code 7", "OSError", "not writable"])
def test_what_other_processes_cannot_do_is_left_to_this_one(monkeypatch, done, caplog, fault):
    def begin(*_: Any, **__: Any) -> Elsewhere:
        if fault == "OSError":
            raise OSError
        return Elsewhere(done, 7)

    monkeypatch.setattr(compiling, "compilation_of", begin)
    monkeypatch.setattr(compiling, "is_writable", lambda: fault != "not writable")
    prepare()
    assert [done[0], done[-1]] == ["load 9", "compile 9"]
    assert ("answers are slow meanwhile" in caplog.text) is (fault != "not writable")


def test_a_wrong_guess_of_what_will_be_learned_does_no_harm(monkeypatch, caplog):
    monkeypatch.setattr(compiling, "_prepared", set())
    load_beside("tree", Task.REGRESSION, np.float32, part="fit").join()  # there is none
    assert compiling._prepared == set()
    assert not [one for one in caplog.records if one.levelno > logging.DEBUG]


# --- the directory of compiled kernels: private, and never needed


@pytest.mark.parametrize("home", ["cache", "file"])
def test_the_directory_is_private_and_temporary_without_a_usable_home(monkeypatch, tmp_path, home):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directory = use_kernel_cache()
    assert os.environ[VARIABLE] == str(directory), "it is named to Numba"
    assert (directory.is_dir(), directory.stat().st_mode & 0o077) == (True, 0)
    assert (directory.parent == tmp_path) is (home == "file")
