"""Retention periods of subjects in the sample store."""

from typing import Any

import pytest

from oubli.core.errors import InputError
from tests.unit.app.support import forest

AT = 1_000_000


def held() -> Any:
    """c0, c1, ... of the subjects s0 to s4; of s1 c1 was added at AT, c6 at AT + 5, c11 at a time that is not known."""
    model = forest(20)
    store = model.samples_
    store.note_additions(["c1"], AT, None)
    store.note_additions(["c6"], AT + 5, None)
    return model


def test_samples_go_when_the_period_since_their_addition_is_over():
    store = held().samples_
    store.set_expiry("c6", AT + 50)
    store.set_retention("s1", 100, AT + 7)
    assert [store.expiry(name) for name in ("c1", "c6", "c11", "c2")] == [AT + 100, AT + 50, AT + 107, None]
    assert [store.belongings(name).expires_ms for name in ("c1", "c6")] == [None, AT + 50]
    assert (store.get("c1").expires_ms, store.next_expiry()) == (AT + 100, AT + 50)
    for now, limit, names in ((49, 10, []), (100, 10, ["c6", "c1"]), (200, 3, ["c6", "c1", "c11"]), (200, 1, ["c6"])):
        assert store.due(AT + now, limit) == names
    store.check_invariants()
    store.set_retention("s1", 10, AT + 90)
    assert [store.expiry(name) for name in ("c1", "c6", "c11")] == [AT + 10, AT + 15, AT + 17], "since the first time"
    store.set_retention("s1", None, AT)
    assert [store.expiry(name) for name in ("c1", "c6", "c11")] == [None, AT + 50, None]
    assert store.next_expiry() == AT + 50
    assert store.retention("s1") is None
    store.check_invariants()


def test_a_period_goes_with_the_last_sample_of_its_subject():
    model = held()
    store = model.samples_
    store.set_retention("s1", 100, AT)
    model.delete(["c6", "c11", "c16"])
    model.replace("c1", [9, "b", None], "no")
    store.set_subject("c1", "s1")
    assert store.expiry("c1") == AT + 100, "also when it is the only one and rectified"
    model.delete(["c1"])
    assert (store.periods, len(store.limits)) == ({}, 0)
    assert not any(name.startswith(("samples.retained_since", "samples.retentions")) for name in store.state())
    store.set_retention("s1", 100, AT)
    assert store.periods == {}, "nothing is kept of a subject of whom nothing is held"
    store.set_retention("s2", 100, AT)
    for name in store.ids_of_subject("s2"):
        store.set_subject(name, None)
    assert store.periods == {}
    store.check_invariants()


@pytest.mark.parametrize("period", [0, -1, 1.5, True, 2**63])
def test_a_period_is_a_number_of_milliseconds(period: Any):
    with pytest.raises(InputError):
        held().samples_.set_retention("s1", period, AT)
