"""Hypothesis for all tests of `core`: the same examples in every run, no time limit on one."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "core",
    deadline=None,  # the first call of a kernel compiles it
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("core")


@pytest.fixture(autouse=True, scope="session")
def _arithmetic_as_compiled() -> Iterator[None]:
    """Let kernels wrap around and divide by zero in silence when they run interpreted, too."""
    with np.errstate(all="ignore"):
        yield
