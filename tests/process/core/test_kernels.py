"""The kernels in every way of running them: from the cache, with bounds checks, interpreted."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import config

from tests.process.core import smoke
from tests.serving import output_of

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
    return output_of(sys.executable, *arguments, **environment)


# The cache and the options


@compiled
def test_every_kernel_releases_the_lock_is_cached_and_keeps_to_the_order_of_arithmetic() -> None:
    names: dict[str, Any] = {}
    exec(DISPATCHERS, names)  # noqa: S102
    dispatchers = names["dispatchers"]()
    assert len(dispatchers) > 60
    for name, dispatcher in dispatchers.items():
        chosen = dispatcher.targetoptions
        assert chosen.get("nogil") is True, name
        assert not {"parallel", "fastmath"} & {option for option, value in chosen.items() if value}, name


@compiled
def test_a_second_process_compiles_nothing() -> None:
    work = """
import numpy as np
from oubli.core.warmup import call_kernels
from tests.process.core import smoke

call_kernels("classification", np.float64)
call_kernels("regression", np.float32)
call_kernels("classification", np.float32, kind="tree")
smoke.run()
"""
    exec(work, {})  # noqa: S102
    script = f"""{DISPATCHERS}{work}
stats = {{name: dispatcher.stats for name, dispatcher in dispatchers().items()}}
print(json.dumps({{
    "compiled": sorted(name for name, found in stats.items() if found.cache_misses),
    "loaded": sorted(name for name, found in stats.items() if found.cache_hits),
    "imported_to_compile": sorted(sys.modules.keys() & {{"numba.np.linalg", "numba.typed.dictimpl"}}),
}}))
"""
    found = json.loads(run_python("-c", script))
    assert found["compiled"] == found["imported_to_compile"] == []
    kernels = {f"oubli.core.{name}" for name in ("forest.update.update_samples", "forest.update.resolve")}
    assert kernels | {"oubli.core.tree.update.run_updates"} <= set(found["loaded"])


# Ways of running


@pytest.mark.long
def test_interpreted_kernels_do_the_same() -> None:
    assert run_python("-m", "tests.process.core.smoke", NUMBA_DISABLE_JIT="1") == "\n\n".join(smoke.run())


def test_a_tree_of_many_classes_and_categories_has_the_room_that_it_uses() -> None:
    """Interpreted, a kernel that writes beyond its working space raises IndexError."""
    work = """
import numpy as np
from oubli.core import DynamicTreeClassifier

labels = np.arange(24) % 12
model = DynamicTreeClassifier(max_depth=2).fit(labels[:, np.newaxis], labels, categorical_features=[0])
told = model.digest()
"""
    names: dict[str, Any] = {}
    exec(work, names)  # noqa: S102
    assert run_python("-c", f"{work}print(told)", NUMBA_DISABLE_JIT="1") == names["told"] + "\n"


@compiled
@pytest.mark.long
def test_kernels_stay_within_bounds(tmp_path: Path) -> None:
    """The cache does not know that bounds are to be checked: it has to be one of its own.

    That an index beyond an array raises an error then is tested in `tests/unit/core/jit/test_linking.py`.
    """
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert run_python("-m", "tests.process.core.smoke", **environment) == "\n\n".join(smoke.run())
    told = run_python("-m", "tests.stress", "--minutes", "1", "--patience", "900", "--only", "forest", **environment)
    assert told.endswith("nothing was wrong\n")
