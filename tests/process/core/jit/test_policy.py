"""The cache of compiled kernels: whatever is wrong with it is a miss, never an error and never other code."""

import errno
import hashlib
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core.jit import policy as kernel_cache
from oubli.core.jit.policy import SUFFIX, inner, kernel, origin_of
from tests.tiers import ordinary

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

FACTOR = 3


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache of this test."""
    place = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place))
    monkeypatch.setattr(kernel_cache, "_told", set())
    return place


def scaled() -> Any:
    """A kernel that no one has called, as in a new process: FACTOR times a number."""

    @kernel
    def scale(x):  # type: ignore[no-untyped-def]
        return FACTOR * x

    return scale


def misses_of(made: Any) -> int:
    return sum(made.stats.cache_misses.values())


def call(argument: Any = 7) -> tuple[Any, int]:
    """What a fresh kernel answers, and how often it was compiled."""
    made = scaled()
    return made(argument), misses_of(made)


def files(place: Path) -> list[Path]:
    return sorted(place.glob(f"*{SUFFIX}"))


# What is kept


def test_the_second_time_nothing_is_compiled(directory: Path) -> None:
    assert call() == (21, 1)
    assert call() == (21, 0)
    assert call(0.5) == (1.5, 1)
    assert call(0.5) == (1.5, 0)
    assert len(files(directory)) == 2
    assert {path.suffix for path in directory.iterdir() if path.name != "claims"} == {SUFFIX}


def test_a_kernel_is_compiled_once_whatever_constants_it_is_called_with(directory: Path) -> None:
    @inner
    def multiply(x, by, times=1):  # type: ignore[no-untyped-def]
        return x * by * times

    @kernel
    def use(x, n):  # type: ignore[no-untyped-def]
        return multiply(x, 2) + multiply(x, 3, 1) + multiply(x, n, times=5) + multiply(x, n, n)

    assert use(7, 11) == 14 + 21 + 385 + 847
    assert len(multiply.overloads) == 2  # with what is left out, which is a type, and without
    assert len(files(directory)) == 1


def test_code_of_another_type_is_not_loaded_under_the_name_of_this_one(directory: Path) -> None:
    """As after a kill between an index and its data, or a mistake of anyone who copies the files."""
    call(7)
    call(0.5)
    first, second = files(directory)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert call(7) == (21, 1)
    assert call(0.5) == (1.5, 1)


def flip(where: float) -> Callable[[bytes], bytes]:
    def flipped(content: bytes) -> bytes:
        at = int(where * (len(content) - 1))
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    return flipped


# What is there instead; the last three are no contents.
DAMAGES: dict[str, Any] = {
    "empty": lambda content: b"", "cut in the head": lambda content: content[: len(content) // 100],
    "cut in the middle": lambda content: content[: len(content) // 2], "one byte short": lambda content: content[:-1],
    "one byte long": lambda content: content + b"\0", "zeros": lambda content: bytes(len(content)),
    "noise": lambda content: random.Random(1).randbytes(len(content)), "flipped at the end": flip(1),
    "a pickle of something else": lambda content: pickle.dumps({}), "flipped at the start": flip(0),
    "flipped in the checksum": flip(0.004), "flipped in the middle": flip(0.5), "nothing": None,
    "a directory": Path.mkdir, "a link to itself": lambda path: path.symlink_to(path),
}  # fmt: skip


SHORT = ("empty", "cut in the middle", "flipped in the middle", "a directory")


@pytest.mark.parametrize("damage", ordinary(DAMAGES, *SHORT))
def test_a_damaged_file_is_a_miss_and_written_again(directory: Path, damage: str) -> None:
    call()
    (path,) = files(directory)
    content = path.read_bytes()
    path.unlink()
    if damage in ("a directory", "a link to itself"):
        DAMAGES[damage](path)
    elif damage != "nothing":
        path.write_bytes(DAMAGES[damage](content))
    assert call() == (21, 1)
    if damage != "a directory":
        assert call() == (21, 0)


@pytest.mark.parametrize("part", [0, 1, 2], ids=["key", "types", "code"])
def test_parts_that_do_not_belong_together_are_a_miss(directory: Path, part: int) -> None:
    """With a checksum that is right, as another version of this program could have written it."""
    call()
    (path,) = files(directory)
    body, parts = path.read_bytes()[len(kernel_cache._MAGIC) + 32 :], []
    while body:
        size = int.from_bytes(body[:8], "little")
        parts.append(body[8 : 8 + size])
        body = body[8 + size :]
    parts[part] = pickle.dumps(None)
    body = b"".join(len(one).to_bytes(8, "little") + one for one in parts)
    path.write_bytes(kernel_cache._MAGIC + hashlib.blake2b(body, digest_size=32).digest() + body)
    assert call() == (21, 1)


def refuse(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def of_another(module: Any, what: str) -> Any:
    return SimpleNamespace(**{**vars(module), what: "0.1"})


@pytest.mark.parametrize(("where", "name", "value"), [
    (kernel_cache, "numba", of_another(kernel_cache.numba, "__version__")), (config, "BOUNDSCHECK", 1),
    (kernel_cache, "np", of_another(np, "__version__")), (kernel_cache, "sys", of_another(sys, "version")),
    (Path, "read_bytes", refuse),
])  # fmt: skip
def test_whatever_else_differs_is_a_miss(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, value: Any) -> None:
    call()
    monkeypatch.setattr(where, name, value)
    assert call() == (21, 1)


# What a kernel is compiled from


def defined(source: str, **names: Any) -> dict[str, Any]:
    """What a program defines whose functions no one has called."""
    globals_ = {"inner": inner, "kernel": kernel, "np": np, "__name__": "m", **names}
    exec(source, globals_)  # noqa: S102
    return globals_


def chain(factor: int, step: int) -> Any:
    """A kernel that calls others, with constants of their own."""
    source = "@inner\ndef bottom(x): return x + STEP\n@inner\ndef middle(x): return bottom(x) * FACTOR\n"
    return defined(f"{source}@kernel\ndef top(x): return middle(x)\n", FACTOR=factor, STEP=step)["top"]


def test_an_edit_of_a_callee_is_a_miss_and_no_edit_is_a_hit() -> None:
    edits = [(2, 1, 12, 1), (2, 1, 12, 0), (2, 4, 18, 1), (3, 1, 18, 1), (-2, 1, -12, 1)]
    for factor, step, expected, n_misses in edits:
        made = chain(factor, step)
        assert (made(5), misses_of(made)) == (expected, n_misses)


def test_the_origin_sees_code_constants_and_options() -> None:
    def made(source: str, decorator: str = "kernel", **names: Any) -> bytes:
        return origin_of(defined(f"@{decorator}\ndef one(x, y=1):\n    return {source}", **names)["one"])

    origins = [made(source) for source in ("x", "y", "x + 1", "x + 1.0", "x - 0.0", "x + 0.0")] + [made("x", "inner")]
    origins += [made("x + C", C=constant) for constant in (1, 1.0, np.uint8(1), np.uint64(1))]
    arrays = [np.arange(3), np.arange(3, dtype=np.int32), np.arange(1, 4), (1, 2), (1, 2.0)]
    origins += [made("x + C[0]", C=array) for array in arrays]
    assert len(set(origins)) == len(origins)
    assert made("x + C[0]", C=np.arange(3)) == made("x + C[0]", C=np.arange(3))
    both = defined("@kernel\ndef a(x):\n    return b(x)\n@kernel\ndef b(x):\n    return a(x)")
    assert origin_of(both["a"]) != origin_of(both["b"]), "of kernels that call each other"


# What cannot be written


@pytest.mark.parametrize("step", ["mkdir", "mkstemp", "replace", "write_bytes"])
def test_a_kernel_runs_when_it_cannot_be_kept(monkeypatch: pytest.MonkeyPatch, directory: Path, step: str) -> None:
    def write_half(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:100])
        refuse()

    with monkeypatch.context() as broken:
        broken.setattr(tempfile if step == "mkstemp" else Path, step, write_half if step == "write_bytes" else refuse)
        assert call() == (21, 1)
    assert not directory.exists() or {path.name for path in directory.iterdir()} <= {"claims"}
    assert call() == (21, 1)
    assert call() == (21, 0)


def test_a_file_in_place_of_the_directory_is_said_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.write_text("")
    assert [call(), call(), call(0.5)] == [(21, 1), (21, 1), (1.5, 1)]
    assert len(caplog.records) == 1
    assert "the next process compiles again" in caplog.text


def test_without_a_named_directory_the_user_s_cache_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert [call()[1], call()[1]] == [1, 0]
    assert len(files(tmp_path / "home" / "oubli" / "kernels")) == 1


def test_what_is_left_half_written_or_of_no_use_any_more_is_removed(directory: Path) -> None:
    call()
    (path,) = files(directory)
    stale = path.with_name(path.name.replace(path.stem[-8:], "00000000"))
    half = path.with_name(f"{path.name}.x{kernel_cache._TEMPORARY}")
    other = directory / f"another.kernel-0{SUFFIX}"
    for old in (stale, half, other):
        old.write_bytes(b"")
        os.utime(old, (0, 0))
    call(0.5)
    assert set(directory.iterdir()) == {directory / "claims", other, *files(directory)}
    assert len(files(directory)) == 3
    assert not stale.exists()
