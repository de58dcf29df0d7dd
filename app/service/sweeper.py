"""How many samples may expire at once before somebody is asked."""

from __future__ import annotations


def refuses(*, n_held: int, n_due: int, max_share: float) -> str | None:
    """Return why a sweep must wait until it is confirmed, or None when it may go on.

    A retention period with a mistake in it, or one that is new to samples already held, lets half of a model expire in
    one night. One sample may always go: in a small model it is a large share.

    Parameters
    ----------
    n_held
        Samples held.
    n_due
        Those of them whose time is over and that nobody has confirmed.
    max_share
        Largest share of the samples held that may go at once; 0 has every sample confirmed.
    """
    allowed = max(1, int(max_share * n_held)) if max_share > 0 else 0
    if n_due <= allowed:
        return None
    return (
        f"{n_due} of {n_held} samples have expired at once, max_expiry_share lets {allowed} go: look why, and confirm"
    )
