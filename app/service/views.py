"""What can be seen of a model: one sample, a page of samples, the model as a whole."""

from __future__ import annotations

import numpy as np

from oubli.app.errors import NotHeldError
from oubli.app.service.results import Description, Page
from oubli.app.service.state import StopReason
from oubli.app.storage.models import ServedModel, class_list
from oubli.core.errors import UnknownIdError
from oubli.core.samples.store import HeldSample


def one_sample(model: ServedModel, sample_id: str) -> HeldSample:
    """Return one sample as held.

    Raises
    ------
    NotHeldError
        When it is not held.
    """
    try:
        return model.samples_.get(sample_id)
    except UnknownIdError:
        raise NotHeldError from None


def page_of_samples(
    model: ServedModel, *, subject: str | None, after_slot: int | None, limit: int, epoch: int, model_version: int
) -> Page:
    """Return a page of the samples held, or of one subject's, in the order of their slots.

    A sample keeps its slot as long as it is held, so that one that stays is on exactly one page whatever else comes
    and goes between the requests.

    Raises
    ------
    NotHeldError
        When nothing is held of the subject.
    """
    store = model.samples_
    if subject is None:
        slots = store.slots()
    else:
        ids = store.ids_of_subject(subject)
        if not ids and after_slot is None:
            raise NotHeldError
        slots = np.sort(store.find(ids))
    first = 0 if after_slot is None else int(np.searchsorted(slots, after_slot, side="right"))
    chosen = slots[first : first + limit].tolist()
    more = first + len(chosen) < len(slots)
    samples = [store.get(store.id_of(slot)) for slot in chosen]
    return Page(samples, chosen[-1] if more else None, epoch, model_version)


def describe(
    model: ServedModel,
    model_version: int,
    *,
    durable: bool,
    pending: int,
    overdue: int,
    expiry_paused: str | None,
    stopped: StopReason | None,
) -> Description:
    """Return what is known of the model as a whole."""
    schema = model.schema_
    return Description(
        kind=model.kind,
        guarantee=model.guarantee,
        task=str(model.task),
        # A seed that was drawn rather than given is part of what decides the predictions.
        parameters={**model.get_params(), "random_state": model.seed_},
        features=[{"name": c.name, "type": str(c.type), "dtype": str(c.dtype)} for c in schema.columns],
        label={"name": schema.label_name, "type": str(schema.label_type)},
        classes=class_list(model),
        n_samples=model.n_samples_,
        model_version=model_version,
        lazy_tags=model.n_lazy_tags_,
        mutations_since_scrub=None if model.guarantee == "exact" else model.n_mutations_since_scrub_,
        memory_bytes=model.nbytes_,
        durable=durable,
        pending_erasures=pending,
        overdue_erasures=overdue,
        expiry_paused=expiry_paused,
        changes="accepted" if stopped is None else "stopped",
        changes_stopped=stopped,
    )
