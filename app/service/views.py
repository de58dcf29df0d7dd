"""What can be seen of a model: a page of samples, the model as a whole."""

import numpy as np

from oubli.app.errors import NotHeldError, StaleCursorError
from oubli.app.service.results import Description, Page
from oubli.app.service.state import ModelState
from oubli.core.data.schema import Task


def page_of_samples(state: ModelState, *, subject: str | None, after: tuple[int, int] | None, limit: int) -> Page:
    """Return a page of the samples held, or of one subject's, in the order of their slots.

    A sample keeps its slot as long as it is held, so that one that stays is on exactly one page whatever else comes
    and goes between the requests.

    Parameters
    ----------
    state
        Has the model.
    subject
        Whose samples; None for all.
    after
        Epoch and slot where the page before ended; None for the first page.
    limit
        Most samples on the page.

    Raises
    ------
    StaleCursorError
        When a restore replaced the list meanwhile.
    NotHeldError
        When nothing is held of the subject.
    """
    if after is not None and after[0] != state.epoch:
        raise StaleCursorError
    store = state.model.samples_
    if subject is None:
        slots = store.slots()
    else:
        ids = store.ids_of_subject(subject)
        if not ids and after is None:
            raise NotHeldError
        slots = np.sort(store.find(ids))
    first = 0 if after is None else int(np.searchsorted(slots, after[1], side="right"))
    chosen = slots[first : first + limit].tolist()
    more = first + len(chosen) < len(slots)
    samples = [store.get(store.id_of(slot)) for slot in chosen]
    return Page(samples, chosen[-1] if more else None, state.epoch, state.version)


def describe(state: ModelState, *, durable: bool, overdue: int, expiry_paused: str | None) -> Description:
    """Return what is known of the model as a whole."""
    model, schema, stopped = state.model, state.model.schema_, state.stopped
    return Description(
        kind=model.kind,
        guarantee=model.guarantee,
        task=str(model.task),
        # A seed that was drawn rather than given is part of what decides the predictions.
        parameters={**model.get_params(), "random_state": model.seed_},
        features=[{"name": c.name, "type": str(c.type), "dtype": str(c.dtype)} for c in schema.columns],
        label={"name": schema.label_name, "type": str(schema.label_type)},
        classes=model.samples_.classes.classes_array().tolist() if model.task == Task.CLASSIFICATION else None,
        n_samples=model.n_samples_,
        model_version=state.version,
        lazy_tags=model.n_lazy_tags_,
        mutations_since_scrub=None if model.guarantee == "exact" else model.n_mutations_since_scrub_,
        memory_bytes=model.nbytes_,
        durable=durable,
        pending_erasures=len(state.pending),
        overdue_erasures=overdue,
        expiry_paused=expiry_paused,
        changes="accepted" if stopped is None else "stopped",
        changes_stopped=stopped,
    )
