"""The texts that stand below the fields of a class, read from the source of its module.

pydantic can read them (`use_attribute_docstrings`), which it does for each class as it is made: that was a fifth of the
time to import the HTTP layer. Here a module is parsed once, when the first text is asked for.
"""

import ast
import inspect
import sys
from functools import cache

_OWN = __name__.partition(".")[0]


def field_texts(cls: type) -> dict[str, str]:
    """Return the texts below the fields of a class and of its bases; there are none where there is no source."""
    texts: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        for name in inspect.get_annotations(one):  # a field that is declared again has a text of its own, or none
            texts.pop(name, None)
        if one.__module__.partition(".")[0] == _OWN:
            texts |= _texts_in(one.__module__).get(one.__qualname__, {})
    return texts


@cache
def _texts_in(module: str) -> dict[str, dict[str, str]]:
    """Return the texts in a module, by class and field."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {one.name: _texts_of(one) for one in tree.body if isinstance(one, ast.ClassDef)}


def _texts_of(cls: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(cls.body, cls.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = inspect.cleandoc(below.value.value)
    return found
