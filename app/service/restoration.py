"""What a model that was kept aside must not bring back: samples that the ledger says are erased, or that expired.

What the ledger says of restrictions is made good as well, so that a restore of an older snapshot neither ends a
restriction nor begins one that was released since.
"""

from collections.abc import Mapping

from oubli.app.ledger.entries import RELEASED, RESTRICTED, Entry
from oubli.app.service.commands.deletions import delete
from oubli.app.service.commands.held import held_of, retention_of
from oubli.app.service.commands.restrictions import ReleaseBody, RetainBody
from oubli.app.times import parse_time
from oubli.core.model import Model
from oubli.core.samples.additions import Retention
from oubli.core.samples.restricted import Mark
from oubli.core.samples.store import SampleStore

KINDS = ("deletion", "rectification", "expiry")
Words = Mapping[str, Entry]
"""The entry in which the ledger has last told of a subject, since a snapshot was taken."""


def drop_gone(
    model: Model,
    gone: Mapping[str, str],
    now_ms: int,
    words: Words | None = None,
    now: SampleStore | None = None,
    retained: Words | None = None,
) -> dict[str, int]:
    """Delete samples from a model without a trace, and restrict whom the ledger says is; return how many went by kind.

    Parameters
    ----------
    model
        Nobody else uses it meanwhile.
    gone
        Ids that it holds, and what they were erased by; see `LedgerDatabase.erased_since`.
    now_ms
        The time: samples that have expired by then go too.
    words, now
        See `restrict_again`.
    retained
        See `retain_again`.
    """
    store = model.samples_
    is_changed = restrict_again(model, words or {}, now)
    retain_again(model, retained or {}, now)
    due = [*store.due(now_ms, len(store)), *store.restricted.due(now_ms)]
    kinds = dict.fromkeys(due, "expiry") | dict(gone)
    if kinds:
        delete(model, list(kinds))
    if (kinds or is_changed) and model.guarantee != "exact":
        model.scrub()  # what has left has left its traces
    model.wipe()
    counts = dict.fromkeys(KINDS, 0)
    for kind in kinds.values():
        counts[kind] += 1
    return counts


def ids_of(store: SampleStore) -> list[str]:
    """Return the ids of all samples, restricted or not."""
    return [*store.ids(), *(store.restricted.samples.ids() if len(store.restricted) else ())]


def dropped_fields(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts as the ledger's entry has them."""
    return {
        "dropped_erased": counts["deletion"],
        "dropped_rectified": counts["rectification"],
        "dropped_expired": counts["expiry"],
    }


def subjects_of(store: SampleStore) -> list[str]:
    """Return the subjects of all samples, restricted or not, each once."""
    return list(dict.fromkeys([*store.subjects.links()[0], *store.restricted.marks]))


def restrict_again(model: Model, words: Words, now: SampleStore | None) -> bool:
    """Restrict and release subjects in a model from a snapshot; whether anything has changed.

    Restricted is who is so now, or was so when the snapshot was taken and was not released since. Of subjects of whom
    nothing is held now, the ledger's last word decides.

    Parameters
    ----------
    model
        Nobody else uses it meanwhile.
    words
        What the ledger has told since.
    now
        The samples held now; None when that is not known.
    """
    store = model.samples_
    marks, marks_now = store.restricted.marks, {} if now is None else now.restricted.marks
    restrict: dict[str, Mark] = {}
    release = []
    for subject in subjects_of(store):
        was, word = subject in marks, words.get(subject)
        told = None if word is None else word["type"]
        if subject in marks_now:
            restrict[subject] = marks_now[subject]
        elif told == RESTRICTED and word is not None and (was or now is None or not now.ids_of_subject(subject)):
            restrict[subject] = Mark(parse_time(word["at"]), word["keep"])
        elif was and told == RELEASED:
            release.append(subject)
    ReleaseBody(release).apply(model)
    for subject, mark in restrict.items():
        model.restrict(store.ids_of_subject(subject), {subject: mark})
        if subject in marks:
            marks[subject] = mark
    return bool(release or restrict)


def retain_again(model: Model, words: Words, now: SampleStore | None) -> None:
    """Give subjects in a model from a snapshot the retention periods that they have now.

    Of subjects of whom nothing is held now, the ledger's last word decides, and else the snapshot.

    Parameters
    ----------
    model
        Nobody else uses it meanwhile.
    words
        What the ledger has told since.
    now
        The samples held now; None when that is not known.
    """
    store = model.samples_
    for subject in subjects_of(store):
        word, period = words.get(subject), None
        if now is not None and held_of(now, subject):
            period = retention_of(now, subject)
        elif word is None:
            continue
        elif word["seconds"] is not None:
            period = Retention(word["seconds"] * 1000, parse_time(word["at"]))
        if period != retention_of(store, subject):
            period_ms, since_ms = (None, 0) if period is None else period
            RetainBody([subject], period_ms, since_ms).apply(model)
