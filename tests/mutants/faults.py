"""Faults: drawn from the source by a seed, written to a list, and put into a tree of files again."""

import ast
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = Path(__file__).with_name("faults.json")
MENDS = Path(__file__).with_name("mends.json")

# Where the faults of an area are put: globs below the root.
AREAS = {
    "trees": ["core/forest/*.py", "core/forest/layout/*.py", "core/tree/*.py"],
    "boosting": [f"core/boosting/{room}/*.py" for room in ("online", "quantised", "presorted")],
    "samples": [
        "core/samples/*.py", "core/data/*.py", "core/concurrency/*.py", "core/planning.py", "core/persistence.py",
    ],
    "storage": ["app/storage/*.py"],
    "recovery": ["app/service/recovery/*.py", "app/service/erasure/*.py"],
    "ledger": ["app/ledger/*.py", "app/service/evidence/*.py"],
    "changes": ["app/service/changes/*.py", "app/service/model/*.py", "app/service/jobs/*.py"],
    "http": ["app/http/*.py", "app/http/routes/*.py", "app/http/connection/*.py", "app/http/bulk/*.py"],
}  # fmt: skip
_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "+", ast.LShift: ">>"}
# Their outcome cannot be wrong: texts for people, estimates, descriptions.
_UNTESTED = ("__repr__", "nbytes", "bytes_asked", "seconds_to", "describe", "log", "told", "message")


@dataclass(frozen=True)
class Fault:
    """One change of one line.

    Attributes
    ----------
    area : key of `AREAS`.
    file : path below the root when it was drawn.
    function : qualified name of the innermost function that has the line.
    line, instead : the line without indentation, and what takes its place.
    occurrence : which of the lines of the function that are the same, from 0.
    is_drawn : whether it is one of those that every release is tried with.
    """

    area: str
    file: str
    function: str
    line: str
    instead: str
    occurrence: int = 0
    is_drawn: bool = False


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node


def _left_out(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    """Nodes whose change no test has to find: annotations, docstrings, defaults, what is raised or logged."""
    outside: list[ast.AST] = [function.args, *function.decorator_list]
    for node in ast.walk(function):
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
            outside.append(node)
        elif isinstance(node, ast.AnnAssign):
            outside.append(node.annotation)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("log.", "warnings.", "cast")):
            outside.append(node)
    if function.returns is not None:
        outside.append(function.returns)
    return {id(inner) for node in outside for inner in ast.walk(node)}


def _changes(node: ast.AST, source: str) -> Iterator[tuple[int, int, str]]:
    """Start, end (both offsets in the line) and new text of the changes of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        left, right = node.left.end_col_offset, node.comparators[0].col_offset
        if left is not None and node.left.end_lineno == node.comparators[0].lineno:
            between = source[left:right]
            yield left, right, between.replace(between.strip(" ()"), _COMPARISONS[type(node.ops[0])])
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = node.left.end_col_offset, node.right.col_offset
        if left is not None and node.left.end_lineno == node.right.lineno:
            between = source[left:right]
            yield left, right, between.replace(between.strip(" ()"), _OPERATORS[type(node.op)])
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        left, right = node.values[0].end_col_offset, node.values[1].col_offset
        if left is not None and node.values[0].end_lineno == node.values[1].lineno:
            between = source[left:right]
            word = "and" if isinstance(node.op, ast.And) else "or"
            yield left, right, between.replace(word, "or" if word == "and" else "and")
    elif isinstance(node, ast.Constant) and type(node.value) is bool and node.end_col_offset is not None:
        yield node.col_offset, node.end_col_offset, str(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.end_col_offset is not None:
        yield node.col_offset, node.end_col_offset, str(node.value + 1)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == node.end_lineno:
        yield node.col_offset, node.end_col_offset or 0, "pass"


def faults_of(path: Path, area: str, root: Path = ROOT) -> list[Fault]:
    """Every fault that can be put into a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for name, function in _functions(ast.parse(text)):
        if any(word in name for word in _UNTESTED):
            continue
        outside = _left_out(function)
        seen: list[str] = []
        numbers = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        occurrence = {}
        for number in numbers:
            stripped = lines[number - 1].strip()
            occurrence[number] = seen.count(stripped)
            seen.append(stripped)
        for node in ast.walk(function):
            if id(node) in outside or not hasattr(node, "lineno") or getattr(node, "end_lineno", 0) != node.lineno:
                continue
            line = lines[node.lineno - 1]
            for start, end, new in _changes(node, line):
                changed = (line[:start] + new + line[end:]).strip()
                if line.isascii() and changed != line.strip():
                    place = path.relative_to(root).as_posix()
                    found.append(Fault(area, place, name, line.strip(), changed, occurrence[node.lineno]))
    return found


def make(seed: int, n: int = 200, n_drawn: int = 20, most: int = 5) -> list[Fault]:
    """Draw faults: as many of each area, no two of one line; some of them for every release, `most` an area."""
    rng = random.Random(seed)
    chosen: list[Fault] = []
    for area, globs in AREAS.items():
        empty = [pattern for pattern in globs if not any(ROOT.glob(pattern))]
        if empty:
            raise ValueError(f"no file matches {', '.join(empty)}: correct AREAS")
        files = sorted({path for pattern in globs for path in ROOT.glob(pattern)})
        # A file, then a fault of it: long files do not have it all.
        candidates = {path: rng.sample(found, len(found)) for path in files if (found := faults_of(path, area))}
        lines: set[tuple[str, str, str, int]] = set()
        mine: list[Fault] = []
        while len(mine) < n // len(AREAS):
            path = rng.choice(list(candidates))
            if not candidates[path]:
                del candidates[path]
                continue
            fault = candidates[path].pop()
            key = (fault.file, fault.function, fault.line, fault.occurrence)
            if key not in lines:
                lines.add(key)
                mine.append(fault)
        chosen += mine
    drawn: list[Fault] = []
    for fault in rng.sample(chosen, len(chosen)):
        if len(drawn) < n_drawn and sum(other.area == fault.area for other in drawn) < most:
            drawn.append(fault)
    return [Fault(**{**asdict(fault), "is_drawn": fault in drawn}) for fault in chosen]


def put(fault: Fault, root: Path) -> Path | None:
    """Put a fault into a tree of files; return the file, None when its function or its line is not there any more."""
    first = root / fault.file
    others = sorted(path for room in ("app", "core") for path in (root / room).rglob("*.py") if path != first)
    for path in ([first] if first.exists() else []) + others:
        text = path.read_text(encoding="utf-8")
        if fault.line not in text:
            continue
        for name, function in _functions(ast.parse(text)):
            if name.split(".")[-1] != fault.function.split(".")[-1]:
                continue
            lines = text.splitlines(keepends=True)
            numbers = range(function.lineno - 1, function.end_lineno or function.lineno)
            same = [number for number in numbers if lines[number].strip() == fault.line]
            if len(same) > fault.occurrence:
                number = same[fault.occurrence]
                lines[number] = lines[number].replace(fault.line, fault.instead)
                path.write_text("".join(lines), encoding="utf-8")
                return path
    return None


def write(faults: list[Fault], path: Path = LIST) -> None:
    """Write a list, one fault a line."""
    lines = ",\n".join(json.dumps(asdict(fault)) for fault in faults)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read(path: Path = LIST) -> list[Fault]:
    """Read a list."""
    return [Fault(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
