"""Who may import whom: the layers of `app`, `core` and the client."""

import sys

import pytest

from tests.imports import ROOT, graph, imported, imports, modules, nodes, outside_type_checking, parsed

MOST_DIRECTLY_IN_APP = 8
SENDERS = {"oubli.client.transport", "oubli.client.client"}
# Of `app`, the lowest layer first; those of one text do not import each other.
LAYERS = (
    *("errors progress version", "times threads", "logs", "storage outgoing", "access", "settings", "ledger datasets"),
    *("service", "replication", "http", "cli"),
)
OF_THE_CLIENT = {*("anyio", "cryptography", "httptools", "httpx2", "orjson", "pydantic", "uvloop"), "numpy", "pandas"}
OF_THE_CLIENT |= {"matplotlib"}  # draws the result of a load test
# Outside of `app`: what a folder may import of ours, and which libraries.
MAY_IMPORT = [
    ("core", ("oubli.core.",), {"llvmlite", "numba", "numpy", "safetensors"}),  # llvmlite is a part of Numba
    ("oubli/api", ("oubli.api.",), {"pydantic", "typing_extensions"}),
    ("oubli/client", ("oubli.client.", "oubli.api."), OF_THE_CLIENT),
    # It shares no module with what it checks.
    ("oubli/verifier", ("oubli.verifier.",), {"cryptography"}),
]
# Inside functions that only scikit-learn calls, or who has a model or a table of another library;
# `test_importing_core_...` proves that importing does not.
MAY_IMPORT_AS_WELL = {
    "oubli.core.base": {"sklearn"},
    "oubli.core.data.tables": {"pyarrow"},
    "oubli.core.influence.readers.from_xgboost": {"xgboost"},
}
HEIGHTS = {room: height for height, rooms in enumerate(LAYERS) for room in rooms.split()}


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


@pytest.mark.parametrize(("folder", "ours", "libraries"), MAY_IMPORT)
def test_a_folder_imports_nothing_else(folder: str, ours: tuple[str, ...], libraries: set[str]) -> None:
    for module, path in modules(folder).items():
        allowed = libraries | MAY_IMPORT_AS_WELL.get(module, set())
        for name in imported(nodes(path)):
            library = name.partition(".")[0]
            if library == "oubli":
                assert f"{name}.".startswith(ours), f"{module}: {name}"
            else:
                assert library in sys.stdlib_module_names or library in allowed, f"{module}: {name}"


def test_only_the_command_line_imports_the_client_and_the_verifier() -> None:
    """A server reads the cosignatures of witnesses with it; what a server signs or hashes is made without it."""
    others = modules("oubli/client") | modules("oubli/verifier")
    for module, path in (modules("app") | modules("core")).items():
        if not module.startswith("oubli.app.cli."):
            assert imports(path, others) <= {"oubli.verifier.notes"}, module


def test_few_modules_are_directly_in_app() -> None:
    assert len(list((ROOT / "app").glob("*.py"))) <= MOST_DIRECTLY_IN_APP


def test_only_transports_of_the_client_send() -> None:
    """The rest of it does no I/O over a network, so that it serves waiting and awaiting programs alike."""
    for module, path in modules("oubli/client").items():
        named = {name.partition(".")[0] for name in imported(list(outside_type_checking(parsed(path))))}
        if module not in SENDERS and not module.startswith("oubli.client.load"):
            assert named.isdisjoint({"httpx2", "anyio", "asyncio", "socket", "urllib.request"}), module
