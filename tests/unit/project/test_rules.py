"""The rules of the house, checked where a reviewer would have to remember them."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import imported, nodes, parsed
from tests.serving import ROOT, output_of
from tests.tiers import SLOW

CORE = sorted((ROOT / "core").rglob("*.py"))
CODE = sorted(path for package in ("core", "app", "oubli") for path in (ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_importing_core_loads_no_service_and_no_scikit_learn() -> None:
    unwanted = ("oubli.app", "fastapi", "pydantic", "sklearn", "pandas", "pyarrow")
    script = f"import sys, oubli; print([name for name in {unwanted} if name in sys.modules])"
    assert output_of(sys.executable, "-c", script) == "[]\n"


def test_every_kernel_goes_through_the_one_decorator() -> None:
    users = {name(path) for path in CODE if any(module.split(".")[0] == "numba" for module in imported(nodes(path)))}
    # Decorators and cache, other processes that compile, calls of the C library, instructions of the processor.
    assert users == {f"core/jit/{name}.py" for name in ("policy", "linking", "compilation", "crew", "aligned")}


@pytest.mark.parametrize("option", ["parallel", "fastmath"])
def test_no_compiler_option_that_breaks_exactness_or_threads(option: str) -> None:
    for path in CODE:
        for node in nodes(path):
            assert not isinstance(node, ast.keyword) or node.arg != option, f"{name(path)}:{node.value.lineno}"


@pytest.mark.parametrize("module", ["pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"])
def test_nothing_reads_a_format_that_can_run_code(module: str) -> None:
    # What the kernel cache holds is run, in whatever format it is kept.
    allowed = ["core/jit/policy.py"] if module == "pickle" else []
    assert [name(path) for path in CODE if module in set(imported(nodes(path)))] == allowed


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "requirements-benchmarks.lock"])
def test_lock_files_hold_exact_versions_with_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    joined = text.replace(" \\\n    --hash=", " --hash=")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    assert len(lines) > 20
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [^-]+)?( --hash=sha256:[0-9a-f]{64})+", line), line[:100]
    assert not any(part in text for part in ("://", "index"))


def test_the_locks_agree() -> None:
    def versions(lock: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9-]+)==([\w.]+)", (ROOT / lock).read_text(), re.MULTILINE))

    run, dev = versions("requirements.lock"), versions("requirements-dev.lock")
    assert {package: dev[package] for package in run if package in dev} == {p: v for p, v in run.items() if p in dev}


# Names that the language gives named tuples, private names of libraries that have no public ones, and what a class sets
# of an object that it has just made.
PUBLIC_ALL_THE_SAME = {"_asdict", "_fields", "_make", "_replace"}
LINKING = {"_module_pass_manager", "_check_llvm_bugs", "_get_module_for_linking", "_linking_libraries", "_reload_init"}
ALLOWED = {
    "core/influence/readers/from_scikit_learn.py": {"_bin_mapper", "_predictors", "_preprocess_X"},
    "core/jit/linking.py": LINKING,
    "core/jit/policy.py": {"_cache", "_defn", "_rebuild", "_reduce"},
    "oubli/api/base.py": {"_content"},
    "oubli/client/load/worker.py": {"_exit"},
}


def test_no_object_asks_another_for_a_private_attribute() -> None:
    """Take what is needed as an argument, or make the attribute public."""
    for path in CODE:
        allowed = PUBLIC_ALL_THE_SAME | ALLOWED.get(name(path), set())
        for node in nodes(path):
            is_private = isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr[:2] != "__"
            if is_private and node.attr not in allowed:
                owner = ast.unparse(node.value)
                assert owner in {"self", "cls", "type(self)", "super()"}, f"{name(path)}:{node.lineno}: {owner}"


COMPILED = {"inner", "intrinsic", "kernel", "pasted"}


def untyped(node: ast.AST) -> Iterator[str]:
    """The functions below a node that are not compiled and lack a type."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            if COMPILED & {ast.unparse(decorator).partition("(")[0] for decorator in child.decorator_list}:
                continue
            given = child.args
            several = [one for one in (given.vararg, given.kwarg) if one is not None]
            arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]
            without = [one for one in arguments if one.annotation is None and one.arg not in {"self", "cls"}]
            if child.returns is None or without:
                yield f"{child.lineno}: {child.name}"
        yield from untyped(child)


def test_only_compiled_functions_have_no_types() -> None:
    """Mypy cannot tell them apart: it is told to let all functions without types pass where there are kernels."""
    for path in CORE:
        assert list(untyped(parsed(path))) == [], name(path)


def test_the_slow_tests_are_there() -> None:
    for one in SLOW:
        path, _, function = one.partition("[")[0].partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), f"{one}: take it out of tests/slow.txt"
