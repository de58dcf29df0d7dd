"""What the package says of itself: its version, its types, and how it is imported."""

import sys
from pathlib import Path

import pytest

import oubli
from oubli.app.version import VERSION
from oubli.core.model import Model
from tests.serving import run_program


def test_the_version_and_what_load_returns() -> None:
    assert oubli.__version__ == VERSION
    assert "__version__" in dir(oubli)
    assert oubli.load.__annotations__["return"] is Model


@pytest.mark.parametrize(("name", "advice"), [("core", "from oubli import"), ("app", "import oubli.app")])
def test_a_folder_is_no_package_of_its_own(name: str, advice: str) -> None:
    done = run_program(sys.executable, "-c", f"import {name}")
    assert f"the package is oubli: write `{advice}" in done.stderr


USE = """
import oubli
from oubli import DynamicForestClassifier, load

reveal_type(load("m.oubli"))
reveal_type(oubli.load("m.oubli").predict([[1.0]]))
reveal_type(DynamicForestClassifier.load("m.oubli"))
reveal_type(oubli.__version__)
load("m.oubli").delete(subjects="ada")
load("m.oubli").no_such_method()
"""


@pytest.mark.long
def test_a_loaded_model_has_the_type_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    options = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent", str(tmp_path / "use.py")]
    done = run_program(sys.executable, "-m", "mypy", *options)
    told = [line.partition(": ")[2] for line in done.stdout.splitlines() if "use.py" in line]
    assert told[0] == 'note: Revealed type is "oubli.core.model.Model"'
    assert "ndarray" in told[1]
    assert told[2] == 'note: Revealed type is "oubli.core.forest.estimator.DynamicForestClassifier"'
    assert told[3] == 'note: Revealed type is "str"' or "builtins.str" in told[3]
    assert told[4:] == ['error: "Model" has no attribute "no_such_method"  [attr-defined]']
