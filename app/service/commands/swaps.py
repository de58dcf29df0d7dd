"""The whole model is replaced: fitted anew or restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oubli.app.service.fitting import another_estimator, refit

if TYPE_CHECKING:
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.state import ModelState
    from oubli.core.model import Model


@dataclass(frozen=True, slots=True)
class FitBody:
    """A fit of another kind or with other parameters on the samples held."""

    do: str = field(default="fit", init=False)
    kind: str
    parameters: Mapping[str, Any]

    def redo(self, model: Model, exports: int) -> Model:
        """Fit another model on the samples of a model from a snapshot, and return it."""
        del exports
        return refit(another_estimator(self.kind, self.parameters, model), model.samples_)


@dataclass(eq=False, slots=True)
class ModelSwap:
    """A model that was made aside and takes the place of the live one: nothing is planned, and nothing waits for it.

    Attributes
    ----------
    model
        What is served then.
    body
        What the journal keeps; None when the snapshots hold the model by then.
    """

    model: Model
    body: FitBody | None = None

    def swap(self, state: ModelState) -> None:
        """Put the model in its place."""
        state.model = self.model


@dataclass(eq=False, slots=True)
class Fit(ModelSwap):
    """A model that was fitted on the samples held, as the body says; `key` is the caller's idempotency key."""

    key: IdempotencyKey | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Restore(ModelSwap):
    """A model from a snapshot, less what must not come back; for `epoch` and `next_id` see `ModelState`."""

    epoch: int
    next_id: int

    def swap(self, state: ModelState) -> None:
        """Put the model in its place; nothing is left of the memory of the one before."""
        state.model, state.epoch, state.next_id = self.model, self.epoch, self.next_id
        state.period += 1
