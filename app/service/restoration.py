"""What a model that was kept aside must not bring back: samples that the ledger says are erased, or that expired."""

from collections.abc import Mapping

from oubli.core.model import Model

KINDS = ("deletion", "rectification", "expiry")


def drop_gone(model: Model, gone: Mapping[str, str], now_ms: int) -> dict[str, int]:
    """Delete samples from a model without a trace; return how many by kind.

    Parameters
    ----------
    model
        Nobody else uses it meanwhile.
    gone
        Ids that it holds, and what they were erased by; see `LedgerDatabase.erased_since`.
    now_ms
        The time: samples that have expired by then go too.
    """
    store = model.samples_
    kinds = dict.fromkeys(store.due(now_ms, len(store)), "expiry") | dict(gone)
    if kinds:
        model.delete(list(kinds))
        if model.guarantee != "exact":
            model.scrub()  # what was deleted has left its traces
    model.resolve()
    model.wipe()
    counts = dict.fromkeys(KINDS, 0)
    for kind in kinds.values():
        counts[kind] += 1
    return counts


def dropped_fields(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts as the ledger's entry has them."""
    return {
        "dropped_erased": counts["deletion"],
        "dropped_rectified": counts["rectification"],
        "dropped_expired": counts["expiry"],
    }
