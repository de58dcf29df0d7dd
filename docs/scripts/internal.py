"""An extension of Griffe, which mkdocstrings reads code by: leaves out what a docstring says is internal."""

from typing import Any

import griffe


class WithoutInternal(griffe.Extension):
    """Removes members of classes whose docstrings, or that of their class, begin with `Internal:`."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Look at the members of a class, inherited ones at the class that defines them."""
        for name, member in list(cls.members.items()):
            if not member.is_alias and (is_internal(cls) or is_internal(member)):
                del cls.members[name]


def is_internal(thing: griffe.Object | griffe.Alias) -> bool:
    """Whether its docstring says so."""
    return thing.docstring is not None and thing.docstring.value.startswith("Internal:")
