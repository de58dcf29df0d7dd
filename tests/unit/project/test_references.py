"""Texts name modules, files and identifiers that are there: docstrings, comments, documents and lists."""

import re
import subprocess
from functools import cache
from pathlib import Path

from tests.imports import ROOT, module_of

FOLDERS = ("app", "core", "oubli")
TEXTS = (".py", ".md", ".json", ".toml", ".sh", ".js", ".yml")
HISTORY = ("CHANGELOG.md", "benchmarks/results/", "tests/golden/")  # they tell of files as they were
MODULE = re.compile(r"\boubli\.(?:app|core|client|verifier|witness)(?:\.\w+)+")
FILE = re.compile(r"(?<![\w/.{*-])(?:app|core|oubli|tests|benchmarks|docs)/[\w/]+\.(?:py|md|js)\b")
QUOTED = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)`(?!`)")
PROSE = re.compile(r'"""[\s\S]*?"""|#.*')
WORD = re.compile(r"\w+")
# Names of other programs, of the standard library, and of papers.
FOREIGN = {"hdrhistogram", "is_global", "pbr", "prange", "setuptools", "updateTree", "use_attribute_docstrings"}
OF_MODULES = {"__all__", "__file__", "__name__", "__path__"}
MADE_UP = {"core/code.py", "oubli.core.Shrub"}  # by tests


@cache
def texts() -> dict[Path, str]:
    """The files of the project that are there, links aside."""
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split("\n")
    paths = [ROOT / name for name in listed if name and not name.startswith(HISTORY)]
    paths = [path for path in paths if path.suffix in TEXTS and path.is_file() and not path.is_symlink()]
    return {path: path.read_text(encoding="utf-8") for path in paths}


@cache
def words_of(path: Path) -> frozenset[str]:
    """The words of a program without its docstrings and comments, and those of its path."""
    return frozenset(WORD.findall(PROSE.sub("", texts()[path]))).union(path.relative_to(ROOT).with_suffix("").parts)


def is_there(name: str, programs: dict[str, Path], packages: set[str]) -> bool:
    """Whether a dotted name is a module, a package, or something that a module holds."""
    module, inner = name, ""
    while module not in programs and module not in packages:
        module, _, inner = module.rpartition(".")
    return not inner or inner in OF_MODULES or (module in programs and inner in words_of(programs[module]))


def place(path: Path, text: str, match: re.Match[str]) -> str:
    """Where something is, and what it says."""
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"


def test_every_module_and_every_file_that_is_named_is_there() -> None:
    programs = {module_of(path): path for path in texts() if path.suffix == ".py"}
    packages = {name.rpartition(".")[0] for name in programs} | {"oubli.app", "oubli.core"}
    wrong = []
    for path, text in texts().items():
        found = [match for match in MODULE.finditer(text) if not is_there(match[0], programs, packages)]
        found += [match for match in FILE.finditer(text) if not (ROOT / match[0]).exists()]
        wrong += [place(path, text, match) for match in found if match[0] not in MADE_UP]
    assert not wrong, "\n".join(wrong)


def test_every_name_in_backquotes_is_there() -> None:
    """A file is one of the same top folder; any other name is a word of some program."""
    programs = [path for path in texts() if path.suffix == ".py"]
    known = FOREIGN.union(*map(words_of, programs))
    files = {(path.relative_to(ROOT).parts[0], path.name) for path in programs}
    wrong = []
    for path in programs:
        folder = path.relative_to(ROOT).parts[0]
        for match in QUOTED.finditer(texts()[path]) if folder in FOLDERS else ():
            name = match[1]
            if not ((folder, name) in files if name.endswith(".py") else known.issuperset(name.split("."))):
                wrong.append(place(path, texts()[path], match))
    assert not wrong, "\n".join(wrong)
