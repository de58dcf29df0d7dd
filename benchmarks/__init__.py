"""Benchmarks: each script answers one question; the answers are in RESULTS.md and `results/`.

Importing this package limits all libraries to one thread, before NumPy starts any, and selects the compiled kernels
that belong to the current sources.
"""

import os

from oubli.app.service.compiling import use_kernel_cache

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
use_kernel_cache()
