"""Hypothesis and arithmetic for the tests of `core`."""

from tests.interpreted import _arithmetic_as_compiled  # noqa: F401
