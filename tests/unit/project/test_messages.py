"""Every refusal and every line of the log says what has happened and what to do, and is in the page of messages."""

import ast
import builtins
import re
import sys
from functools import cache

import pytest

from oubli.app import errors
from oubli.app.errors import JournalError, ServiceError, StartError, StopReason, UnavailableError
from oubli.app.logs import cause_of
from tests.serving import ROOT

sys.path.insert(0, str(ROOT / "docs" / "scripts"))

import messages

PAGE = (ROOT / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
LOGGING = ("log.", "self._rejoin", "self._begin_anew")
CLASS_OF_PYTHON = re.compile(r"\b[A-Z][a-zA-Z]+(Error|Exception|Interrupt|Warning)\b")


@cache
def found() -> list[messages.Message]:
    """What the code says."""
    return list(messages.messages())


def cells(heading: str) -> list[list[str]]:
    """The rows of the tables below a heading."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_every_line_of_the_log_is_in_the_table_and_no_other() -> None:
    logged = {one.text for one in found() if one.level}
    rows = cells("Lines of the log")
    assert {row[0][1:-1] for row in rows} == logged
    assert all(len(row) == 3 and all(row) for row in rows)


def test_every_refusal_is_in_the_table_and_says_what_to_do() -> None:
    """What ends with another text has its remedy in that."""
    refused = {messages.parts_of(one.text)[0].replace("|", "\\|") for one in found() if not one.level}
    assert refused == {row[0][1:-1] for row in cells("Refusals to start")}
    for one in found():
        if not one.level and not one.text.endswith(messages.ANY):
            _, remedy = messages.parts_of(one.text)
            assert len(remedy.split()) >= 2, one.text


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_to_stop_says_what_to_do(reason: StopReason) -> None:
    assert any(word in reason.text for word in ("Restart", "restart", "Make room", "Check", "Raise", "See to"))


def test_no_line_is_made_of_the_name_of_a_class() -> None:
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(LOGGING):
                assert "__name__" not in ast.unparse(node), f"{path}:{node.lineno}"
    assert not any(CLASS_OF_PYTHON.search(one.text) for one in found())


def of_ours(*kinds: type[Exception]) -> list[type[Exception]]:
    """These classes and all below them."""
    return [one for kind in kinds for one in (kind, *of_ours(*kind.__subclasses__()))]


OURS = of_ours(ServiceError, JournalError, StartError)
NOT_CAUSES = (Warning, UnicodeError, BaseExceptionGroup)
CLASSES = [one for one in vars(builtins).values() if isinstance(one, type) and issubclass(one, Exception)]
OF_PYTHON = [one for one in CLASSES if not issubclass(one, NOT_CAUSES)]


@pytest.mark.parametrize("kind", [*OURS, *OF_PYTHON], ids=lambda kind: kind.__name__)
def test_a_cause_is_told_in_words(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    if kind not in OURS:
        error.args = ("SECRET",)
    try:
        raise error
    except Exception as raised:
        text = cause_of(raised)
    assert text
    assert not re.search(f"SECRET|{CLASS_OF_PYTHON.pattern}", text)


def test_causes_of_the_system_and_of_the_service() -> None:
    assert cause_of(OSError(28, "No space left on device", "/data/SECRET")) == "No space left on device"
    assert cause_of(errors.StorageError("no room on the disk")) == "no room on the disk"
    assert cause_of(UnavailableError("failed")) == "nothing is changed until a restart"
