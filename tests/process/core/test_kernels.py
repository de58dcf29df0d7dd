"""The kernels in every way of running them: from the cache, with bounds checks, interpreted, in threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.warmup import call_kernels
from tests.process.core import smoke

ROOT = Path(__file__).resolve().parents[3]

compiled = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

# Finds every compiled function of `core`.
DISPATCHERS = """
import importlib, json, pkgutil, sys

import oubli.core

for module in pkgutil.walk_packages(oubli.core.__path__, "oubli.core."):
    importlib.import_module(module.name)

def dispatchers():
    return {
        f"{value.py_func.__module__}.{value.py_func.__name__}": value
        for name, module in list(sys.modules.items()) if name.startswith("oubli.core")
        for value in vars(module).values() if hasattr(value, "py_func")
    }
"""


def run_python(*arguments: str, **environment: str) -> str:
    """What another Python process prints."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# The cache and the options


@compiled
def test_every_kernel_releases_the_lock_is_cached_and_keeps_to_the_order_of_arithmetic() -> None:
    script = f"""{DISPATCHERS}
print(json.dumps({{name: dispatcher.targetoptions for name, dispatcher in dispatchers().items()}}))
"""
    options = json.loads(run_python("-c", script))
    assert len(options) > 60
    for name, chosen in options.items():
        assert chosen.get("nogil") is True, name
        assert not chosen.get("parallel"), name
        assert not chosen.get("fastmath"), name


@compiled
def test_a_second_process_compiles_nothing() -> None:
    call_kernels("classification", np.float64)
    call_kernels("regression", np.float32)
    call_kernels("classification", np.float32, kind="tree")
    smoke.run()
    script = f"""{DISPATCHERS}
import numpy as np
from oubli.core.warmup import call_kernels
from tests.process.core import smoke

call_kernels("classification", np.float64)
call_kernels("regression", np.float32)
call_kernels("classification", np.float32, kind="tree")
smoke.run()
stats = {{name: dispatcher.stats for name, dispatcher in dispatchers().items()}}
print(json.dumps({{
    "compiled": sorted(name for name, found in stats.items() if found.cache_misses),
    "loaded": sorted(name for name, found in stats.items() if found.cache_hits),
    "imported_to_compile": sorted(sys.modules.keys() & {{"numba.np.linalg", "numba.typed.dictimpl"}}),
}}))
"""
    found = json.loads(run_python("-c", script))
    assert found["compiled"] == found["imported_to_compile"] == []
    kernels = {
        "oubli.core.forest.update.update_samples",
        "oubli.core.forest.update.resolve",
        "oubli.core.tree.update.run_updates",
    }
    assert kernels <= set(found["loaded"])


# Ways of running


def test_interpreted_kernels_do_the_same() -> None:
    assert run_python("-m", "tests.process.core.smoke", NUMBA_DISABLE_JIT="1") == "\n\n".join(smoke.run())


@compiled
@pytest.mark.long
def test_kernels_stay_within_bounds(tmp_path: Path) -> None:
    """The cache does not know that bounds are to be checked: it has to be one of its own."""
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert run_python("-m", "tests.process.core.smoke", **environment) == "\n\n".join(smoke.run())
    told = run_python("-m", "tests.stress", "--minutes", "1", "--patience", "900", "--only", "forest", **environment)
    assert told.endswith("nothing was wrong\n")
    control = tmp_path / "control.py"
    control.write_text(
        "import numpy as np\n"
        "from oubli.core.jit.policy import kernel\n"
        "@kernel\n"
        "def read(values, i):\n"
        "    return values[i]\n"
        "try:\n"
        "    read(np.zeros(3), 1_000_000)\n"
        "except IndexError:\n"
        "    print('checked', end='')\n"
    )
    assert run_python(str(control), **environment) == "checked"


# Threads


def forest(task: str = "classification", n: int = 400) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    if task == "regression":
        model: Any = DynamicForestRegressor(n_estimators=8, random_state=1)
        return model.fit(X, X[:, 0].astype(np.float64)), X
    return DynamicForestClassifier(n_estimators=8, random_state=1).fit(X, X[:, 0] > 0), X


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """Start all at the same moment and give back their results."""
    barrier = threading.Barrier(len(works))

    def start(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(start, works))


@compiled
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_frozen_queries_while_other_threads_read(task: str) -> None:
    model, X = forest(task)
    for i in range(0, 60, 2):
        model.delete(str(i))
    tags = model.n_lazy_tags_
    assert tags
    expected = model.copy().query(X)
    ids = model.samples_.ids()

    def query() -> list[Any]:
        return [model.query(X[i : i + 7], frozen=True).labels.tolist() for i in range(0, 399, 7)]

    def copy() -> set[str]:
        return {model.copy().digest() for _ in range(6)}

    def look() -> bool:
        held = [model.samples_.get(name) for name in ids]
        return len(held) == model.n_samples_ and model.n_lazy_tags_ == tags and model.nbytes_ > 0

    answers, digests, *looked = in_threads(query, copy, look, look)
    assert [label for part in answers for label in part] == expected.labels[:399].tolist()
    assert all(looked)
    assert model.n_lazy_tags_ == tags
    assert digests == {model.digest()}
    assert model.verify().ok


@compiled
def test_queries_in_many_threads_when_there_are_no_tags() -> None:
    model, X = forest()
    expected = model.query(X).probabilities
    queries = [lambda: model.query(X, frozen=True).probabilities, lambda: model.predict_proba(X)]
    for result in in_threads(*queries * 4):
        assert np.array_equal(result, expected)


@compiled
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_copies_change_independently_in_many_threads(task: str) -> None:
    model, X = forest(task)
    digest = model.digest()

    def change(number: int) -> Callable[[], str]:
        mine = model.copy()

        def work() -> str:
            for i in range(number, 120, 4):
                mine.delete(str(i))
                mine.predict(X[i : i + 3])
                (name,) = mine.add(X[i : i + 1] + 1.0, [float(i)] if task == "regression" else [i % 2 == 0])
                mine.resolve(5)
                if i % 3:
                    mine.delete(name)
            mine.check_invariants()
            return str(mine.digest())

        return work

    together = in_threads(*(change(number) for number in range(4)))
    alone = [change(number)() for number in range(4)]
    assert together == alone
    assert len(set(together)) == 4
    assert model.digest() == digest
