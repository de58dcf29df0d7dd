"""What requests ask of the live model: predictions, the samples that it holds, its trees and its columns.

Short predictions are made on the event loop, long ones in a thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oubli.app.errors import NotHeldError, NoTreeError, ServiceError, StaleCursorError
from oubli.app.service.jobs.fits import estimator_of
from oubli.app.service.model.influence import Comparer, InfluenceRanker
from oubli.app.service.model.live import LiveModel, Predicted
from oubli.app.times import LOOP_BUDGET, end_stage
from oubli.core.data.schema import Task
from oubli.core.data.values import ColumnType
from oubli.core.drawing import look_at_tree
from oubli.core.errors import InputError, UnknownIdError
from oubli.core.model import Model, QueryResult
from oubli.core.parameters import N_JOBS, Parameter
from oubli.core.registry import PLACES, parameters_of
from oubli.core.samples.records import HeldSample
from oubli.core.samples.store import SampleStore
from oubli.core.unseen import conformal
from oubli.core.unseen.conformal import MOST
from oubli.core.unseen.scoring import quality_of

_RESTRICTED_FROM = 2**40  # in lists, the places of restricted samples: behind all slots of the others
_NO_SLOTS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the samples held, in the order of their slots; `next_slot` continues, None when there are no more.

    `nonces` and `positions_key` are what hashes of the samples and their places in the set tree are made with; None
    when the request did not ask for them, and for samples that are in no set.
    """

    samples: list[HeldSample]
    next_slot: int | None
    epoch: int
    model_version: int
    nonces: list[bytes | None] | None = None
    positions_key: bytes | None = None


_MOST_LISTED = 200  # categories of a column


def summarise(store: SampleStore) -> list[dict[str, Any]]:
    """Describe each column; only reads.

    Returns
    -------
    list of dict
        In feature order, JSON-able: `name`, `type`, `missing` (samples without a value); of numbers `dtype`, `least`
        and `greatest`, None without any; of categories those held, the most frequent first, and how many there are.
    """
    slots, schema, table = store.slots(), store.schema, store.categories
    described = []
    for column, declared in enumerate(schema.columns):
        cells = store.cells[slots, column]
        known = cells[~np.isnan(cells)]
        one: dict[str, Any] = {"name": declared.name, "type": declared.type.value, "missing": len(cells) - len(known)}
        if declared.type is ColumnType.NUMERIC:
            one["dtype"] = str(declared.dtype)
            one["least"] = float(known.min()) if len(known) else None
            one["greatest"] = float(known.max()) if len(known) else None
        elif declared.type is ColumnType.CATEGORICAL:
            held = table.codes[column]
            one["categories"] = sorted(held, key=lambda text: (-int(table.counts[held[text]]), text))[:_MOST_LISTED]
            one["n_categories"] = len(held)
        described.append(one)
    return described


@dataclass(eq=False, repr=False)
class Inspector:
    """Describes the live model to people.

    Parameters
    ----------
    live
        The live model and who may use it.
    """

    _live: LiveModel
    understood: dict[str, Any] | None = None

    async def quality(self) -> dict[str, Any] | None:
        """Say how well samples are predicted that trees have not learned; None where that cannot be told."""
        found, version = await self._live.read(lambda model: quality_of(model, MOST), self._live.threads.look)
        return None if found is None else {**found, "model_version": version}

    async def importances(self) -> dict[str, Any]:
        """Return the share of each feature in what all splits gain; `ImportancesAnswer` documents the fields."""
        return await self._read(_importances)

    async def tree(self, number: int, path: str, levels: int) -> dict[str, Any]:
        """Return a node of a tree with some levels below it; `TreeAnswer` documents the fields.

        Raises
        ------
        NoTreeError
            When there is no such tree or node.
        """
        return await self._read(partial(_tree, number, path, levels))

    async def columns(self) -> dict[str, Any]:
        """Return what the columns of the samples hold; `ColumnsAnswer` documents the fields."""
        return await self._read(lambda model: {"columns": summarise(model.samples_)})

    async def _read(self, work: Callable[[Model], dict[str, Any]]) -> dict[str, Any]:
        content, version = await self._live.read(work, self._live.threads.look)
        return {**content, "model_version": version}


def _importances(model: Model) -> dict[str, Any]:
    shares = model.engine_.importances().tolist()
    columns = zip(model.schema_.columns, shares, strict=True)
    return {
        "kind": model.kind,
        "n_samples": model.n_samples_,
        "measure": "gain" if model.is_boosted else "impurity",
        "features": [{"name": one.name, "type": str(one.type), "importance": share} for one, share in columns],
    }


def _tree(number: int, path: str, levels: int, model: Model) -> dict[str, Any]:
    found = look_at_tree(model, number, path, levels)
    if found is None:
        raise NoTreeError
    return {"kind": model.kind, **found}


_TYPES = {int: "integer", float: "number", str: "text", bool: "boolean", object: "integer", dict: "list"}


def kinds_for(task: str, kind: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe the kinds for a task; `KindsAnswer` documents the fields.

    Parameters
    ----------
    task
        Of the model in force.
    kind, parameters
        Its kind and parameters.
    """
    described = []
    for name, place in PLACES.items():
        if Task(task) in place.estimators:
            in_force = name == kind
            values = parameters if in_force else {}
            table = [one.of(task) for one in parameters_of(name) if one.name != N_JOBS]
            described.append(
                {
                    "kind": name,
                    "guarantee": estimator_of(name, Task(task), {}).guarantee,
                    "in_force": in_force,
                    "parameters": [_describe(one, values) for one in table],
                }
            )
    return described


def _describe(one: Parameter, values: Mapping[str, Any]) -> dict[str, Any]:
    greatest = one.high if one.limit is None else one.limit
    return {
        "name": one.name,
        "text": one.text,
        "types": _types_of(one.type),
        "default": one.default,
        "value": values.get(one.name, one.default),
        "least": one.low if math.isfinite(one.low) else None,
        "greatest": greatest if math.isfinite(greatest) else None,
        "choices": list(one.choices) or None,
        "optional": one.optional,
        "none_word": one.none_word,
    }


def _types_of(declared: Any) -> list[str]:
    if isinstance(declared, tuple):
        return [name for one in declared for name in _types_of(one)]
    # A pair of numbers also has a word that stands for one.
    return ["text", "list"] if isinstance(declared, list) else [_TYPES[declared]]


_LONGEST_EXPLANATION = 2.0  # seconds that one request takes, roughly; changes of samples wait for it
_TRIED = 5_000  # predictions until a nearest change is found, roughly
_TELLING = 2e-7  # seconds of a number of an answer


class ExplanationError(ServiceError):
    """Nothing can be explained as it is asked; the text says why. `place` is the part of the question."""

    def __init__(self, place: str, rule: str) -> None:
        super().__init__(rule)
        self.place = place


class Change(NamedTuple):
    """Which nearest changes are asked for; see `nearest_change` of the models."""

    columns: int
    features: list[str] | None
    target: Any


def _explain(rows: Sequence[Any], change: Change | None, model: Any) -> dict[str, Any]:
    n_outputs = len(model.classes_) if model.task is Task.CLASSIFICATION else 1
    seconds = model.seconds_to_explain(len(rows)) + len(rows) * model.n_features_in_ * n_outputs * _TELLING
    if change is not None:
        seconds += len(rows) * model.seconds_to_answer(_TRIED)
    if seconds > _LONGEST_EXPLANATION and len(rows) > 1:
        most = max(1, int(len(rows) * _LONGEST_EXPLANATION / seconds))
        raise ExplanationError("/instances", f"has {len(rows)} rows, which takes long: send at most {most}")
    found, task = model.shap_values(rows), model.task
    is_value = task is Task.REGRESSION and model.get_params().get("loss") != "poisson"
    measure = "value" if is_value else "raw-score" if model.is_boosted else "probability"
    content = {"measure": measure, "features": found.feature_names, "base": found.base_values[0].tolist()}
    if found.output_names is not None:
        content["classes"] = model.classes_.tolist()
    content["attributions"] = found.values.tolist()
    if change is not None:
        try:
            nearest = [model.nearest_change(row, **change._asdict()) for row in rows]
        except InputError as error:
            raise ExplanationError("/change/target", error.rule) from None
        content["changes"] = [
            one and {"features": one.features, "after": one.after, "distance": one.distance, "prediction": one.answer}
            for one in nearest
        ]
    return content


@dataclass(eq=False, repr=False)
class Questions:
    """Answers questions about the live model. It belongs to the event loop.

    Parameters
    ----------
    live
        The live model and who may use it.
    positions_key
        By which samples have their places in the set tree.

    Attributes
    ----------
    inspector, influence, comparer
        Describe the model to people, rank samples by their influence, and predict without some samples.
    """

    _live: LiveModel
    _positions_key: bytes
    inspector: Inspector
    influence: InfluenceRanker
    comparer: Comparer

    def predict_now(self, rows: Sized) -> Predicted | None:
        """Predict for some rows if that is short; None when it takes a thread: see `predict`.

        Resolves the tags it meets unless a thread is reading the model.

        Parameters
        ----------
        rows
            Lists of cells in feature order, a matrix, or columns: what models take as X.
        """
        self._live.state.require_started()
        end_stage("parse")
        state = self._live.state
        model, n_tags = state.model, 0
        # A single one always is: a thread would not make it shorter.
        if len(rows) > 1 and model.seconds_to_answer(len(rows)) > LOOP_BUDGET:
            return None
        if self._live.idle.tagged.is_set():  # there may be some
            self._live.lock.own()
            n_tags = model.n_lazy_tags_
            if n_tags:
                self._live.idle.n_queries += 1
            else:
                self._live.idle.tagged.clear()
        result = model.query(rows, frozen=self._live.lock.frozen)
        if n_tags:
            state.n_resolved += n_tags - model.n_lazy_tags_
        end_stage("model")
        return Predicted(result, state.version)

    async def predict(self, rows: Sized, *, refusable: bool = True) -> Predicted:
        """Predict for some rows.

        Parameters
        ----------
        rows
            At least one.
        refusable
            Whether a full queue raises `BusyError`; false for what has been begun to be answered.
        """
        predicted = self.predict_now(rows)
        return predicted if predicted is not None else await self._predict_long(rows, refusable)

    async def _predict_long(self, rows: Sized, refusable: bool) -> Predicted:
        def predict(model: Model) -> QueryResult:
            return model.query(rows, frozen=True)

        run = self._live.threads.read
        result, version = await self._live.read(predict, run, refusable=refusable, predicts=True)
        end_stage("model")
        return Predicted(result, version)

    async def predict_ranges(self, rows: Sized, coverage: float, by_class: bool) -> tuple[Predicted, dict[str, Any]]:
        """Predict for some rows, with sets of classes or intervals of numbers; see `predict_set` of the models.

        Returns
        -------
        what `predict` returns, and `sets` or `intervals`: a list for each row, a bound that is not known being None.

        Raises
        ------
        UnavailableError
            When the model cannot tell.
        """

        def predict(model: Model) -> tuple[QueryResult, dict[str, Any]]:
            result = model.query(rows, frozen=True)
            if result.classes is None or result.probabilities is None:
                reach = conformal.width(model, coverage)
                known = conformal.intervals(result.labels, reach).tolist()
                return result, {"intervals": known if math.isfinite(reach) else [[None, None]] * len(known)}
            inside = conformal.sets(result.probabilities, conformal.class_limits(model, coverage, by_class=by_class))
            return result, {"sets": [result.classes[row].tolist() for row in inside]}

        (result, ranges), version = await self._live.read(predict, self._live.threads.look)
        end_stage("model")
        return Predicted(result, version), ranges

    async def explain(self, rows: Sequence[Any], change: Change | None) -> dict[str, Any]:
        """Return what each column adds to the predictions for some rows; `Explanations` documents the fields.

        Raises
        ------
        ExplanationError
            When the target is refused, or so many rows take too long.
        UnavailableError
            When the model explains nothing.
        """
        content, version = await self._live.read(partial(_explain, rows, change), self._live.threads.look)
        return {**content, "model_version": version}

    def get(self, sample_id: str) -> tuple[HeldSample, int]:
        """Return one sample as held, and the model version.

        Raises
        ------
        NotHeldError
            When it is not held.
        """
        self._live.state.require_started()
        store = self._live.state.model.samples_
        try:
            found = store.restricted.get(sample_id) if store.restricted.contains(sample_id) else store.get(sample_id)
        except UnknownIdError:
            raise NotHeldError from None
        return found, self._live.state.version

    def find(self, ids: Sequence[str]) -> Page:
        """Return the samples held of some ids, in their order, as a page without a next one."""
        self._live.state.require_started()
        held: list[HeldSample] = []
        for name in dict.fromkeys(ids):
            with suppress(NotHeldError):
                held.append(self.get(name)[0])
        return Page(held, None, self._live.state.epoch, self._live.state.version)

    def page(self, *, subject: str | None, after: tuple[int, int] | None, limit: int, openings: bool = False) -> Page:
        """Return a page of the samples held, or of one subject's, in the order of their slots.

        A sample keeps its slot as long as it is held, so that one that stays is on exactly one page whatever else comes
        and goes between the requests. Restricted samples come last; one that is restricted or released in between is on
        two pages, or on none.

        Parameters
        ----------
        subject
            Whose samples; None for all.
        after
            Epoch and slot where the page before ended; None for the first page.
        limit
            Most samples on the page.
        openings
            Whether the page has what hashes of samples are made with.

        Raises
        ------
        StaleCursorError
            When a restore has replaced the list, or the subject was restricted or released.
        """
        self._live.state.require_started()
        if after is not None and after[0] != self._live.state.epoch:
            raise StaleCursorError
        store, restricted = self._live.state.model.samples_, self._live.state.model.samples_.restricted
        place = -1 if after is None else after[1]
        if subject is None:
            slots, others = store.slots(), restricted.slots() if len(restricted) else _NO_SLOTS
        else:
            ids, restricted_ids = store.ids_of_subject(subject), restricted.ids_of_subject(subject)
            if (restricted_ids and 0 <= place < _RESTRICTED_FROM) or (ids and place >= _RESTRICTED_FROM):
                raise StaleCursorError
            slots = np.sort(store.find(ids))
            others = np.sort(restricted.find(restricted_ids)) if restricted_ids else _NO_SLOTS
        places = np.concatenate([slots, others + _RESTRICTED_FROM])
        first = int(np.searchsorted(places, place, side="right"))
        chosen = places[first : first + limit].tolist()
        more = first + len(chosen) < len(places)
        samples = [
            store.get(store.id_of(slot))
            if slot < _RESTRICTED_FROM
            else restricted.get(restricted.id_of(slot - _RESTRICTED_FROM))
            for slot in chosen
        ]
        page = Page(samples, chosen[-1] if more else None, self._live.state.epoch, self._live.state.version)
        if not openings:
            return page
        nonces = [store.nonces.get(slot) if slot < _RESTRICTED_FROM else None for slot in chosen]
        return replace(page, nonces=nonces, positions_key=self._positions_key)
