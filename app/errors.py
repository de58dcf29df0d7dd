"""What the service refuses, without a word of HTTP; `problems` turns each into an answer.

    ServiceError
      BusyError          too many requests wait already
      UnavailableError   not now: starting, stopping, or no longer able to change
      ConflictError      ids that are held with other content
      ErasedLatelyError  ids that were erased lately, in an addition that does not say they may come back
      RestrictedError    ids or subjects that are restricted, in an addition
      OwnerlessError     a rectification that would leave a restricted sample without a subject
      InvalidKeyError    an idempotency key that is none
      RepeatedKeyError   an idempotency key that was used for another body
      SpentKeyError      an idempotency key of a request that named something erased since
      NoReceiptError     a receipt that there is not
      NotLoggedError     something that no checkpoint of the log holds
      NoLetterError      a dead letter that there is not
      NoRequestError     a request of OpenDSR that there is not
      RepeatedRequestError  an id of such a request that another has
      UncancellableError    a request of OpenDSR that has begun
      NotHeldError       a sample or subject that is not held, where the caller needs one that is
      SampleChangedError a sample that is not as the caller has seen it
      NotLeaderError     another node leads, and takes the changes
      NoNodeError        a node that the cluster does not have
      NodeAliveError     a node that cannot be removed, because it leads or is not expelled
      NoSnapshotError    nothing was written yet
      EphemeralError     there is no directory to write to
      StorageError       the directory could not be written
        FlushFailedError a flush has failed: what the directory holds is in doubt
      SupersededError    samples were erased or replaced since the request began: it has to be sent again
      ModelChangedError  the model has other classes or columns than when its answer began
    UploadError        an uploaded file was dropped before it was whole
    StaleCursorError   a page was asked for that no longer exists
    JournalError         the journal cannot be written; what the disk holds is in doubt
      JournalFullError   no room on the disk: nothing was written
        NoDescriptorsError    the process may not open more files
        JournalRefusedError   a read or a write has failed before any flush
          JournalUnreachableError  PostgreSQL could not be reached, or has refused to write
      DeposedError       another node leads: nothing was written
    StartError           the server cannot start; the text is for the person at the terminal
      JournalDamagedError     what was committed cannot be read back

None of them carries an id, a subject, a feature or a label: positions and rules only.
"""

from collections.abc import Sequence
from enum import StrEnum

_UNAVAILABLE = {
    "starting": "the server is starting",
    "stopping": "the server is stopping",
    "failed": "nothing is changed until a restart",
    "withdrawn": "the model here is not the leader's, and the node rejoins",
}


class StopReason(StrEnum):
    """Why nothing is changed at present; `GET /readyz` and `GET /model` tell it."""

    DISK_FAILED = "disk-failed"
    MODEL_UNUSABLE = "model-unusable"
    LEDGER_FAILED = "ledger-failed"
    LOG_ROLLED_BACK = "log-rolled-back"
    DISK_FULL = "disk-full"
    DISK_ERRORS = "disk-errors"
    NO_DESCRIPTORS = "no-descriptors"
    JOURNAL_UNREACHABLE = "journal-unreachable"

    @property
    def text(self) -> str:
        """What has happened and what to do, in sentences."""
        return _STOPPED[self]


_STOPPED: dict[StopReason, str] = {
    StopReason.DISK_FAILED: "A write to the data directory or to the journal failed, so that what was written is in "
    "doubt. Check the disk, and PostgreSQL if it keeps the journal, then restart the server: it reads what is there.",
    StopReason.MODEL_UNUSABLE: "A change failed inside the model, so that the model is in doubt. Restart the server: "
    "it builds the model again from its snapshot and its journal.",
    StopReason.LEDGER_FAILED: "The ledger does not continue where the journal ends. Restart the server: it says what "
    "is missing.",
    StopReason.LOG_ROLLED_BACK: "A witness of the log has cosigned entries that are not here: the data directory was "
    "restored from an older backup. Restart the server with --ledger FILE, a newer download of the ledger, or with "
    "--accept-missing erasures.",
    StopReason.DISK_FULL: "The disk has no room. Make room: changes are then taken again without a restart.",
    StopReason.DISK_ERRORS: "Files of the journal cannot be read or written, and no flush has failed. Check the disk: "
    "changes are taken again without a restart as soon as it works.",
    StopReason.NO_DESCRIPTORS: "The process may not open more files. Raise its limit of open files (ulimit -n): "
    "changes are taken again without a restart as soon as files can be opened.",
    StopReason.JOURNAL_UNREACHABLE: "PostgreSQL, which keeps the journal, cannot be reached, or refuses to write. See "
    "to it and to the network: changes are taken again without a restart as soon as it writes.",
}


class ServiceError(Exception):
    """Base of all that the service refuses."""

    is_text_ours = True  # it may be logged


class BusyError(ServiceError):
    """As many requests wait for the model as may wait."""


class UnavailableError(ServiceError):
    """The model cannot answer, or cannot change, now.

    Parameters
    ----------
    reason
        ``"starting"``, ``"stopping"``, ``"failed"`` or ``"withdrawn"``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(_UNAVAILABLE.get(reason, reason))
        self.reason = reason


class _RowsError(ServiceError):
    """Samples of a request are refused.

    Parameters
    ----------
    rows
        Their positions in the request.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__()
        self.rows = tuple(rows)


class ConflictError(_RowsError):
    """Samples were sent under ids that are held with other content."""


class ErasedLatelyError(_RowsError):
    """Samples were sent under ids that were erased lately: it may be a late retry."""


class RestrictedError(ServiceError):
    """Samples were sent under ids, or of subjects, whose processing is restricted.

    Parameters
    ----------
    ids, subjects
        The positions in the request of the samples whose id, or whose subject, is restricted.
    """

    def __init__(self, ids: Sequence[int], subjects: Sequence[int] = ()) -> None:
        super().__init__("ids or subjects that are restricted")
        self.ids = tuple(ids)
        self.subjects = tuple(subjects)


class OwnerlessError(ServiceError):
    """A restricted sample would have no subject any more, by which it could be released."""


class InvalidKeyError(ServiceError):
    """An idempotency key is too long, or empty.

    Parameters
    ----------
    rule
        What must hold.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class RepeatedKeyError(ServiceError):
    """An idempotency key came again with another body."""


class SpentKeyError(ServiceError):
    """An idempotency key came again, and something that its first body named was erased since."""


class NoReceiptError(ServiceError):
    """There is no such receipt."""


class NotLoggedError(ServiceError):
    """No checkpoint of the log holds what is asked for."""


class NoLetterError(ServiceError):
    """Nothing of this receipt or request was given up."""


class NoRequestError(ServiceError):
    """There is no such request of OpenDSR."""


class RepeatedRequestError(ServiceError):
    """The id of a request of OpenDSR was given to another one before."""


class UncancellableError(ServiceError):
    """A request of OpenDSR has begun, or is done."""


class UncancellableJobError(ServiceError):
    """The job changes the model or its files."""


class NotHeldError(ServiceError):
    """The sample or subject asked for is not held."""


class SampleChangedError(ServiceError):
    """The sample is not as the caller has seen it."""


class StillHeldError(ServiceError):
    """What is to be proved absent is held.

    Attributes
    ----------
    is_restricted
        Whether it is kept and not learned from.
    """

    def __init__(self, *, is_restricted: bool) -> None:
        super().__init__("it is held")
        self.is_restricted = is_restricted


class NotLeaderError(ServiceError):
    """Changes are taken by another node.

    Parameters
    ----------
    leader_url
        Where that is reached; None when it is not known.
    """

    def __init__(self, leader_url: str | None = None) -> None:
        super().__init__("another node leads")
        self.leader_url = leader_url


class NoNodeError(ServiceError):
    """The cluster has no node of this name."""


class NodeAliveError(ServiceError):
    """A node cannot be removed.

    Parameters
    ----------
    leads
        Whether it is the one that leads; if not, it is not expelled.
    """

    def __init__(self, *, leads: bool) -> None:
        super().__init__("the node leads" if leads else "the node is not expelled")
        self.leads = leads


class NoSnapshotError(ServiceError):
    """No snapshot was written yet."""


class NoTreeError(ServiceError):
    """There is no such tree, or no such node in it."""


class NotExactError(ServiceError):
    """The model is not exact, so that unlearning leaves something of what was learned."""


class EphemeralError(ServiceError):
    """The server keeps nothing on disk."""


class StorageError(ServiceError):
    """A file of the data directory could not be written; what was there before still is."""


class FlushFailedError(StorageError):
    """A flush has failed: what the disk holds is in doubt until a restart."""


class StaleCursorError(ServiceError):
    """A cursor was not made by this server, or its list was replaced by a restore."""


class ModelChangedError(ServiceError):
    """The classes or the columns of the model are other than when the answer began."""


class SupersededError(ServiceError):
    """Work on the samples from before was dropped: a restore replaced them, or some of them were erased."""


class UploadError(ServiceError):
    """An uploaded file was dropped before it was whole.

    Parameters
    ----------
    reason
        ``"slow"``, or ``"erased"`` when it could hold what was erased since it began.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StartError(Exception):
    """The server cannot start: the text names the cause and the remedy."""

    is_text_ours = True


class JournalError(Exception):
    """The journal cannot be written; the text holds neither paths nor values."""

    is_text_ours = True


class JournalFullError(JournalError):
    """No room on the disk: the batch is not in the journal, which still works."""

    reason = StopReason.DISK_FULL


class NoDescriptorsError(JournalFullError):
    """The process may not open more files: nothing was written, and the journal still works."""

    reason = StopReason.NO_DESCRIPTORS


class JournalRefusedError(JournalFullError):
    """A read or a write failed before any flush: nothing was written, and the journal is opened again."""

    reason = StopReason.DISK_ERRORS


class JournalUnreachableError(JournalRefusedError):
    """PostgreSQL could not be reached, or has refused to write: nothing was written, and it may be tried again."""

    reason = StopReason.JOURNAL_UNREACHABLE


class DeposedError(JournalError):
    """Another node leads: nothing of the batch is in the journal, and nothing more of this node comes into it."""


class JournalDamagedError(StartError):
    """What was committed cannot be read back as it was."""
