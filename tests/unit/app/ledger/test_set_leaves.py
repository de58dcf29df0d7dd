"""Positions, hashes and numbers are those of the verifier, which shares no code with them."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.app.ledger import set_tree
from oubli.verifier import sets
from oubli.verifier.canonical import canonical_sample

NAMES = st.text(min_size=1, max_size=20)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_written_alike(value):
    assert orjson.dumps(set_tree.as_written(value)) == canonical_sample(value)
    assert float(json.loads(canonical_sample(value))) == value


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        # Of RFC 8785, appendix B.
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_published_numbers(bits, expected):
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_sample(value).decode() == expected
    assert orjson.dumps(set_tree.as_written(value)).decode() == expected


@given(NAMES, st.binary(min_size=32, max_size=32))
def test_positions_are_those_of_the_verifier(name, key):
    id_place, subject_place = (set_tree.Positions(key).of((kind, name)) for kind in ("id", "subject"))
    assert id_place == sets.position_of(key, "ids", name) < 2**47
    assert 2**47 <= subject_place == sets.position_of(key, "subjects", name) < 2**48
    assert set_tree.commitment_of(key) == sets.commitment_of(key)


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.dictionaries(st.text(max_size=8), VALUES | st.text(max_size=8), max_size=5),
    st.text(min_size=1, max_size=8),
    st.none() | st.text(min_size=1, max_size=8),
    VALUES | st.text(max_size=8),
    st.none() | st.integers(1, 2**23).map(lambda units: units / 256),
)
def test_hashes_of_samples_are_those_of_the_verifier(features: dict[str, Any], name, subject, label, weight):
    nonce = bytes(range(16))
    written = {column: set_tree.as_written(features[column]) for column in set_tree.in_order(features)}
    found = set_tree.hash_of_sample(nonce, name, subject, written, set_tree.as_written(label), weight or 1)
    # As it is after a way through JSON.
    sample = {"id": name, "subject": subject, "features": features, "label": label, "nonce": nonce.hex()}
    sample |= {} if weight is None else {"weight": weight}
    assert found == sets.hash_of_sample(json.loads(json.dumps(sample)))


def test_a_content_of_several_has_no_order():
    hashes = [sha256(bytes([number])).digest() for number in range(5)]
    assert set_tree.content_of(hashes) == set_tree.content_of(hashes[::-1]) == sets._together(hashes)
