"""What joins a request with others: `X-Request-ID`, and W3C's `traceparent`."""

import itertools
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import NamedTuple

REQUEST_ID = b"x-request-id"
_TRACEPARENT = b"traceparent"
_NAMES = frozenset({REQUEST_ID, _TRACEPARENT})
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_PREFIX = secrets.token_hex(8).encode("ascii")  # tells processes apart
_ENDS = [b"%02x" % i for i in range(256)]


class Correlation(NamedTuple):
    """What a request says that joins it with others.

    Attributes
    ----------
    request_id
        Its `X-Request-ID`; None when it has none that is accepted, so that one is made.
    traceparent
        As it came, not checked; None when it did not come. `tracestate` is not looked at: it would only be passed on.
    """

    request_id: bytes | None = None
    traceparent: bytes | None = None


ALONE = Correlation()
"""Of a request that says nothing."""


def correlation_of(headers: Iterable[tuple[bytes, bytes]]) -> Correlation:
    """Return what the headers of a request say; of a header that is repeated, the first.

    Parameters
    ----------
    headers
        Names in lower case.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _NAMES:
            found.setdefault(name, value)
    if not found:
        return ALONE
    given = found.get(REQUEST_ID)
    if given is not None and _ACCEPTED.fullmatch(given) is None:
        given = None
    return Correlation(given, found.get(_TRACEPARENT))


def _made_ids() -> Iterator[bytes]:
    """Yield ids; a random number for each request would cost more than its routing."""
    for i in itertools.count():
        start = b"%b-%x" % (_PREFIX, i)
        for end in _ENDS:
            yield start + end


new_request_id = _made_ids().__next__
"""Returns an id that no other request of this process has, and hardly one of another process."""
