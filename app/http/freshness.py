"""`Min-Version`: a client that has seen a version of the model is not answered from an older one.

So a client reads its own writes whichever node it asks, and notices when a server was put back to an older state. As
versions never go back, a request that may be answered once may always be.
"""

from __future__ import annotations

from oubli.app.http.auth import OPEN_PATHS, Headers
from oubli.app.http.problems import ProblemError, invalid

HEADER = b"min-version"
_MOST_DIGITS = 15


def require_version(path: str, headers: Headers, version: int) -> None:
    """Refuse a request that asks for a later version than the one that is served.

    Raises
    ------
    ProblemError
        Also when the header is no version.
    """
    text = headers.get(HEADER)
    if text is None or path in OPEN_PATHS:
        return
    if not (text.isdigit() and len(text) <= _MOST_DIGITS):
        raise invalid("/Min-Version", "must be a model version: digits, as 'model_version' of an answer has them")
    if int(text) > version:
        raise ProblemError("behind")
