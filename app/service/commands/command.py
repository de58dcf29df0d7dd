"""What all mutations have in common: a plan, a body, its application and a result."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from oubli.app import logs
from oubli.app.service.stages import Stages, stages
from oubli.core.samples.store import Prepared

if TYPE_CHECKING:
    from oubli.app.ledger.entries import Receipt
    from oubli.app.service.commands.bodies import Body
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.state import ModelState
    from oubli.app.service.transaction import Transaction
    from oubli.core.model import Model

log = logging.getLogger("oubli.service")

R = TypeVar("R")
LARGE = 32  # rows whose memory is overwritten when it is done with


class Command(ABC, Generic[R]):
    """One mutation of samples: `AddSamples`, `ReplaceSample`, `DeleteSamples`, or a `Restriction`.

    Attributes
    ----------
    is_refusable
        Whether a full queue or a full disk refuses it; erasures are not.
    is_merged
        Whether neighbours of the same kind may be applied to an exact model as one: the result is the same.
    key
        The caller's idempotency key.
    done
        Called once: with None when the command is on the disk and in the model, else with what refused it.
    body, encoded
        See the module; known when it is planned, as are those that follow.
    names
        Ids and subjects that no other command of the same transaction may touch.
    adds
        The samples that come, encoded.
    gone
        Ids whose old content is gone then.
    unlearned
        Ids that leave the trees then, where they leave for good or for long.
    n_more
        How many samples more there are then.
    next_id
        The first number that is free as an id afterwards.
    n_new
        How many samples it adds.
    first_id
        The first id that was generated, or that of the ledger's entry; None when there is none.
    received_ms
        When it came, in milliseconds since 1970.
    request_id
        Of the request that asks for it, for log lines; empty outside of requests.
    stages
        Of the same request; None when nobody reads them.
    version, n_samples
        Of the model after it; known when it is committed.
    """

    is_refusable: ClassVar[bool] = True
    is_merged: ClassVar[bool] = False
    receipt: Receipt | None = None

    def __init__(self, key: IdempotencyKey | None = None) -> None:
        self.key = key
        self.done: Callable[[BaseException | None], None] = _nobody
        self.request_id = ""
        self.stages: Stages | None = None
        self.body: Body | None = None
        self.encoded = b""
        self.names: set[tuple[str, str]] = set()
        self.adds: Prepared | None = None
        self.gone: Sequence[str] = ()
        self.unlearned: Sequence[str] = ()
        self.n_more = 0
        self.next_id = 0
        self.n_new = 0
        self.first_id: int | None = None
        self.received_ms = 0
        self.version = 0
        self.n_samples = 0
        self.n_items = 1

    def count(self, model: Model) -> int:
        """Return how many samples it is about, roughly: that tells how long it takes."""
        del model
        return 1

    @abstractmethod
    def plan(self, model: Model, transaction: Transaction) -> None:
        """Check it against the model and the commands before it in its transaction, and find its body.

        Raises
        ------
        OubliError, ServiceError
            When it is refused.
        """

    @abstractmethod
    def apply(self, model: Model, alike: Sequence[Any]) -> None:
        """Change the model by this command, which is the first of some that are alike."""

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Change a model that holds fewer samples than the one of the plan: of those that go, only some."""
        if gone:
            self.apply(model, [self])

    @abstractmethod
    def result(self) -> R:
        """Return what is answered."""

    def notes(self, transaction: Transaction) -> bytes:
        """Return what the ledger is to take in with it, when it is planned and has its version."""
        del transaction
        return b""

    def committed(self, transaction: Transaction) -> None:
        """Note what follows from it, when it is on the disk and in the model."""
        del transaction

    def overwrite(self) -> None:
        """Overwrite what was sent and is in the model by now, where it is much."""

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal; what changes nothing and gives no receipt does not."""
        return self.body is not None or self.key is not None

    def tell(self, error: BaseException | None = None) -> None:
        """Tell who asked, once; a mistake in an answer must not keep others from theirs."""
        done, self.done = self.done, _nobody
        # It is the writer's task that tells.
        token, noted = logs.request_id.set(self.request_id), stages.set(self.stages)
        try:
            done(error)
        except Exception as mistake:
            log.error("an answer could not be made (%s)", type(mistake).__name__)
            with suppress(Exception):
                done(mistake)  # or who asked would wait for ever
        finally:
            logs.request_id.reset(token)
            stages.reset(noted)

    def tell_unchanged(self, state: ModelState) -> None:
        """Tell who asked that nothing had to be changed."""
        self.version, self.n_samples = state.version, state.model.n_samples_
        self.tell()


def _nobody(error: BaseException | None) -> None:
    """Take in an outcome that was told before."""


def apply_all(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model by commands that touch nothing in common, in their order.

    Of an exact model neighbouring additions are made as one, and so are neighbouring deletions: the result is the
    same. Of others each is made by itself.
    """
    is_exact = model.guarantee == "exact"
    start = 0
    while start < len(commands):
        first, end = commands[start], start + 1
        while is_exact and first.is_merged and end < len(commands) and type(commands[end]) is type(first):
            end += 1
        first.apply(model, commands[start:end])
        start = end


def apply_held(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model that was fitted on the samples of another by commands that were planned for that one.

    A sliding window may hold fewer of them: what it does not hold is neither deleted nor replaced.
    """
    if model.guarantee == "exact":  # has no window
        apply_all(model, commands)
        return
    store = model.samples_
    for command in commands:
        command.apply_to_fewer(model, [name for name in command.gone if store.holding(name) is not None])
