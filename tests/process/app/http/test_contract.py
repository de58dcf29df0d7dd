"""A few of Schemathesis' requests, and the list of its exceptions; all of them are in `tests/long`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from oubli.app.http.app import create_app
from tests.process.app.http.contract import CONFIGURATION, check_contract
from tests.unit.app.support import described, make_service, make_settings


@pytest.mark.parametrize("phases", ["examples", pytest.param("examples,coverage", marks=pytest.mark.long)])
def test_a_share_of_the_requests(tmp_path: Path, phases: str) -> None:
    check_contract(tmp_path, f"--phases={phases}", "--seed=1", with_key=False)


def test_exceptions_are_few_and_each_has_its_reason() -> None:
    text = CONFIGURATION.read_text()
    exceptions = tomllib.loads(text)["operations"]
    assert len(exceptions) <= 10
    assert text.count("\n\n#") == len(exceptions), "a comment above each says what OpenAPI cannot say"
    known = {
        operation["operationId"]
        for operations in described(create_app(make_settings(), make_service()))["paths"].values()
        for operation in operations.values()
    }
    for exception in exceptions:
        named = exception["include-operation-id"]
        assert set([named] if isinstance(named, str) else named) <= known
