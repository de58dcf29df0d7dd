"""What the service refuses, without a word of HTTP; `problems` turns each into an answer.

    ServiceError
      BusyError          too many requests wait already
      UnavailableError   not now: starting, stopping, or no longer able to change
      ConflictError      ids that are held with other content
      ErasedLatelyError  ids that were erased lately, in an addition that does not say they may come back
      RepeatedKeyError   an idempotency key that was used for another body
      NoReceiptError     a receipt that there is not
      NotHeldError       a sample or subject that is not held, where the caller needs one that is
      NoSnapshotError    nothing was written yet
      EphemeralError     there is no directory to write to
      StorageError       the directory could not be written
        FlushFailedError a flush has failed: what the directory holds is in doubt
      SupersededError    samples were erased or replaced meanwhile: what was asked for has to be asked again
    UploadError        an uploaded file was dropped before it was whole
    StaleCursorError   a page was asked for that no longer exists
    StartError           the server cannot start; the text is for the person at the terminal

None of them carries an id, a subject, a feature or a label: positions and rules only.
"""

from __future__ import annotations

from collections.abc import Sequence


class ServiceError(Exception):
    """Base of all that the service refuses."""


class BusyError(ServiceError):
    """As many requests wait for the model as may wait."""


class UnavailableError(ServiceError):
    """The model cannot answer, or cannot change, now.

    Parameters
    ----------
    reason
        ``"starting"``, ``"stopping"`` or ``"failed"``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ConflictError(ServiceError):
    """Samples were sent under ids that are held with other content.

    Parameters
    ----------
    rows
        Their positions in the request.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__("ids held with other content")
        self.rows = tuple(rows)


class ErasedLatelyError(ServiceError):
    """Samples were sent under ids that were erased lately: it may be a late retry.

    Parameters
    ----------
    rows
        Their positions in the request.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__("ids erased lately")
        self.rows = tuple(rows)


class RepeatedKeyError(ServiceError):
    """An idempotency key came again with another body."""


class NoReceiptError(ServiceError):
    """There is no such receipt."""


class NotHeldError(ServiceError):
    """The sample or subject asked for is not held."""


class NoSnapshotError(ServiceError):
    """No snapshot was written yet."""


class EphemeralError(ServiceError):
    """The server keeps nothing on disk."""


class StorageError(ServiceError):
    """A file of the data directory could not be written; what was there before still is."""


class FlushFailedError(StorageError):
    """A flush has failed: what the disk holds is in doubt until a restart."""


class StaleCursorError(ServiceError):
    """A cursor was not made by this server, or its list was replaced by a restore."""


class SupersededError(ServiceError):
    """Work on the samples from before was dropped: a restore replaced them, or some of them were erased."""


class UploadError(ServiceError):
    """An uploaded file was dropped before it was whole.

    Parameters
    ----------
    reason
        ``"slow"``, or ``"erased"`` when it could have held what was erased meanwhile.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StartError(Exception):
    """The server cannot start: the text names the cause and the remedy."""
