"""Which kernels a program calls with which types, found out without compiling: kernels are interpreted and noted.

Run with NUMBA_DISABLE_JIT=1, before anything else imports `core`.
"""

from oubli.core.jit.compilation import note_calls

Signature = tuple[str, str]
called: set[Signature] = set()
note_calls(lambda kernel, types: called.add((kernel, str(types))))
