"""Count lines of code: without blank lines, comments and docstrings.

    python benchmarks/lines.py [--root DIRECTORY] [FOLDER ...]

Prints the number of lines and of files of each folder; by default of `app`, `core` and `tests`. `--root` names another
checkout to count.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from pathlib import Path

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
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


def count(folder: Path) -> tuple[int, int]:
    """Return the number of lines of code and of files in a folder."""
    paths = [path for path in sorted(folder.rglob("*.py")) if not path.is_symlink()]
    return sum(n_lines(path.read_text(encoding="utf-8")) for path in paths), len(paths)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("folders", nargs="*", default=["app", "core", "tests"])
    arguments = parser.parse_args()
    for name in arguments.folders:
        lines, files = count(arguments.root / name)
        print(f"{name:10}{lines:8,} lines {files:6} files")


if __name__ == "__main__":
    main()
