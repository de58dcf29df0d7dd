"""Runs the ordinary unit tests on each Python that is supported and found: `python -m tests.pythons [VERSION ...]`.

    python -m tests.pythons                  on 3.11 to 3.14
    python -m tests.pythons 3.12 3.14        on these
    python -m tests.pythons 3.12 --tests tests/unit/core

Each version has an environment in `build/pythons`, from the lock files. A version is looked for on the path and among
those of pyenv and uv. One that is not found is said, and is no failure; one whose tests fail is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")  # as pyproject.toml says
TESTS = ("tests/unit", "tests/process/app/cli")
LOCKS = ("requirements.lock", "requirements-dev.lock")
ELSEWHERE = (".pyenv/versions/{}.*/bin/python{}", ".local/share/uv/python/cpython-{}.*/bin/python{}")


def is_version(program: str, version: str) -> bool:
    """Whether a program is a Python of a version that can make environments; shims of pyenv need not be."""
    script = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def find(version: str, home: Path | None = None) -> str | None:
    """Return the path of a Python, the newest of its version outside of the path; None without one."""
    found: list[str | None] = [shutil.which(f"python{version}")]
    for pattern in ELSEWHERE:
        found += map(str, sorted((home or Path.home()).glob(pattern.format(version, version)), reverse=True))
    return next((program for program in found if program and is_version(program, version)), None)


def install(program: str, place: Path) -> Path:
    """Make an environment from the lock files, unless it is there and they are older; return its Python."""
    python, stamp = place / "bin" / "python", place / ".installed"
    if stamp.exists() and all((ROOT / lock).stat().st_mtime < stamp.stat().st_mtime for lock in LOCKS):
        return python
    subprocess.run([program, "-m", "venv", "--clear", place], check=True)
    for lock in LOCKS:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", ROOT / lock], check=True)
    stamp.touch()
    return python


def test(version: str, tests: list[str]) -> str:
    """Run the tests on a version and return what came of it."""
    program = find(version)
    if program is None:
        return "not found"
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        python = install(program, ROOT / "build" / "pythons" / version)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", *tests]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    except subprocess.CalledProcessError as error:
        return f"failed: {' '.join(map(str, error.cmd[1:4]))}"
    return f"passed in {time.monotonic() - started:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION", help="default: 3.11 to 3.14")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what pytest is given")
    chosen = parser.parse_args()
    results = {version: test(version, list(chosen.tests)) for version in chosen.versions}
    for version, result in results.items():
        sys.stdout.write(f"Python {version}: {result}\n")
    return int(any(result.startswith("failed") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
