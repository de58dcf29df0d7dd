"""Who imports whom: the modules of the project, their imports, layers, circles and the longest chain."""

import ast
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Graph = dict[str, set[str]]


@cache
def parsed(path: Path) -> ast.Module:
    """The program in a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of the program in a file."""
    return tuple(ast.walk(parsed(path)))


def module_of(path: Path) -> str:
    """The name that a file of `app`, `core` or `oubli` is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "oubli":
        parts = ("oubli", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(package: str) -> dict[str, Path]:
    """The modules of `app`, `core` or `oubli/client`, by name."""
    return {module_of(path): path for path in sorted((ROOT / package).rglob("*.py"))}


def imported(tree: Collection[ast.AST]) -> set[str]:
    """What a program imports, as it is written there."""
    found = {one.name for node in tree if isinstance(node, ast.Import) for one in node.names}
    return found | {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}


def outside_type_checking(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a program but those that only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from outside_type_checking(node)


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a file imports, inside of functions and for type checkers too; packages themselves left out."""
    found = set()
    for node in nodes(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in known else node.module
                for alias in node.names
            ]
        found |= {name for name in names if name in known}
    return found


def graph(*packages: str) -> Graph:
    """Each module and what it imports."""
    known = {name: path for package in packages for name, path in modules(package).items()}
    return {name: imports(path, known) - {name} for name, path in known.items()}


def circles(edges: Graph) -> list[list[str]]:
    """Groups of modules that import each other (Tarjan's strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in edges:
        if name not in index:
            visit(name)
    return found


def longest_chain(edges: Graph) -> list[str]:
    """The longest chain of imports, without going around in circles: a circle counts as its number of modules."""
    groups = {name: (name,) for name in edges} | {name: tuple(group) for group in circles(edges) for name in group}
    best: dict[tuple[str, ...], list[str]] = {}

    def chain(group: tuple[str, ...]) -> list[str]:
        if group not in best:
            others = {groups[other] for name in group for other in edges[name]} - {group}
            best[group] = [*group, *max((chain(other) for other in others), key=len, default=[])]
        return best[group]

    return max((chain(group) for group in set(groups.values())), key=len)


if __name__ == "__main__":
    everything = graph("app", "core")
    print("circles:", circles(everything))  # noqa: T201
    print("longest chain:", len(longest_chain(everything)), *longest_chain(everything), sep="\n  ")  # noqa: T201
