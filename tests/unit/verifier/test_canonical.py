"""The fast way to write a sample gives what the slow one does, which follows RFC 8785 step by step."""

import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli.verifier.canonical import _text, canonical_sample

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-4, 9.999e-5, 1e-6, 1e-7, 1e15, 1e16, 123456789012345680.0, 1e20, 1e21, 5e-324]
NUMBERS += [1e16 - 2, 0.5, 1 / 3]
# Of RFC 8785, appendix B.
NUMBERS += [-5e-324, 1.7976931348623157e308, 2.0**53, -(2.0**53), 2.9514790517935283e20, 9.999999999999997e22, 1e23]
NUMBERS += [1.0000000000000001e23, 9.999999999999997e20, 9.999999999999999e20, 9.999999999999997e-7, 333333333.3333332]
NUMBERS += [-3.3333333333333333e-6, 1424953923781206.2]
INTEGERS = st.sampled_from([2**53, 2**70, -(2**53)]) | st.integers()
TEXTS = st.sampled_from(["", "a", "ä", "€", "\u2028", "😀", '"\\\b\f\n\r\t', "\x00\x1f\x7f", "/"])
NAMES = st.sampled_from(["a", "B", "aa", "ä", "\ue000", "😀", "z\x01"])
FLOATS = st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False)


def contents(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


@settings(max_examples=400)
@given(contents(FLOATS | TEXTS | st.none() | st.booleans()))
def test_both_ways_give_what_another_implementation_does(value: Any) -> None:
    assert canonical_sample(value) == _text(value).encode() == rfc8785.dumps(value)


@given(contents(FLOATS | INTEGERS))
def test_integers_may_be_larger_than_others_take(value: Any) -> None:
    assert canonical_sample(value) == _text(value).encode()


@pytest.mark.parametrize("value", [math.nan, {"a": math.inf}, {"a": {1, 2}}, object(), ["\ud800"]])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it says nothing
        canonical_sample(value)
