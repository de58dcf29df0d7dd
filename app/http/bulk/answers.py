"""Predictions and additions in bulk: bodies and answers in CSV, NDJSON and Arrow streams.

    body -> Blocks (event loop) -> Source: rows (a thread) -> service -> Encoder (a thread) -> answer -> client
                                                                                                  |
    the next block is begun when the client has taken in the answer to this one  <----------------+

So a prediction keeps no more than a block and what the sockets hold, however long its body is. Each batch is predicted
by the model as it is then, and says its version. What goes wrong before the first answer is a problem, as everywhere;
later on it is the last record of the answer, which is then cut off, so that no client takes it for whole.

The samples of an addition are kept until all have come, within limits, and are committed together or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from oubli.app.datasets.blocks import StreamError
from oubli.app.errors import ModelChangedError
from oubli.app.http.bulk.bodies import NAMED, Collector, Part, Source, collector_of, no_rows, source_of
from oubli.app.http.bulk.encoders import Encoder, encode_addition, encoder_for
from oubli.app.http.connection.connections import STREAM, UNSENT, Stream
from oubli.app.http.formats import Format
from oubli.app.http.parsing import KEY_HEADER, Context, Reader, explain, reader_of
from oubli.app.http.problems import ProblemError, invalid, pointer, report_mistake, to_problem
from oubli.app.http.responses import NO_STORE, addition_content, json_answer, prediction_content
from oubli.app.service.changes.additions import Added, NewSamples
from oubli.app.service.changes.command import IdempotencyKey
from oubli.app.service.model.live import Predicted
from oubli.core.data.values import NOT_FINITE, TOO_LARGE
from oubli.core.errors import InputError

Place = tuple[str | int, ...]
_LOOK = 0.002  # seconds between two looks whether the client has taken in the answer
_SLUGS = {"broken": "broken-records", "large": "record-too-large", "invalid": "invalid-input"}


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """What a body in bulk may be.

    Attributes
    ----------
    max_record_bytes
        Largest line, or message of an Arrow stream.
    max_samples
        Most samples that are added at once.
    """

    max_record_bytes: int
    max_samples: int


class Bulk:
    """Answers requests in bulk.

    Parameters
    ----------
    context
        Of the application.
    limits
        What a body may be.
    """

    def __init__(self, context: Context, limits: BulkLimits) -> None:
        self._context = context
        self._limits = limits

    # --- predictions

    async def predict(self, request: Request, given: Format, wanted: Format) -> Response:
        """Answer a prediction whose body is not JSON.

        Parameters
        ----------
        request
            Its body has not been read.
        given, wanted
            The formats of body and answer.
        """
        await _import_formats()
        reader, _ = reader_of(request)
        source = await asyncio.to_thread(source_of, given, reader, self._limits.max_record_bytes)
        scoring = _Scoring(self._context, reader, source, request)
        parts = scoring.parts()
        if wanted is Format.JSON:
            return json_answer(prediction_content(await scoring.score(await _merged(parts, reader))))
        first = await anext(parts, None)
        if first is None:
            raise no_rows("instances")
        predicted = await scoring.score(first)
        encoder = encoder_for(wanted, reader.schema.label_type)
        if not scoring.is_over:
            return _Streamed(scoring.answers(encoder, predicted, parts), headers=NO_STORE, media_type=wanted)
        found = [predicted, *[await scoring.score(part) async for part in parts]]
        return _whole(await asyncio.to_thread(_encode_all, encoder, found), wanted)

    async def predictions_as(self, wanted: Format, predicted: Predicted) -> Response:
        """Return predictions that are all there, in a format that is not JSON."""
        await _import_formats()
        encoder = encoder_for(wanted, self._context.reader().schema.label_type)
        return _whole(await asyncio.to_thread(_encode_all, encoder, [predicted]), wanted)

    # --- additions

    async def add(self, request: Request, given: Format, wanted: Format) -> Response:
        """Answer an addition whose body is not JSON; see `predict`."""
        await _import_formats()
        service, (reader, _) = self._context.service, reader_of(request)
        collector = await asyncio.to_thread(collector_of, given, reader, self._limits.max_record_bytes)
        digest = hashlib.sha256(given.encode("ascii") + b"\0")
        try:
            async for data in request.stream():
                digest.update(data)
                for block in collector.blocks.feed(data):
                    await self._take(collector, block)
            for block in collector.blocks.end():
                await self._take(collector, block)
            samples = await asyncio.to_thread(collector.samples)
        except StreamError as error:
            raise _problem_of(error, rows="samples", fields=("features",)) from None
        key_text = request.headers.get(KEY_HEADER)
        async with service.changes.idempotency_keys.use(key_text, "POST /samples", digest.hexdigest()) as key:
            try:
                added = await service.changes.add(samples, key)
            except InputError as error:
                if given is Format.NDJSON and error.rule == NOT_FINITE:  # JSON has no infinities
                    error.rule = TOO_LARGE
                raise explain(error, lambda row: ("samples", row, "features"), NAMED, reader.schema) from None
        return await self.addition_as(wanted, added)

    async def addition_as(self, wanted: Format, added: Added) -> Response:
        """Return what became of samples, in a format."""
        status, durable = 201 if added.n_new else 200, self._context.service.disk.is_durable
        if wanted is Format.JSON:
            return json_answer(addition_content(added, durable=durable), status)
        await _import_formats()
        return _whole(await asyncio.to_thread(encode_addition, wanted, added, durable=durable), wanted, status)

    async def _take(self, collector: Collector, block: bytes) -> None:
        if await asyncio.to_thread(collector.take, block) > self._limits.max_samples:
            rule = f"The body has more than {self._limits.max_samples} samples: split it."
            raise ProblemError("too-many-rows", rule)


async def learn(context: Context, samples: NewSamples, sent: list[Any], key: IdempotencyKey | None = None) -> Added:
    """Learn samples of a `POST /samples` body; what refuses them names the places in the list as it was sent."""
    schema = context.reader().schema
    try:
        return await context.service.changes.add(samples, key)
    except InputError as error:
        features = [sample["features"] for sample in sent]
        raise explain(error, lambda row: ("samples", row, "features"), features, schema) from None


async def _import_formats() -> None:
    """Import pyarrow in a thread: it takes a while, once."""
    await asyncio.to_thread(import_module, "oubli.app.datasets.streams")


class _Scoring:
    """One prediction in bulk.

    Parameters
    ----------
    context
        Of the application.
    reader
        For the schema that the body is read by.
    source
        Reads the body.
    request
        The request.
    """

    def __init__(self, context: Context, reader: Reader, source: Source, request: Request) -> None:
        self._service = context.service
        self._reader = reader
        self._source = source
        self._body = request.stream()
        self._scope = request.scope
        self._stream = request.scope[STREAM] = Stream()

    @property
    def is_over(self) -> bool:
        """Whether nothing more of the body has to come, as far as is known."""
        return self._source.blocks.is_over

    async def parts(self) -> AsyncGenerator[Part]:
        """Yield the rows of the body.

        Raises
        ------
        ProblemError
            When the body cannot be read.
        """
        try:
            blocks = self._source.blocks
            async for data in self._body:
                for block in blocks.feed(data):
                    async for part in self._parts_of(block):
                        yield part
            for block in blocks.end():
                async for part in self._parts_of(block):
                    yield part
        except StreamError as error:
            raise _problem_of(error, rows="instances") from None

    async def _parts_of(self, block: bytes) -> AsyncGenerator[Part]:
        await self._until_taken()
        self._stream.begin_block(keeps=getattr(self._source.blocks, "has_dictionaries", False))
        parts = self._source.parts(block)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            yield part

    async def score(self, part: Part) -> Predicted:
        """Predict some rows, by the model as it is now."""
        service, schema = self._service, self._reader.schema
        if service.model.state.model.schema_ != schema:
            raise ModelChangedError
        try:
            predicted = await service.questions.predict(part.rows, refusable=part.first == 0)
        except InputError as error:
            raise explain(error, lambda row: ("instances", part.first + row), part.sent, schema) from None
        if service.model.state.model.schema_ != schema:
            raise ModelChangedError
        return predicted

    async def answers(
        self, encoder: Encoder, predicted: Predicted, parts: AsyncGenerator[Part]
    ) -> AsyncGenerator[bytes]:
        """Yield the answer in pieces.

        Raises
        ------
        ConnectionAbortedError
            When it cannot be completed; the reason has been sent.
        """
        yield await asyncio.to_thread(encoder.begin, predicted)
        try:
            yield await asyncio.to_thread(encoder.encode, predicted)
            async for part in parts:
                predicted = await self.score(part)
                yield await asyncio.to_thread(encoder.encode, predicted)
            yield encoder.end()
            await self._until_taken()
        except ClientDisconnect:
            raise
        except Exception as error:
            problem = to_problem(error) or report_mistake(error)
            yield encoder.fail(problem.content())
            # A client that sends everything before it reads an answer would never read why.
            with suppress(Exception):
                async for _ in self._body:
                    pass
            raise ConnectionAbortedError from None

    async def _until_taken(self) -> None:
        """Wait until the client has taken in what was written, so that no answers pile up."""
        unsent: Callable[[], int] | None = self._scope.get(UNSENT)
        while unsent is not None and unsent():  # noqa: ASYNC110 - the transport has no event for it
            await asyncio.sleep(_LOOK)


class _Streamed(StreamingResponse):
    """An answer in pieces; the reader of the body notices when the client is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await self.stream_response(send)


def _whole(body: bytes, wanted: Format, status: int = 200) -> Response:
    return Response(body, status, NO_STORE, media_type=wanted)


def _encode_all(encoder: Encoder, found: Sequence[Predicted]) -> bytes:
    return b"".join([encoder.begin(found[0]), *map(encoder.encode, found), encoder.end()])


async def _merged(parts: AsyncIterator[Part], reader: Reader) -> Part:
    """Return all rows as one part, at most as many as a request may have in JSON."""
    found: list[Part] = []
    n_rows = 0
    async for part in parts:
        n_rows += len(part.rows)
        if n_rows > reader.max_rows:
            rule = f"The body has more than {reader.max_rows} rows, which is the most that is answered in JSON: "
            raise ProblemError("too-many-rows", rule + "ask for another format with 'Accept', or split it.")
        found.append(part)
    if not found:
        raise no_rows("instances")
    rows = [part.rows for part in found]
    if isinstance(rows[0], np.ndarray):
        merged: Any = np.concatenate(rows)
    elif isinstance(rows[0], list):
        merged = [row for some in rows for row in some]
    else:
        from oubli.app.datasets.columns import Frame

        merged = Frame({name: np.concatenate([some[name] for some in rows]) for name in rows[0].columns})
    is_named = found[0].sent is NAMED
    return Part(0, merged, NAMED if is_named else [row for part in found for row in part.sent])


def _problem_of(error: StreamError, *, rows: str, fields: Sequence[str] = ()) -> ProblemError:
    """Return the problem of a body; `rows` and `fields` are the names that lead to a row, and from there to a field."""
    if error.row is not None:
        place: Place = (rows, error.row) if error.field is None else (rows, error.row, *fields, error.field)
        return ProblemError(_SLUGS[error.kind], errors=[(pointer(*place), error.rule)])
    rule = error.rule if error.field is None else f"(column '{error.field}') {error.rule}"
    if error.kind == "invalid":
        return invalid("", rule)
    return ProblemError(_SLUGS[error.kind], f"The body {rule}.")


def bulk_of(request: Request) -> Bulk:
    """Return what answers requests in bulk."""
    bulk: Bulk = request.scope["app"].state.bulk
    return bulk
