"""The root over an export is that of the verifier, which shares no code with it, errors included."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli import verifier
from oubli.app.cli import audit_fits as module
from oubli.app.cli.audit_fits import set_root
from oubli.verifier import FailedError
from tests.unit.verifier.test_canonical import FLOATS
from tests.unit.verifier.test_sets import sample

KEY = bytes(range(32))
VALUES = st.one_of(st.integers(-(2**70), 2**70), FLOATS, st.text(max_size=6), st.booleans(), st.none())
# With names that UTF-8 puts in another order than UTF-16, and text that has to be escaped.
NAMES = st.one_of(st.sampled_from(["a", "B", "é", "\ue000", "\U0001f600", '"\\\n\x7f']), st.text(max_size=3))


def outcome(make: Callable[[list[Any], bytes], bytes], samples: list[Any]) -> Any:
    try:
        return make(samples, KEY)
    except FailedError as error:
        return error.rule, str(error)


@pytest.fixture(autouse=True, scope="module")
def _by_the_kernel() -> Any:
    """However few samples there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", 0)
        yield


FIELDS = {"features": st.dictionaries(NAMES, VALUES, max_size=3), "label": VALUES, "weight": VALUES | st.just(1)}
SAMPLES = st.fixed_dictionaries({**FIELDS, "subject": st.none() | st.sampled_from("xyz"), "id": st.text()})


@settings(deadline=None)  # the first one loads the kernel
@given(st.lists(SAMPLES, max_size=5, unique_by=lambda one: one["id"]))
def test_the_root_is_that_of_the_verifier(fields: list[dict[str, Any]]) -> None:
    samples = [{**sample(number), **one} for number, one in enumerate(fields)]
    assert outcome(set_root, samples) == outcome(verifier.set_root, samples)


def test_what_servers_write_is_hashed_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [sample(number) for number in range(50)]
    samples += [{**sample(number), "subject": f"s{number % 3}", "label": 0.5} for number in range(50, 60)]
    expected = verifier.set_root(samples, KEY)
    monkeypatch.setattr(verifier, "set_root", None)
    assert set_root(samples, KEY) == expected


FIELDS_HASHED = ("id", "subject", "features", "label", "nonce")
ODD = (None, True, 7, "1", "r-1", "", "A" * 32, "0" * 31, "0" * 64, [1], [1, 2], float("nan"), float("inf"))
ODD_FEATURES = ({"a": [1.5, {"b": 2}]}, {"a": float("nan")}, {"a": "\ud800"})


def test_what_servers_do_not_write_is_judged_by_the_verifier() -> None:
    """Fields that are something else, or missing."""
    broken = [{**sample(3), name: odd} for name, odd in product((*FIELDS_HASHED, "weight", "restricted_at"), ODD)]
    broken += [{**sample(3), "features": odd} for odd in ODD_FEATURES]
    broken += [{name: value for name, value in sample(3).items() if name != lacking} for lacking in FIELDS_HASHED]
    for one in (*broken, {**sample(3), "restricted_at": "2026-01-01T00:00:00Z", "nonce": None}):
        samples = [sample(1), sample(2), one]
        assert outcome(set_root, samples) == outcome(verifier.set_root, samples)


def test_names_with_one_position_share_a_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Positions, "of", lambda *_: 5)
    monkeypatch.setattr(verifier.sets, "position_of", lambda *_: 5)
    samples = [sample(number) for number in range(5)]
    assert set_root(samples, KEY) == verifier.set_root(samples, KEY)
