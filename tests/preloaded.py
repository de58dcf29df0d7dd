"""What a server imports and loads from the kernel cache: nine tenths of the CPU time of a start.

The fork server of `tests.serving.forked` imports this module once; what it forks has all of it.
"""

import gc
from importlib import import_module

from oubli.app.service.compiling import use_kernel_cache

use_kernel_cache()  # before anything imports Numba

import oubli.app.cli.main  # noqa: E402
import oubli.app.http.server  # noqa: E402
import oubli.app.http.standby  # noqa: E402, F401
from oubli.app.service.compiling import prepare_kernels  # noqa: E402
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task  # noqa: E402

# What only some commands import, when they run.
for _name in ("build", "jobs.fits", "recovery.start"):
    import_module(f"oubli.app.service.{_name}")
schema = Schema((Column("x", ColumnType.NUMERIC, "float32"),), Task.CLASSIFICATION, LabelType.INTEGER)
prepare_kernels("forest", schema, answers=False)
gc.collect()
gc.freeze()  # so that children need no copies of it
