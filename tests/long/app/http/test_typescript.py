"""The types that openapi-typescript makes of each document compile, and say what a request may leave out."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from oubli.app.http.app import create_app
from oubli.app.http.openapi import MAIN, PARTS
from tests.unit.app.support import make_service, make_settings

NPM = shutil.which("npm")
TOOLS = ("openapi-typescript@7", "typescript@5")
USE = """
import type { components, paths } from "./main";
type Body = paths["/samples"]["post"]["requestBody"]["content"]["application/json"];
export const body: Body = { samples: [{ features: [1, null, "a"], label: "yes" }, { features: { age: 1 }, label: 2 }] };
type Found = paths["/predict"]["post"]["responses"]["200"]["content"]["application/json"];
export const version = (found: Found): number => found.model_version + (found.probabilities?.[0][0] ?? 0);
type Refused = paths["/predict"]["post"]["responses"]["422"]["content"]["application/problem+json"];
export const places = (refused: Refused): string[] => (refused.errors ?? []).map((error) => error.pointer);
export const status: components["schemas"]["Receipt"]["status"] = "erased";
// @ts-expect-error
export const wrong: components["schemas"]["Receipt"]["status"] = "gone";
"""


@pytest.mark.skipif(NPM is None, reason="npm is not installed")
def test_types_compile_strictly(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    if run(str(NPM), "install", "--silent", "--no-audit", *TOOLS).returncode:
        pytest.skip("the registry of npm cannot be reached")
    tools = tmp_path / "node_modules" / ".bin"
    app = create_app(make_settings(), make_service())
    names = {name: name or "main" for name in (MAIN, *PARTS)}
    for part, name in names.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(app.openapi(part)))  # type: ignore[call-arg]
        made = run(str(tools / "openapi-typescript"), f"{name}.json", "-o", f"{name}.ts")
        assert made.returncode == 0, made.stdout + made.stderr
        assert "warn" not in (made.stdout + made.stderr).lower()
    (tmp_path / "use.ts").write_text(USE)
    options = ("--strict", "--noEmit", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler")
    checked = run(str(tools / "tsc"), *options, "use.ts", *(f"{name}.ts" for name in names.values()))
    assert checked.returncode == 0, checked.stdout
