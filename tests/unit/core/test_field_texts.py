from __future__ import annotations

import sys
from types import ModuleType

import pytest

from oubli.core.field_texts import field_texts


class First:
    """Not the text of a field."""

    a: int = 0
    """Of a.

    More of it.
    """
    b: str
    c: str
    "Of c."
    "Of nothing."

    def method(self) -> None:
        """Neither of a field."""


class Second(First):
    """Has one of its own, and one that is declared again."""

    c: int  # type: ignore[assignment]
    d: float
    """Of d."""


@pytest.fixture(autouse=True)
def _is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.core.field_texts._OWN", __name__.partition(".")[0])


def test_the_texts_below_the_fields_are_theirs() -> None:
    assert field_texts(First) == {"a": "Of a.\n\nMore of it.", "c": "Of c."}


def test_fields_are_inherited_with_their_texts() -> None:
    assert field_texts(Second) == {"a": "Of a.\n\nMore of it.", "d": "Of d."}


def test_without_a_source_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}.made_of_nothing"
    module = ModuleType(name)
    module.__file__ = "/nowhere/made_of_nothing.py"
    monkeypatch.setitem(sys.modules, name, module)
    made = type("Made", (), {"__annotations__": {"a": int}, "__module__": name})
    assert field_texts(made) == {}
