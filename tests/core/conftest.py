"""Hypothesis for all tests of `core`: the same examples in every run, no time limit on one."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "core",
    deadline=None,  # the first call of a kernel compiles it
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("core")
