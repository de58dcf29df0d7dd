"""Files that are sent whole although their names may be gone before the end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, BinaryIO

from starlette.responses import FileResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from oubli.app.service.holders import Holders

MEDIA_TYPE = "application/octet-stream"


class OpenedFile(FileResponse):
    """A file that is sent whole even if its name is gone before the end, as snapshots go when something is erased.

    Who takes it in so slowly that the erasure could not be finished in time gets half of it.
    """

    def __init__(self, file: BinaryIO, name: str, holders: Holders) -> None:
        self._file = file
        self._holders = holders
        super().__init__(
            f"/dev/fd/{file.fileno()}",
            media_type=MEDIA_TYPE,
            filename=name,
            headers={"Cache-Control": "no-store"},
            stat_result=os.fstat(file.fileno()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and close it whatever happens."""
        sending = asyncio.ensure_future(super().__call__(scope, receive, send))
        with self._file, self._holders.hold("downloads", sending.cancel) as hold:
            try:
                await sending
            except asyncio.CancelledError:
                sending.cancel()
                if hold.is_ended:
                    raise ConnectionAbortedError from None
                raise
