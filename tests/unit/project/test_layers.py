"""Who may import whom: the layers of `app`, `core` and the client, no circles, how long a chain of imports may be."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.imports import (
    ROOT,
    Graph,
    circles,
    graph,
    imports,
    longest_chain,
    modules,
    nodes,
    outside_type_checking,
    parsed,
)

MOST_IN_APP = 8
MOST_DIRECTLY_IN_APP = 8
MOST_IN_CLIENT = 8
SENDERS = {"oubli.client.transport", "oubli.client.client"}
# Of `app`, the lowest layer first; those of one line do not import each other.
LAYERS = (
    ("errors", "progress", "version"),
    ("times", "threads"),
    ("logs",),
    ("access", "privacy"),
    ("settings",),
    ("storage",),
    ("ledger", "datasets"),
    ("service",),
    ("replication",),
    ("http",),
    ("cli",),
)
HEIGHTS = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
MODULES = sorted(name for name in modules("app") if name.count(".") > 1)


@cache
def app() -> Graph:
    return graph("app")


def room_of(module: str) -> str:
    """The folder of `app` that a module is in, or the module itself."""
    return module.split(".")[2]


@pytest.mark.parametrize("module", MODULES)
def test_a_room_of_app_imports_only_from_those_below(module: str) -> None:
    room = room_of(module)
    others = {room_of(other) for other in app()[module] if other.count(".") > 1} - {room}
    assert all(HEIGHTS[other] < HEIGHTS[room] for other in others), others


def test_the_http_framework_is_imported_in_its_room_only() -> None:
    for module, path in modules("app").items():
        names = {
            name.partition(".")[0]
            for node in nodes(path)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        }
        if not module.startswith("oubli.app.http"):
            assert names.isdisjoint({"starlette", "fastapi", "uvicorn", "httptools"}), module


CLIENT = sorted((ROOT / "oubli" / "client").rglob("*.py"))


@pytest.mark.parametrize("path", CLIENT, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_client_imports_neither_app_nor_core(path: Path) -> None:
    names = {
        name
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    assert {name for name in names if f"{name}.".startswith("oubli.") and not name.startswith("oubli.client")} == set()


VERIFIER = {**modules("oubli/verifier"), **modules("oubli/witness")}


@pytest.mark.parametrize("module", sorted(VERIFIER))
def test_the_verifier_shares_no_module_with_what_it_checks(module: str) -> None:
    """The witness imports the verifier; neither imports anything else of ours, nor a library besides cryptography."""
    names = {
        name
        for node in nodes(VERIFIER[module])
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    may = ("oubli.verifier",) if module.startswith("oubli.verifier") else ("oubli.verifier", "oubli.witness")
    ours = {name for name in names if name.partition(".")[0] == "oubli"}
    assert all(name.startswith(may) for name in ours), ours
    others = {name.partition(".")[0] for name in names - ours}
    assert others - sys.stdlib_module_names <= {"__future__", "cryptography"}


def test_only_the_command_line_imports_the_verifier() -> None:
    for module, path in {**modules("app"), **modules("core"), **modules("oubli/client")}.items():
        if not module.startswith("oubli.app.cli."):
            assert imports(path, VERIFIER) == set(), module


def test_the_verifier_has_no_circles() -> None:
    assert circles(graph("oubli/verifier", "oubli/witness")) == []


# Of the load test, the lowest first; those of one line do not import each other.
LOAD_LAYERS = (
    ("alarm", "histogram", "plan"),
    ("http", "records", "thresholds"),
    ("rows", "worker"),
    ("controller",),
    ("plot", "report"),
)


def test_a_module_of_the_load_test_imports_only_from_those_below() -> None:
    prefix = "oubli.client.load."
    heights = {prefix + module: height for height, modules in enumerate(LOAD_LAYERS) for module in modules}
    for path in CLIENT:
        if path.parent.name == "load" and path.stem != "__init__":
            others = {node.module for node in nodes(path) if isinstance(node, ast.ImportFrom) and node.module}
            for other in others & heights.keys():
                assert heights[other] < heights[prefix + path.stem], f"{path.stem} imports {other}"
            assert prefix + path.stem in heights


def test_app_has_no_circles_and_no_long_chains() -> None:
    assert circles(app()) == []
    chain = longest_chain(app())
    assert len(chain) <= MOST_IN_APP, chain


def test_few_modules_are_directly_in_app() -> None:
    assert len(list((ROOT / "app").glob("*.py"))) <= MOST_DIRECTLY_IN_APP


def test_no_object_asks_another_for_a_private_attribute() -> None:
    named_tuples = {"_fields", "_replace", "_asdict"}
    for path in modules("app").values():
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                owner = ast.unparse(node.value)
                assert owner in ("self", "cls", "type(self)", "super()") or node.attr in named_tuples, (
                    f"{path}: {owner}"
                )


def test_the_client_imports_neither_the_service_nor_the_algorithms() -> None:
    everything = {name: path for package in ("app", "core") for name, path in modules(package).items()}
    for module, path in modules("oubli/client").items():
        assert imports(path, everything) == set(), module


def test_only_the_command_line_imports_the_client() -> None:
    client = modules("oubli/client")
    for module, path in {**modules("app"), **modules("core")}.items():
        if not module.startswith("oubli.app.cli."):
            assert imports(path, client) == set(), module


def test_the_client_has_no_circles_and_no_long_chains() -> None:
    edges = graph("oubli/client")
    assert circles(edges) == []
    assert len(longest_chain(edges)) <= MOST_IN_CLIENT


def test_only_transports_of_the_client_send() -> None:
    """The rest of it does no I/O over a network, so that it serves waiting and awaiting programs alike."""
    for module, path in modules("oubli/client").items():
        named = {
            name.partition(".")[0]
            for node in outside_type_checking(parsed(path))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        }
        if module not in SENDERS and not module.startswith("oubli.client.load"):
            assert named.isdisjoint({"httpx2", "anyio", "asyncio", "socket", "urllib.request"}), module
