"""The decorators for compiled code, and the policy they stand for.

Every compiled function of `core` is decorated with one of these and with nothing else, so that
these choices are made once:

    kernel   called from Python
    inner    called from kernels only: its code is a part of theirs (`core.jit.linking`)
    pasted   the same, put into its caller's code whatever its size: for what runs in every node. A call
             hands over every field of every array of `Trees`, `Scratch` and so on, some three hundred
             words

Of all of them:

* `fastmath` stays off: with it NaN tests vanish and sums change their order (bit-exactness).
* `parallel` stays off: a `prange` on the default threading layer aborts the process when two
  threads meet in it.
* `nogil`: health checks and predictions run while a long kernel runs in another thread.
* `error_model="numpy"`: a division by zero gives inf or NaN instead of raising in compiled code;
  kernels report by status codes and never raise.
* `_nrt=False`: no reference counting. Kernels allocate nothing and return numbers only; the arrays
  that they and their views read belong to the caller. Counting references to some forty arrays, with
  an atomic operation each, took a third of a fit and half of the compile time.
* a cache of kernels on the disk: the second process does not compile.
* calls are typed by types alone. Numba takes a constant among the arguments for a type of its own, and compiles the
  callee once for each: that was a fifth of all that was compiled.

The cache is on the disk: one file for each kernel and each set of argument types.

    oubli.core.rng.mix-4f0c...e1.kernel     named after the hash of its key
        magic, checksum of what follows
        key       what the code was compiled from and for; compared before anything else is read
        types     of the arguments; compared as well
        code

The key holds everything that the machine code depends on: the bytecode of the kernel and of all kernels that it calls,
the constants that they use, the options of the compiler, the versions of Python, NumPy, Numba and llvmlite, and the
processor. So an edit of a callee in another file is a miss, and an edit elsewhere keeps the code.

A file that is damaged, foreign, unreadable or missing is a miss: the kernel is compiled. A file that cannot be written
is left out: the next process compiles again. Neither is ever an error of the call that needed the kernel. A file is
written beside its place and moved there, so that processes which write at the same time need no lock. A process that
compiles a kernel holds a lock on a byte of the file `claims`, so that others wait for the kernel instead of compiling
it as well.

Loading runs what the files hold: their directory must belong to the user.

A kernel that is not in the cache is compiled where it is called, unless somebody has said how the cache is filled
(`fill_with`): models say that other processes compile all that such models use.

Calling a kernel time and again with arguments of the same types.

At each call Numba looks at every array of every named tuple to find out what was compiled for such. For the kernels
that take all of a forest that is some 7 us, which is as long as walking down a tree. `Direct` is for
callers whose types stay the same.
"""

import base64
import hashlib
import logging
import os
import pickle
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import config, njit, typeof
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.types.misc import unliteral
from numba.misc.appdirs import AppDirs

from oubli.core.jit.linking import FORM, InnerCompiler, KernelCompiler

if os.name == "posix":
    import fcntl

VARIABLE = "NUMBA_CACHE_DIR"
SUFFIX = ".kernel"
_TEMPORARY = ".writing"
_MAGIC = b"oubli kernel 1\n"
_DIGEST_SIZE = 32
# What changes compiled code and stands in no key of Numba's.
_FLAGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "DEBUGINFO_DEFAULT", "FULL_TRACEBACKS")
_DAY = 86_400.0
_KEPT_DAYS = 30  # files of a kernel that were not loaded for so long are removed when it is compiled again

_LONGEST_WAIT = 300.0  # seconds for a kernel that another process compiles
_PAUSE = 0.05  # seconds between two looks

log = logging.getLogger("oubli.kernels")
compiling_log = log.getChild("compiling")
_told: set[str] = set()
_here = threading.local()


class NotKeptError(Exception):
    """A kernel is not in the cache, and is not to be compiled here."""


@contextmanager
def only_kept() -> Iterator[None]:
    """Load kernels in this thread and compile none: `NotKeptError` when one is not in the cache."""
    _here.only_kept = True
    try:
        yield
    finally:
        _here.only_kept = False


@contextmanager
def compiling_here() -> Iterator[None]:
    """Compile in this thread whatever is not in the cache, and fill it in no other way."""
    before, _here.compiles = getattr(_here, "compiles", False), True
    try:
        yield
    finally:
        _here.compiles = before


_wanted: dict[Any, Callable[[Any], object]] = {}
_filled: set[Any] = set()


def fill_with(fill: Callable[[Any], object], usage: Any) -> None:
    """Call a function with what it fills the cache for, once, when this process meets a kernel that is not there.

    Whatever is missing afterwards is compiled in this process.
    """
    if usage not in _filled:
        _wanted[usage] = fill


def note_filled(usage: Any) -> None:
    """Note that nothing is missing for it any more."""
    _filled.add(usage)
    _wanted.pop(usage, None)


def _fill() -> bool:
    """Call what `fill_with` was given; return whether there was something."""
    is_due = bool(_wanted)
    while _wanted:
        usage, fill = _wanted.popitem()
        _filled.add(usage)
        fill(usage)
    return is_due


class KernelCache(NullCache):  # type: ignore[misc]
    """What Numba asks for compiled code of one kernel, and gives it to.

    Parameters
    ----------
    dispatcher
        The kernel. Its key is made when it is first compiled: by then all its callees are defined.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._name = f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}".replace("<", "").replace(
            ">", ""
        )
        self._is_ours = self._name.startswith("oubli.core.")
        self._is_kept = not dispatcher.targetoptions.get("no_cpython_wrapper")  # code of others is in their kernels
        self._origin: bytes | None = None
        self.own: tuple[bytes, list[Any]] | None = None  # see `_own_origin`

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel compiled for a signature, None when the cache does not have it.

        The context is not refreshed, as Numba's own cache does it: that imports all that Numba can compile, a third of
        a second. Compiling does it when it comes to that, and without reference counting (`_nrt`) code that is loaded
        refers to nothing that is not there with the context.
        """
        if not self._is_kept:
            return None
        types = _argument_types(sig)
        try:
            key = self._key(types, target_context.codegen())
            payload = self._kept(key, types)
            if payload is None and not getattr(_here, "only_kept", False):
                is_filled = self._is_ours and not getattr(_here, "compiles", False) and _fill()
                payload = (self._kept(key, types) if is_filled else None) or self._awaited(key, types)
            if payload is not None:
                return CompileResult._rebuild(target_context, *payload)
        except Exception as error:  # whatever is wrong with a cache: compiling does not need it
            _tell(f"compiled code could not be loaded ({type(error).__name__}): it is compiled again")
        if getattr(_here, "only_kept", False):
            raise NotKeptError(self._name)
        return None

    def _kept(self, key: bytes, types: Any) -> Any:
        """Return what the cache has, None when it has nothing."""
        found = (_read(directory / self._file_name(key), key, types) for directory in directories(self._source))
        return next((payload for payload in found if payload is not None), None)

    def _awaited(self, key: bytes, types: Any) -> Any:
        """Claim a kernel, which this process compiles then; or wait for the one that does, and return the code."""
        for directory in directories(self._source):
            with suppress(OSError):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                claims.take(directory, key)
                payload = self._kept(key, types)  # another process may have compiled it since it was looked for
                if payload is not None:
                    claims.give_back(key)
                return payload
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled for a signature."""
        if not self._is_kept or data.lifted or data.library.has_dynamic_globals:
            return
        types = _argument_types(sig)
        try:
            key = self._key(types, data.codegen)
            content = _packed(key, types, data._reduce())
        except Exception as error:
            _tell(f"compiled code could not be kept ({type(error).__name__}): the next process compiles again")
            return
        refusal = "no directory"
        for directory in directories(self._source):
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(directory / self._file_name(key), content)
            except (OSError, MemoryError) as error:
                refusal = f"{directory}: {getattr(error, 'strerror', None) or type(error).__name__}"
                continue
            self._remove_old(directory)
            break
        else:
            _tell(f"compiled code could not be kept ({refusal}): the next process compiles again")
        claims.give_back(key)

    # --- names

    @property
    def _source(self) -> str:
        return str(self._dispatcher.py_func.__code__.co_filename)

    def _file_name(self, key: bytes) -> str:
        return f"{self._name}-{hashlib.blake2b(key, digest_size=16).hexdigest()}{SUFFIX}"

    def _key(self, types: Any, codegen: Any) -> bytes:
        if self._origin is None:
            self._origin = origin_of(self._dispatcher)
        return b"\0".join((self._origin, _platform(), repr(codegen.magic_tuple()).encode(), str(types).encode()))

    def _remove_old(self, directory: Path) -> None:
        """Remove files that were not loaded for long, and those left half written."""
        now = time.time()
        for path in directory.glob(f"{self._name}-*"):
            days = 1 if path.name.endswith(_TEMPORARY) else _KEPT_DAYS
            with suppress(OSError):
                if path.stat().st_mtime < now - days * _DAY:
                    path.unlink()


def origin_of(dispatcher: Any) -> bytes:
    """Return a hash of all that a kernel is compiled from: its own code, and what its names lead to."""
    waiting, seen = [dispatcher], {id(dispatcher): dispatcher}
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    while waiting:
        own, callees = _own_origin(waiting.pop())
        digest.update(own)
        fresh = [callee for callee in callees if id(callee) not in seen]
        seen.update((id(callee), callee) for callee in fresh)
        waiting += fresh
    return digest.digest()


def _own_origin(dispatcher: Any) -> tuple[bytes, list[Any]]:
    """Return a hash of a kernel's own code and constants, and the kernels that it calls."""
    cache = dispatcher._cache
    known = getattr(cache, "own", None)
    if known is not None:
        return known  # type: ignore[no-any-return]
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    callees: dict[int, Any] = {}
    digest.update(repr(sorted(dispatcher.targetoptions.items(), key=str)).encode())
    _describe(dispatcher.py_func, digest, callees, set())
    found = digest.digest(), list(callees.values())
    if isinstance(cache, KernelCache):
        cache.own = found
    return found


def _describe(value: Any, digest: Any, callees: dict[int, Any], seen: set[int]) -> None:
    """Take a value that a kernel uses into a hash; kernels are listed by name, to be described by themselves."""
    if isinstance(value, Dispatcher):
        callees[id(value)] = value
        digest.update(f"kernel {value.py_func.__module__}.{value.py_func.__qualname__}".encode())
    elif isinstance(value, _Intrinsic):
        _describe(value._defn, digest, callees, seen)
    elif isinstance(value, FunctionType):
        _describe_function(value, digest, callees, seen)
    elif isinstance(value, ModuleType):
        digest.update(f"module {value.__name__}".encode())
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype.descr} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, type):
        digest.update(f"type {value.__module__}.{value.__qualname__} {getattr(value, '_fields', '')}".encode())
    elif isinstance(value, np.generic):
        digest.update(f"{value.dtype.str} {value!r}".encode())
    elif isinstance(value, tuple | list):
        digest.update(f"{type(value).__name__} {len(value)}".encode())
        for item in value:
            _describe(item, digest, callees, seen)
    elif isinstance(value, Enum) or value is None or type(value) in (bool, int, float, complex, str, bytes):
        digest.update(f"{type(value).__name__} {value!r}".encode())
    else:
        digest.update(dumps(value))
    digest.update(b"\0")


def _describe_function(function: Any, digest: Any, callees: dict[int, Any], seen: set[int]) -> None:
    digest.update(f"function {function.__module__}.{function.__qualname__}".encode())
    if id(function) in seen:
        return
    seen.add(id(function))
    _describe(function.__defaults__, digest, callees, seen)
    for cell in function.__closure__ or ():
        _describe(cell.cell_contents, digest, callees, seen)
    for name in _describe_code(function.__code__, digest):
        value = function.__globals__.get(name)
        if value is not None:
            digest.update(f"{name}=".encode())
            _describe(value, digest, callees, seen)
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == __name__.partition(".")[0]:
            # A module of ours: whatever is named may be one of its own.
            for own in function.__code__.co_names:
                if own in vars(value):
                    digest.update(f"{own}=".encode())
                    _describe(vars(value)[own], digest, callees, seen)


def _describe_code(code: CodeType, digest: Any) -> list[str]:
    """Take bytecode into a hash; return the names that it looks up, without repetition."""
    digest.update(code.co_code)
    shape = (code.co_argcount, code.co_varnames, code.co_names, code.co_freevars, code.co_cellvars)
    digest.update(repr(shape).encode())
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _describe_code(constant, digest)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(f"{type(constant).__name__} {constant!r}".encode())
    return list(dict.fromkeys(names))


def _platform() -> bytes:
    flags = [(name, str(getattr(config, name, None))) for name in _FLAGS]
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag, sys.version)
    return repr((versions, FORM, platform.system(), platform.machine(), flags)).encode()


def text_of(types: Any) -> str:
    """Return the types of arguments as text for another process of ours."""
    return base64.b64encode(dumps(types)).decode()


def types_of(text: str) -> Any:
    """Return what `text_of` was given."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - our own


def _argument_types(sig: Any) -> Any:
    return tuple(normalize_signature(sig)[0])


# --- files


def directories(source: str = __file__) -> Iterator[Path]:
    """Where compiled code may be: where the user says, else in the user's cache, else beside the source."""
    named = os.environ.get(VARIABLE) or config.CACHE_DIR
    if named:
        yield Path(named)
        return
    with suppress(RuntimeError):  # a user without a home directory
        yield Path(AppDirs("oubli", False).user_cache_dir).expanduser() / "kernels"
    yield Path(source).parent / "__pycache__"


def is_writable() -> bool:
    """Whether a process that compiles can keep what it compiled where this one finds it."""
    for directory in directories():
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(directory, os.W_OK | os.X_OK):
                return True
    return False


class _Claims:
    """Which kernels this process compiles: locks on single bytes of a file, which end with the process at last."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}
        self._held: dict[bytes, int] = {}  # the open file, by key

    def take(self, directory: Path, key: bytes) -> None:
        """Claim a kernel; if another process has it, wait until it has compiled it."""
        if os.name != "posix":
            return
        if directory not in self._files:
            self._files[directory] = os.open(directory / "claims", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        file, deadline = self._files[directory], time.monotonic() + _LONGEST_WAIT
        while time.monotonic() < deadline:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(key))
            except (BlockingIOError, PermissionError):
                time.sleep(_PAUSE)
                continue
            self._held[key] = file
            return

    def give_back(self, key: bytes) -> None:
        """Let others have a kernel that is in the cache now."""
        file = self._held.pop(key, None)
        if file is not None:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _byte_of(key))

    def give_all_back(self) -> None:
        """Let others have all kernels, also those whose compilation has failed."""
        for key in list(self._held):
            self.give_back(key)


claims = _Claims()


def _byte_of(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=3).digest(), "little")


def _packed(key: bytes, types: Any, payload: Any) -> bytes:
    body = b"".join(len(part).to_bytes(8, "little") + part for part in (key, dumps(types), dumps(payload)))
    return _MAGIC + hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest() + body


def _read(path: Path, key: bytes, types: Any) -> Any:
    """Return the code in a file, None unless it is whole and for this key and these types."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST_SIZE
    body = content[start:]
    checksum = hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest()
    if content[:start] != _MAGIC + checksum:
        return None
    parts = []
    while body:
        size = int.from_bytes(body[:8], "little")
        parts.append(body[8 : 8 + size])
        body = body[8 + size :]
    if len(parts) != 3 or parts[0] != key or pickle.loads(parts[1]) != types:  # noqa: S301 - see the top of this file
        return None
    with suppress(OSError):
        now = time.time()
        if path.stat().st_mtime < now - _DAY:
            os.utime(path)  # says that it is of use
    return pickle.loads(parts[2])  # noqa: S301


def _write(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=_TEMPORARY, dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _tell(text: str) -> None:
    """Log a text once in a process."""
    if text not in _told:
        _told.add(text)
        log.warning(text)


# -- the decorators ---------------------------------------------------------------------------------

_POLICY = {"nogil": True, "error_model": "numpy", "_nrt": False}
_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _template_of_types(template: Callable[..., Any], args: Iterable[Any], kws: Mapping[str, Any]) -> Any:
    """Type a call by the types of its arguments: a constant is one of its type, not a type of its own."""
    return template(tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()})


def _cached(**options: Any) -> Callable[[Any], Any]:
    decorate = njit(**options)

    def decorated(function: Any) -> Any:
        compiled: Any = decorate(function)
        if not config.DISABLE_JIT:
            compiled._cache = KernelCache(compiled)
            compiled.get_call_template = partial(_template_of_types, compiled.get_call_template)
        return compiled

    return decorated


_INNER = {**_POLICY, **_NO_WRAPPERS, "pipeline_class": InnerCompiler}

kernel = _cached(**_POLICY, pipeline_class=KernelCompiler)
inner = _cached(**_INNER)
pasted = _cached(**_INNER, forceinline=True)


class Direct:
    """A kernel as it was compiled for the types of the first call.

    Every later call must have arguments of these types: dtypes, dimensions and C order included. They are not looked
    at, so others would be read as what they are not.

    Parameters
    ----------
    kernel
        A compiled function; interpreted ones are called as they are.
    """

    __slots__ = ("_kernel", "call")

    call: Callable[..., Any]

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self.call = self._first_call

    def _first_call(self, *arguments: Any) -> Any:
        kernel: Any = self._kernel
        result = kernel(*arguments)
        compiled = getattr(kernel, "overloads", {}).get(tuple(map(typeof, arguments)))
        self.call = kernel if compiled is None else compiled.entry_point
        return result
