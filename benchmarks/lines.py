"""Count lines of code: without blank lines, comments and docstrings.

    python benchmarks/lines.py [--root DIRECTORY] [FOLDER ...]

Prints for each folder the lines, the files, and the share of files that are short; then those of `app`, `core` and
`oubli` together. `--root` names another checkout to count.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from pathlib import Path

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
_SHORT = 60  # lines of a file
_PRODUCT = ("app", "core", "oubli")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def n_lines(source: str) -> int:
    """Return how many lines of a file hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def count(folder: Path) -> list[int]:
    """Return the lines of code of each file in a folder."""
    paths = [path for path in folder.rglob("*.py") if not path.is_symlink()]
    return [n_lines(path.read_text(encoding="utf-8")) for path in paths]


def _tell(name: str, files: list[int]) -> None:
    share = sum(n < _SHORT for n in files) / max(len(files), 1)
    print(f"{name:12}{sum(files):8,} lines {len(files):6} files {share:6.0%} under {_SHORT} lines")


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("folders", nargs="*", default=["app", "core", "oubli", "tests", "benchmarks"])
    arguments = parser.parse_args()
    counts = {name: count(arguments.root / name) for name in arguments.folders}
    for name, files in counts.items():
        _tell(name, files)
    product = [n for name in _PRODUCT if name in counts for n in counts[name]]
    _tell("the product", product)


if __name__ == "__main__":
    main()
