"""Every class, function and method in the reference of the Python library has an example, and all examples run.

Those of the client, which needs a server, run in `tests/process/project/test_client_examples.py`.
"""

import doctest
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from oubli import core
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


def is_shown(thing: Any) -> bool:
    """Whether the reference shows it: see `docs/scripts/internal.py`."""
    return bool(thing.__doc__) and not thing.__doc__.startswith("Internal:")


def methods_of(kind: type) -> Iterator[Any]:
    """The methods of a class that the reference shows, inherited ones too."""
    for name in dir(kind):
        owner = next(base for base in kind.__mro__ if name in vars(base)) if not name.startswith("_") else object
        method = vars(owner).get(name)
        method = getattr(method, "__func__", method)
        is_ours = inspect.isfunction(method) and method.__module__.startswith("oubli.")
        if is_ours and is_shown(method) and not (owner.__doc__ or "").startswith("Internal:"):
            yield method


def shown() -> dict[str, Any]:
    """All classes, functions and methods in the reference, by their full names."""
    things: list[Any] = []
    for name in NAMED:
        thing = found(name)
        inside = vars(thing).values() if inspect.ismodule(thing) else [thing]
        own = [one for one in inside if inspect.isclass(one) or inspect.isfunction(one)]
        things += [one for one in own if one is thing or (one.__module__ == name and is_shown(one))]
    things = [one for one in things if not one.__name__.startswith("_")]
    things += [method for kind in things if inspect.isclass(kind) for method in methods_of(kind)]
    return {f"{one.__module__}.{one.__qualname__}": one for one in things}


SHOWN = shown()


def run_example(name: str, **more: Any) -> None:
    """Run the example of something in the reference, in its module with some names more."""
    thing = SHOWN[name]
    names = {**vars(import_module(thing.__module__)), **more}
    [tests] = doctest.DocTestFinder(recurse=False).find(thing, name, globs=names) or [None]
    assert tests is not None
    assert tests.examples, "it has no example"
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(tests)
    assert outcome.failed == 0


@pytest.mark.parametrize("name", [name for name in SHOWN if not name.startswith("oubli.client.")])
def test_the_examples_run(name: str) -> None:
    run_example(name)


def test_the_reference_is_what_is_looked_at() -> None:
    """With methods, inherited ones too, and without what is internal."""
    expected = {
        "oubli.core.model.Model.add", "oubli.core.base.Keepable.load", "oubli.core.errors.InputError",
        "oubli.client.operations.samples.add", "oubli.client.client.Client", "oubli.river.wrap",
    }  # fmt: skip
    assert expected <= set(SHOWN)
    assert not {"oubli.core.errors.ensure", "oubli.core.planning.Changeable.apply"} & set(SHOWN)
    assert {name.rpartition(".")[2] for name in NAMED} >= set(core.__all__)
