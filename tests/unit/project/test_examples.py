"""Every class and function in the reference of the Python library has an example, and all examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from typing import Any

import pytest

from tests.serving import ROOT

PAGES = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
NAMED = [name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)]


def found(name: str) -> Any:
    """The class, function or module with a name."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(module), attribute)


@pytest.mark.parametrize("name", [name for name in NAMED if not inspect.ismodule(found(name))])
def test_the_examples_run(name: str) -> None:
    thing = found(name)
    finder = doctest.DocTestFinder(recurse=False)
    names = vars(import_module(thing.__module__)) | {thing.__name__: thing}
    [tests] = finder.find(thing, name, globs=dict(names)) or [None]
    assert tests is not None
    assert tests.examples, "it has no example"
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(tests)
    assert outcome.failed == 0


def test_all_estimators_are_in_the_reference() -> None:
    from oubli import core

    assert {name.rpartition(".")[2] for name in NAMED} >= set(core.__all__)
