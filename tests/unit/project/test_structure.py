"""How large the parts of the project may be: files of a folder, parameters of a constructor, chains of imports."""

import ast
from collections import Counter

from benchmarks.lines import n_lines
from tests.imports import ROOT, circles, graph, longest_chain, nodes

PACKAGES = ("app", "core", "oubli")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MOST_FILES = 367
MOST_IN_A_FOLDER = 16
SHORT = 60  # lines of code
MOST_SHORT = 0.3  # of all files
MOST_PARAMETERS = 10
LONGEST_CHAINS = {"app": 21, "core": 16, "oubli/client": 9, "oubli/api": 4, "oubli/verifier": 6}
LONG_CONSTRUCTORS = {
    "app/datasets/dialect.py:Reading",  # the keys of --read
    "app/datasets/understanding.py:Understood",  # all that is said of a file
    "app/service/changes/additions.py:AddBody",  # a body of the journal, with the fields on disk
    "app/service/changes/restrictions.py:Restricted",  # a receipt, with the fields of the message
    "core/boosting/incremental/estimator.py:IncrementalBoosting",  # the parameters that users set, as scikit-learn asks
    "core/boosting/online/estimator.py:OnlineBoosting",  # the same
    "core/boosting/online/estimator.py:OnlineBoostingRegressor",  # the same
    "core/forest/estimator.py:DynamicForestClassifier",  # the same
    "core/forest/estimator.py:DynamicForestRegressor",  # the same
    "core/influence/views.py:View",  # all that is read of a model of another library
    "core/parameters.py:Parameter",  # a row of the tables of parameters; most fields have defaults
    "oubli/client/messages.py:Request",  # a request, with the parts that HTTP gives it
}


def test_folders_hold_few_files() -> None:
    for folder, n in Counter(path.parent for path in FILES).items():
        assert n <= MOST_IN_A_FOLDER, folder


def test_files_are_few_and_not_too_short() -> None:
    assert len(FILES) <= MOST_FILES
    short = [path for path in FILES if n_lines(path.read_text(encoding="utf-8")) < SHORT]
    assert len(short) <= MOST_SHORT * len(FILES)


def test_no_circles_and_no_long_chains_of_imports() -> None:
    for package, most in LONGEST_CHAINS.items():
        edges = graph(package)
        assert circles(edges) == []
        chain = longest_chain(edges)
        assert len(chain) <= most, chain


def n_parameters(node: ast.ClassDef) -> int:
    """How many parameters the constructor of a class has: its fields when it is a dataclass."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = item.args
            return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        return sum("ClassVar" not in ast.unparse(item) and "init=False" not in ast.unparse(item) for item in fields)
    return 0


def test_constructors_take_few_parameters() -> None:
    assert {
        f"{path.relative_to(ROOT).as_posix()}:{node.name}"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and n_parameters(node) > MOST_PARAMETERS
    } == LONG_CONSTRUCTORS
