"""The cache of compiled kernels: whatever is wrong with it is a miss, never an error and never other code."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core.jit import policy as kernel_cache
from oubli.core.jit.policy import SUFFIX, inner, kernel, origin_of

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

FACTOR = 3
STEP = 10


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


def damages() -> dict[str, Callable[[Path], object]]:
    def flip(where: float) -> Callable[[Path], object]:
        def damage(path: Path) -> None:
            content = bytearray(path.read_bytes())
            content[int(where * (len(content) - 1))] ^= 1
            path.write_bytes(content)

        return damage

    def cut(share: float) -> Callable[[Path], object]:
        return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    def replace_by_directory(path: Path) -> None:
        path.unlink()
        path.mkdir()

    def link_to_itself(path: Path) -> None:
        path.unlink()
        path.symlink_to(path)

    return {
        "empty": cut(0),
        "cut in the head": cut(0.01),
        "cut in the middle": cut(0.5),
        "one byte short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "one byte long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
        "noise": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
        "a pickle of something else": lambda path: path.write_bytes(pickle.dumps({})),
        "flipped at the start": flip(0),
        "flipped in the checksum": flip(0.004),
        "flipped in the middle": flip(0.5),
        "flipped at the end": flip(1),
        "gone": lambda path: path.unlink(),
        "a directory": replace_by_directory,
        "a link to itself": link_to_itself,
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages().keys())
def test_a_damaged_file_is_a_miss(directory: Path, damage: Callable[[Path], object]) -> None:
    call()
    (path,) = files(directory)
    damage(path)
    assert call() == (21, 1)


def test_a_repaired_file_is_a_hit(directory: Path) -> None:
    call()
    (path,) = files(directory)
    path.write_bytes(b"")
    assert [call()[1], call()[1]] == [1, 0]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE], ids=errno.errorcode.get)
def test_a_file_that_cannot_be_read_is_a_miss(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(path: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    call()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert call() == (21, 1)


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


@pytest.mark.parametrize(
    ("where", "what", "value"),
    [
        ("numba", "__version__", "0.1"),
        ("np", "__version__", "0.1"),
        ("sys", "version", "4.0"),
    ],
)
def test_code_of_other_versions_is_a_miss(monkeypatch: pytest.MonkeyPatch, where: str, what: str, value: str) -> None:
    call()
    module = getattr(kernel_cache, where)
    monkeypatch.setattr(kernel_cache, where, SimpleNamespace(**{**vars(module), what: value}))
    assert call() == (21, 1)


def test_code_with_other_flags_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    assert call() == (21, 1)


# What a kernel is compiled from


def chain(factor: int, step: int) -> Any:
    """Kernels that call each other, with constants of their own; no one has called them."""
    globals_ = {"inner": inner, "kernel": kernel, "FACTOR": factor, "STEP": step, "__name__": "m"}
    source = """
        @inner
        def bottom(x):
            return x + STEP

        @inner
        def middle(x):
            return bottom(x) * FACTOR

        @kernel
        def top(x):
            return middle(x)
    """
    exec(textwrap.dedent(source), globals_)  # noqa: S102
    return globals_["top"]


def test_an_edit_of_a_callee_is_a_miss_and_no_edit_is_a_hit() -> None:
    assert chain(2, 1)(5) == 12
    again = chain(2, 1)
    assert (again(5), misses_of(again)) == (12, 0)
    for factor, step, expected in ((2, 4, 18), (3, 1, 18), (-2, 1, -12)):
        edited = chain(factor, step)
        assert (edited(5), misses_of(edited)) == (expected, 1)


def test_the_origin_sees_code_constants_and_options() -> None:
    def made(source: str, decorate: Any = kernel, **names: Any) -> bytes:
        globals_ = {"decorate": decorate, "np": np, "__name__": "m", **names}
        exec(f"@decorate\ndef one(x, y=1):\n    {source}", globals_)  # noqa: S102
        return origin_of(globals_["one"])

    origins = [
        made("return x"),
        made("return y"),
        made("return x + 1"),
        made("return x + 1.0"),
        made("return x - 0.0"),
        made("return x + 0.0"),
        made("return x + C", C=1),
        made("return x + C", C=1.0),
        made("return x + C", C=np.uint8(1)),
        made("return x + C", C=np.uint64(1)),
        made("return x + C[0]", C=np.arange(3)),
        made("return x + C[0]", C=np.arange(3, dtype=np.int32)),
        made("return x + C[0]", C=np.arange(1, 4)),
        made("return x + C[0]", C=(1, 2)),
        made("return x + C[0]", C=(1, 2.0)),
        made("return x", inner),
    ]
    assert len(set(origins)) == len(origins)
    assert made("return x + C[0]", C=np.arange(3)) == made("return x + C[0]", C=np.arange(3))


def test_kernels_that_call_each_other_have_an_origin() -> None:
    globals_ = {"kernel": kernel, "__name__": "m"}
    exec("@kernel\ndef a(x):\n    return b(x)\n@kernel\ndef b(x):\n    return a(x)", globals_)  # noqa: S102
    assert origin_of(globals_["a"]) != origin_of(globals_["b"])


# What cannot be written

REFUSALS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE, errno.ESTALE)


@pytest.mark.parametrize(
    ("step", "number"),
    [(step, errno.ENOSPC) for step in ("mkdir", "mkstemp", "replace")] + [("write", n) for n in REFUSALS],
)
def test_a_kernel_runs_when_it_cannot_be_kept(
    monkeypatch: pytest.MonkeyPatch, directory: Path, step: str, number: int
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    def write_half(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:100])
        refuse()

    with monkeypatch.context() as broken:
        if step == "mkstemp":
            broken.setattr("tempfile.mkstemp", refuse)
        elif step == "write":
            broken.setattr(Path, "write_bytes", write_half)
        else:
            broken.setattr(Path, step, refuse)
        assert call() == (21, 1)
    assert not directory.exists() or {path.name for path in directory.iterdir()} <= {"claims"}
    assert call() == (21, 1)
    assert call() == (21, 0)


def test_a_directory_that_vanishes_is_made_again(directory: Path) -> None:
    call()
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert call() == (21, 1)
    assert call() == (21, 0)


def test_a_file_in_place_of_the_directory_is_no_error(directory: Path) -> None:
    directory.write_text("")
    assert call() == (21, 1)
    assert call() == (21, 1)


def test_what_cannot_be_kept_is_said_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.write_text("")
    call()
    call(0.5)
    assert len(caplog.records) == 1
    assert "the next process compiles again" in caplog.text


def test_without_a_directory_that_is_named_the_user_s_cache_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


# Processes

WRITER = """
import sys
from oubli.core.jit import policy as kernel_cache
from oubli.core.jit.policy import _packed, _read, _write
from pathlib import Path

sys.stdin.readline()
for i in range(200):
    path = Path(sys.argv[1]) / f"kernel-{i}"
    _write(path, _packed(b"key", (i,), (sys.argv[2], i)))
    assert _read(path, b"key", (i,))[1] == i
"""


def test_processes_that_write_the_same_files_at_the_same_time(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stdin=subprocess.PIPE, text=True)
        for name in "abc"
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert len(list(tmp_path.iterdir())) == 200


def test_a_process_runs_the_kernels_of_a_model_with_a_damaged_cache(directory: Path) -> None:
    """Each file of a cache that another process has filled is damaged in some way."""
    script = textwrap.dedent("""
        import numpy as np
        from oubli.core.data.encoding import convert, is_clean
        from oubli.core.rng import mix

        cells = np.zeros((2, 2), np.float32)
        narrow = np.ones(2, np.bool_)
        print(convert(np.array([[1.5, 2.0], [0.1, -0.0]]), cells, narrow), is_clean(cells), int(mix(np.uint64(5))))
        print(cells.tolist(), convert.stats.cache_misses != {})
    """)

    def run() -> list[str]:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    first = run()
    assert first[1].endswith("True")
    kept = files(directory)
    assert len(kept) >= 3
    for path, damage in zip(kept, [*damages().values()] * len(kept), strict=False):
        damage(path)
    assert run() == first
    for path in directory.iterdir():
        path.unlink() if path.is_file() or path.is_symlink() else path.rmdir()
    assert run() == first
    assert run() == [first[0], first[1].replace("True", "False")]
