"""What a server says when it refuses to start, and what it logs, read from the code."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oubli.app.errors import StartError

ROOT = Path(__file__).resolve().parent.parent.parent
LOGGED = ("critical", "error", "warning")
# Folder or file below `app`, and the heading of what it says.
PLACES = {
    "settings.py": "Settings",
    "storage/postgres": "The journal in PostgreSQL",
    "storage": "The data directory, its journal and its snapshots",
    "ledger": "The ledger and its keys",
    "replication": "Nodes of a cluster",
    "service": "The model, and what belongs together",
    "outgoing": "Webhooks and OpenDSR",
    "access": "Access keys",
    "http": "Address, TLS and reloading",
}
ANY = "…"


class Message(NamedTuple):
    """A text of the code, with `…` for what it is about."""

    place: str
    level: str
    text: str


def refusal_names() -> set[str]:
    """The classes of errors that a start ends with."""
    found, todo = {StartError.__name__}, [StartError]
    for path in sorted((ROOT / "app").rglob("*.py")):
        if "cli" not in path.parts:
            importlib.import_module(module_of(path))
    while todo:
        later = todo.pop().__subclasses__()
        found |= {one.__name__ for one in later}
        todo += later
    return found


def module_of(path: Path) -> str:
    """The name that a file below `app` is imported by."""
    return ".".join(["oubli", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


def messages() -> Iterator[Message]:
    """Every refusal of a start, and every warning and error of the log of `serve`."""
    refusals = refusal_names()
    for path in sorted((ROOT / "app").rglob("*.py")):
        below = path.relative_to(ROOT / "app").as_posix()
        place = next((name for name in PLACES if below == name or below.startswith(f"{name}/")), None)
        if place is None:
            continue
        names = vars(importlib.import_module(module_of(path)))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            what, level = node.func, ""
            if isinstance(what, ast.Attribute) and what.attr in LOGGED and ast.unparse(what.value) == "log":
                level = what.attr
            elif not (isinstance(what, ast.Name) and what.id in refusals):
                continue
            text = text_of(node.args[0], names)
            if text.strip(f"{ANY}: "):  # not only another message passed on
                yield Message(PLACES[place], level, text)


def text_of(node: ast.expr, names: dict[str, Any]) -> str:
    """A text as the code makes it, constants filled in."""
    match node:
        case ast.Constant(value=str(text)):
            for placeholder in ("%s", "%d", "%g", "%.0f"):
                text = text.replace(placeholder, ANY)
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part, names) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) if isinstance(names.get(name), str | int):
            return str(names[name])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left, names) + text_of(right, names)
    return ANY


def parts_of(text: str) -> tuple[str, str]:
    """What has happened, and what it means and what to do."""
    ends = [place for place in map(text.find, (": ", ". ")) if place > 0]
    end = min(ends, default=len(text))
    return text[:end], text[end + 2 :]


def refusals() -> list[tuple[str, list[str]]]:
    """Headings, and the refusals below each."""
    found = list(messages())
    return [
        (place, sorted({one.text for one in found if one.place == place and not one.level}))
        for place in dict.fromkeys(PLACES.values())
    ]
