"""The whole API under Schemathesis: whatever the OpenAPI document says must hold, for right and wrong requests.

`schemathesis.toml` lists what OpenAPI cannot say.
"""

import json
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from oubli.app.http.app import create_app
from oubli.app.http.openapi import PARTS
from tests.serving import Running, run_program, serving
from tests.unit.app.support import described, make_service, make_settings

pytestmark = pytest.mark.long

CONFIGURATION = Path(__file__).parent / "schemathesis.toml"
KEY = "0123456789abcdef-key"
_FLAGS = ("--data", "data.csv", "--target", "income", "--id", "name", "--subject", "who", "--n-estimators", "3")


def check_contract(folder: Path, *options: str, with_key: bool) -> None:
    """Test all operations with all checks."""
    rows = [f"n{i},s{i % 9},{i % 7 + i / 10},{'abc'[i % 3]},{i % 2 == 0},{'yes' if i % 4 else 'no'}" for i in range(99)]
    (folder / "data.csv").write_text("\n".join(["name,who,age,job,member,income", *rows]) + "\n")
    (folder / "key").write_text(KEY)
    flags = (*_FLAGS, "--api-key-file", "key") if with_key else _FLAGS
    # Both schemes: a key that is made up for one of them would hide the one sent by the other.
    headers = ["-H", f"Authorization: Bearer {KEY}", "-H", f"X-API-Key: {KEY}"] if with_key else []
    command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={CONFIGURATION}", "run"]
    with serving(*flags, cwd=folder) as server:
        (folder / "openapi.json").write_text(json.dumps(_document(server, KEY if with_key else None)))
        words = (*command, "openapi.json", f"--url={server.url}", "--checks=all", "--no-color", *headers, *options)
        done = run_program(*words, cwd=folder)
        assert "request failed" not in server.output, server.output
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]


def _document(server: Running, key: str | None) -> dict[str, Any]:
    """Return all documents of a server as one, so that answers of one are used in requests of another."""
    whole: dict[str, Any] = {}
    for name in ("openapi", *(f"openapi/{name}" for name in PARTS)):
        request = urllib.request.Request(f"{server.url}/{name}.json", headers={"X-API-Key": key} if key else {})  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            page = json.load(answer)
        whole.setdefault("paths", {}).update(page["paths"])
        for kind, named in page["components"].items():
            whole.setdefault("components", {}).setdefault(kind, {}).update(named)
    return page | whole


@pytest.mark.parametrize("phases", ["examples", "examples,coverage"])
def test_a_share_of_the_requests(tmp_path: Path, phases: str) -> None:
    check_contract(tmp_path, f"--phases={phases}", "--seed=1", with_key=False)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("with_key", "seed"), [(False, 1), (True, 2), (False, 3)])
def test_all_operations_hold_to_the_document(tmp_path: Path, with_key: bool, seed: int) -> None:
    check_contract(tmp_path, f"--seed={seed}", "--max-examples=150", with_key=with_key)


def test_exceptions_are_few_and_each_has_its_reason() -> None:
    text = CONFIGURATION.read_text()
    exceptions = tomllib.loads(text)["operations"]
    assert len(exceptions) <= 10
    assert text.count("\n\n#") == len(exceptions), "a comment above each says what OpenAPI cannot say"
    paths = described(create_app(make_settings(), make_service()))["paths"].values()
    known = {operation["operationId"] for operations in paths for operation in operations.values()}
    for exception in exceptions:
        named = exception["include-operation-id"]
        assert set([named] if isinstance(named, str) else named) <= known
