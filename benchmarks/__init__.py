"""One question a script; the answers are in RESULTS.md.

Importing this package settles what all of them share: one thread everywhere, set before NumPy and its libraries
start theirs, and compiled kernels that belong to the sources as they are.
"""

import os

from oubli.app.service.kernel_cache import use_kernel_cache

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
use_kernel_cache()
