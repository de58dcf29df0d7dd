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
      NoReceiptError     a receipt that there is not
      NotLoggedError     something that no checkpoint of the log holds
      NoLetterError      a dead letter that there is not
      NoRequestError     a request of OpenDSR that there is not
      RepeatedRequestError  an id of such a request that another has
      UncancellableError    a request of OpenDSR that has begun
      NotHeldError       a sample or subject that is not held, where the caller needs one that is
      NotLeaderError     another node leads, and takes the changes
      NoNodeError        a node that the cluster does not have
      NodeAliveError     a node that cannot be removed, because it leads or is not expelled
      NoSnapshotError    nothing was written yet
      EphemeralError     there is no directory to write to
      StorageError       the directory could not be written
        FlushFailedError a flush has failed: what the directory holds is in doubt
      SupersededError    samples were erased or replaced meanwhile: what was asked for has to be asked again
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


class NotHeldError(ServiceError):
    """The sample or subject asked for is not held."""


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
    """The classes or the columns of the model are other than at the beginning of an answer that goes on."""


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


class JournalError(Exception):
    """The journal cannot be written; the text holds neither paths nor values."""


class JournalFullError(JournalError):
    """No room on the disk: the batch is not in the journal, which still works."""


class NoDescriptorsError(JournalFullError):
    """The process may not open more files: nothing was written, and the journal still works."""


class JournalRefusedError(JournalFullError):
    """A read or a write failed before any flush: nothing was written, and the journal is opened anew to go on."""


class JournalUnreachableError(JournalRefusedError):
    """PostgreSQL could not be reached, or has refused to write: nothing was written, and it may be tried again."""


class DeposedError(JournalError):
    """Another node leads: nothing of the batch is in the journal, and nothing more of this node comes into it."""


class JournalDamagedError(StartError):
    """What was committed cannot be read back as it was."""


class StopReason(StrEnum):
    """Why nothing is changed at present; `GET /readyz` and `GET /model` tell it."""

    DISK_FAILED = "disk-failed"
    """A write or a flush has failed: only a restart can tell what the disk holds."""
    MODEL_UNUSABLE = "model-unusable"
    """A change failed inside the model: only a restart can tell what it should be."""
    LEDGER_FAILED = "ledger-failed"
    """The ledger does not go on where the journal does: only a restart can tell why."""
    LOG_ROLLED_BACK = "log-rolled-back"
    """A witness has seen entries of the log that are not here: the data directory was restored from an older backup."""
    DISK_FULL = "disk-full"
    """There is no room on the disk; changes are taken again when there is."""
    DISK_ERRORS = "disk-errors"
    """A read or a write has failed before anything was flushed; changes are taken again when they work."""
    NO_DESCRIPTORS = "no-descriptors"
    """The process may not open more files; changes are taken again when it may."""
    JOURNAL_UNREACHABLE = "journal-unreachable"
    """PostgreSQL cannot be reached; changes are taken again when it can."""
