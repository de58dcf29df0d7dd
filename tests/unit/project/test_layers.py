"""Who may import whom: the layers of `app`, `core` and the client, no circles, how long a chain of imports may be."""

from __future__ import annotations

import sys

from tests.imports import ROOT, circles, graph, imported, imports, modules, nodes, outside_type_checking, parsed

MOST_DIRECTLY_IN_APP = 8
SENDERS = {"oubli.client.transport", "oubli.client.client"}
# Of `app`, the lowest layer first; those of one line do not import each other.
LAYERS = (
    ("errors", "progress", "version"),
    ("times", "threads"),
    ("logs",),
    ("storage", "outgoing"),
    ("access",),
    ("settings",),
    ("ledger", "datasets"),
    ("service",),
    ("replication",),
    ("http",),
    ("cli",),
)
HEIGHTS = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}


def room_of(module: str) -> str:
    """The folder of `app` that a module is in, or the module itself."""
    return module.split(".")[2]


def test_a_room_of_app_imports_only_from_those_below() -> None:
    for module, others in graph("app").items():
        if module.count(".") > 1:
            room = room_of(module)
            rooms = {room_of(other) for other in others if other.count(".") > 1} - {room}
            assert all(HEIGHTS[other] < HEIGHTS[room] for other in rooms), f"{module}: {rooms}"


def test_the_http_framework_is_imported_in_its_room_only() -> None:
    for module, path in modules("app").items():
        if not module.startswith("oubli.app.http"):
            libraries = {name.partition(".")[0] for name in imported(nodes(path))}
            assert libraries.isdisjoint({"starlette", "fastapi", "uvicorn", "httptools"}), module


def test_the_client_imports_neither_app_nor_core() -> None:
    for module, path in modules("oubli/client").items():
        ours = {name for name in imported(nodes(path)) if f"{name}.".startswith("oubli.")}
        assert all(name.startswith(("oubli.client", "oubli.api")) for name in ours), module


def test_messages_need_nothing_but_pydantic() -> None:
    for module, path in modules("oubli/api").items():
        others = {name for name in imported(nodes(path)) if not name.startswith("oubli.api")}
        libraries = {name.partition(".")[0] for name in others} - sys.stdlib_module_names
        assert libraries <= {"pydantic", "typing_extensions"}, module


def test_the_verifier_shares_no_module_with_what_it_checks() -> None:
    """It imports nothing else of ours, and no library besides cryptography."""
    for module, path in modules("oubli/verifier").items():
        others = {name for name in imported(nodes(path)) if not name.startswith("oubli.verifier")}
        libraries = {name.partition(".")[0] for name in others} - sys.stdlib_module_names
        assert libraries <= {"__future__", "cryptography"}, module


def test_only_the_command_line_imports_the_client_and_the_verifier() -> None:
    """A server reads the cosignatures of witnesses with it; what a server signs or hashes is made without it."""
    others = modules("oubli/client") | modules("oubli/verifier")
    for module, path in (modules("app") | modules("core")).items():
        if not module.startswith("oubli.app.cli."):
            assert imports(path, others) <= {"oubli.verifier.notes"}, module


def test_messages_and_verifier_have_no_circles() -> None:
    assert circles(graph("oubli/api")) == circles(graph("oubli/verifier")) == []


def test_few_modules_are_directly_in_app() -> None:
    assert len(list((ROOT / "app").glob("*.py"))) <= MOST_DIRECTLY_IN_APP


def test_only_transports_of_the_client_send() -> None:
    """The rest of it does no I/O over a network, so that it serves waiting and awaiting programs alike."""
    for module, path in modules("oubli/client").items():
        named = {name.partition(".")[0] for name in imported(list(outside_type_checking(parsed(path))))}
        if module not in SENDERS and not module.startswith("oubli.client.load"):
            assert named.isdisjoint({"httpx2", "anyio", "asyncio", "socket", "urllib.request"}), module
