"""An extension of Griffe, which mkdocstrings reads code by: leaves out what a docstring says is internal."""

from typing import Any

import griffe


class WithoutInternal(griffe.Extension):
    """Removes members of classes, and functions of modules, whose docstrings begin with `Internal:`.

    So it does with all members of a class whose own docstring begins so.
    """

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Look at the members of a class, inherited ones at the class that defines them."""
        for name, member in list(cls.members.items()):
            if not member.is_alias and (is_internal(cls) or is_internal(member)):
                del cls.members[name]

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Look at the functions that a module defines."""
        for name, member in list(mod.members.items()):
            if not member.is_alias and member.is_function and is_internal(member):
                del mod.members[name]


def is_internal(thing: griffe.Object | griffe.Alias) -> bool:
    """Whether its docstring says so."""
    return thing.docstring is not None and thing.docstring.value.startswith("Internal:")
