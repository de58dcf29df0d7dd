"""The access log: a line for each request, when it is asked for. It holds nothing that a path could hold."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from oubli.app.logs import ACCESS_LOG, fields

if TYPE_CHECKING:
    from oubli.app.http.correlation import Correlation

log = logging.getLogger(ACCESS_LOG)


def log_access(
    method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
) -> None:
    """Log a request; an observer."""
    extra = fields(
        method=method, route=route, status=status, seconds=round(seconds, 6), request_id=request_id.decode("ascii")
    )
    log.info("%s %s %d in %.3f ms", method, route, status, 1000 * seconds, extra=extra)
