"""Responses of the routes that do not go through pydantic: JSON bytes, and CSV for lists of samples.

Files that are sent whole although their names may be gone before the end.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from oubli.app.http.formats import BESIDE, NONCE, ORIGIN, columns_beside, csv_header, csv_line, label_column
from oubli.app.http.problems import invalid
from oubli.app.ledger.entries import Receipt
from oubli.app.service.changes.additions import Added
from oubli.app.service.changes.deletions import Deleted, NothingErased
from oubli.app.service.changes.restrictions import Restricted
from oubli.app.service.erasure.holders import Holders
from oubli.app.service.evidence.sample_set import values_as_held
from oubli.app.service.jobs.exports import Bundle
from oubli.app.service.jobs.jobs import Job
from oubli.app.service.model.influence import Comparison
from oubli.app.service.model.live import Predicted
from oubli.app.service.model.questions import Page
from oubli.app.service.service import Service
from oubli.app.times import to_text
from oubli.core.data.schema import Schema
from oubli.core.data.values import shortest
from oubli.core.model import QueryResult
from oubli.core.samples.records import HeldSample

# No cache on the way may keep a copy: it could outlive the sample.
NO_STORE = {"Cache-Control": "no-store"}
# No time is among the objects: `to_text` writes them all alike.
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATETIME
_CURSOR = struct.Struct(">QQ")


def to_json(content: Any) -> bytes:
    """Return an object as JSON; arrays included."""
    return orjson.dumps(content, option=_OPTIONS)


def json_answer(content: Any, status: int = 200) -> Response:
    """Return the response with an object as JSON."""
    return Response(to_json(content), status, NO_STORE, media_type="application/json")


def prediction_content(predicted: Predicted) -> dict[str, Any]:
    """Return predictions as an object; regression has neither classes nor probabilities."""
    return {**result_content(predicted.result), "model_version": predicted.model_version}


def result_content(result: QueryResult) -> dict[str, Any]:
    """Return predictions as an object, without a version."""
    content: dict[str, Any] = {"predictions": result.labels.tolist()}
    if result.classes is not None:
        content["classes"] = result.classes.tolist()
        content["probabilities"] = np.ascontiguousarray(result.probabilities)
    return content


def addition_content(added: Added, *, durable: bool) -> dict[str, Any]:
    """Return what became of samples that were sent, as an object."""
    return {"ids": added.ids, "model_version": added.model_version, "n_samples": added.n_samples, "durable": durable}


def receipt_content(receipt: Receipt | NothingErased, *, durable: bool) -> dict[str, Any]:
    """Return a receipt as an object. What was signed is everything but `signature` and `durable`."""
    return {**receipt.content(), "durable": durable}


def deletion_content(deleted: Deleted, *, durable: bool) -> dict[str, Any]:
    """Return a receipt, and of which names something was held, as an object."""
    found = [{"position": position, "samples": n} for position, n in deleted.found]
    return {"receipt": receipt_content(deleted.outcome, durable=durable), "found": found}


def sample_content(sample: HeldSample, schema: Schema) -> dict[str, Any]:
    """Return a sample as an object."""
    features, label = values_as_held(sample, schema)
    return {
        "id": sample.id,
        "subject": sample.subject,
        "features": dict(zip(schema.names, features, strict=True)),
        "label": label,
        "expires_at": _time(sample.expires_ms),
        "restricted_at": _time(sample.restricted_ms),
        "weight": shortest(sample.weight, "float64"),
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else to_text(at_ms)


def restriction_content(made: Restricted, *, durable: bool) -> dict[str, Any]:
    """Return what became of a restriction, of a release, or of a retention period, as an object."""
    content = asdict(made)
    kind = content.pop("kind")
    if kind != "released":
        del content["expired"]
    if kind != "retained":
        del content["seconds"]
    return {**content, "durable": durable}


def bundle_content(bundle: Bundle, schema: Schema, *, durable: bool) -> dict[str, Any]:
    """Return a bundle as an object."""
    return {
        "subject": bundle.subject,
        "held": bool(bundle.samples),
        "exported_at": to_text(bundle.exported_ms),
        "model_version": bundle.model_version,
        "kind": bundle.kind,
        "guarantee": bundle.guarantee,
        "samples": [
            {
                **sample_content(one.sample, schema),
                "added_at": None if one.addition is None else to_text(one.addition.at_ms),
                "request_id": None if one.addition is None else one.addition.request,
            }
            for one in bundle.samples
        ],
        "receipts": [receipt_content(one, durable=durable) for one in bundle.receipts],
        "influence": bundle.influence,
    }


def bundle_csv(bundle: Bundle, schema: Schema) -> str:
    """Return the samples of a bundle as CSV, with where they come from."""
    beside = columns_beside(schema)
    lines = [csv_header([*(beside[name] for name in (*BESIDE, *ORIGIN)), *schema.names, label_column(schema)])]
    for sample, addition in bundle.samples:
        added = (None, None) if addition is None else (to_text(addition.at_ms), addition.request)
        features, label = values_as_held(sample, schema)
        lines.append(csv_line([*_beside(sample), *added, *features, label]))
    return "".join(lines)


def _beside(sample: HeldSample) -> tuple[str | float | None, ...]:
    """Return what is in the columns besides features and label."""
    times = _time(sample.expires_ms), _time(sample.restricted_ms)
    return sample.id, sample.subject, *times, shortest(sample.weight, "float64")


async def bundle_answer(service: Service, bundle: Bundle, *, csv: bool) -> Response:
    """Return a bundle, written in a thread: it may be long."""
    schema, durable = service.model.state.model.schema_, service.disk.is_durable
    if csv:
        text = await asyncio.to_thread(bundle_csv, bundle, schema)
        return Response(text, 200, NO_STORE, media_type="text/csv")
    content = await asyncio.to_thread(lambda: to_json(bundle_content(bundle, schema, durable=durable)))
    return Response(content, 200, NO_STORE, media_type="application/json")


def comparison_content(found: Comparison) -> dict[str, Any]:
    """Return predictions with and without some samples, as an object."""
    return {
        "with": result_content(found.with_them),
        "without": None if found.without_them is None else result_content(found.without_them),
        "removed": found.removed,
        "absent": found.absent,
        "n_samples": found.n_samples,
        "model_version": found.model_version,
    }


KEPT = ("influence", "export", "without")
"""Kinds of jobs whose result is kept apart from the job; under the kind the job has the name that it is kept by."""


def job_content(job: Job) -> dict[str, Any]:
    """Return a job as an object; without result and error while there are none."""
    content: dict[str, Any] = {"id": job.id, "kind": job.kind, "status": job.status, "progress": job.progress}
    if job.error is not None:
        content["error"] = job.error
    if job.result is not None:
        content["result"] = job.result
        if job.kind in KEPT:
            shown = {name: value for name, value in job.result.items() if name != job.kind}
            content["result"] = {"url": f"/jobs/{job.id}/result", **shown}
    return content


def job_answer(job: Job) -> Response:
    """Return the response to a request that a job was begun for."""
    answer = json_answer(job_content(job), 202)
    answer.headers["Location"] = f"/jobs/{job.id}"
    return answer


def wants_csv(request: Request, chosen: str | None) -> bool:
    """Whether to answer in CSV: the `format` parameter decides, then the `Accept` header."""
    if chosen is None:
        accept = request.headers.get("accept", "")
        return "text/csv" in accept and "application/json" not in accept
    if chosen not in ("json", "csv"):
        raise invalid("/format", "must be 'json' or 'csv'")
    return chosen == "csv"


def page_answer(page: Page, schema: Schema, *, csv: bool) -> Response:
    """Return a page of samples. In CSV the cursor of the next page is in the header `Next-Cursor`."""
    cursor = None if page.next_slot is None else write_cursor(page.epoch, page.next_slot)
    nonces = None if page.nonces is None else [None if one is None else one.hex() for one in page.nonces]
    if csv:
        return csv_answer(page.samples, schema, cursor, nonces)
    samples = [sample_content(sample, schema) for sample in page.samples]
    content = {"samples": samples, "next": cursor, "model_version": page.model_version}
    if nonces is not None and page.positions_key is not None:
        for sample, nonce in zip(samples, nonces, strict=True):
            sample["nonce"] = nonce
        content["positions_key"] = page.positions_key.hex()
    return json_answer(content)


def csv_answer(
    samples: Sequence[HeldSample],
    schema: Schema,
    cursor: str | None = None,
    nonces: Sequence[str | None] | None = None,
) -> Response:
    """Return samples as CSV: what is beside them, features, label. A missing value is empty, empty text is ``""``."""
    beside = columns_beside(schema)
    names = BESIDE if nonces is None else (*BESIDE, NONCE)
    lines = [csv_header([*(beside[name] for name in names), *schema.names, label_column(schema)])]
    for row, sample in enumerate(samples):
        features, label = values_as_held(sample, schema)
        opening = () if nonces is None else (nonces[row],)
        lines.append(csv_line([*_beside(sample), *opening, *features, label]))
    headers = NO_STORE if cursor is None else {**NO_STORE, "Next-Cursor": cursor}
    return Response("".join(lines), 200, headers, media_type="text/csv")


def write_cursor(epoch: int, slot: int) -> str:
    """Return an opaque text for a place in the list of samples. It holds no id."""
    return base64.urlsafe_b64encode(_CURSOR.pack(epoch, slot)).decode("ascii").rstrip("=")


def read_cursor(text: Any) -> tuple[int, int] | None:
    """Return epoch and slot of a cursor."""
    if text is None:
        return None
    try:
        epoch, slot = _CURSOR.unpack(base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, TypeError, struct.error):
        raise invalid("/cursor", "is no cursor of this server: pass on 'next' of the page before as it is") from None
    return epoch, min(slot, 2**62)


MEDIA_TYPE = "application/octet-stream"


class OpenedFile(FileResponse):
    """A file that is sent whole even if its name is gone before the end, as snapshots go when something is erased.

    A client that reads so slowly that an erasure could not be finished in time gets half of the file.
    """

    def __init__(self, file: BinaryIO, name: str, holders: Holders) -> None:
        self._file = file
        self._holders = holders
        super().__init__(
            f"/dev/fd/{file.fileno()}",
            media_type=MEDIA_TYPE,
            filename=name,
            headers={"Cache-Control": "no-store"},
            stat_result=os.fstat(file.fileno()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, and close it in any case."""
        sending = asyncio.ensure_future(super().__call__(scope, receive, send))
        with self._file, self._holders.hold("downloads", sending.cancel) as hold:
            try:
                await sending
            except asyncio.CancelledError:
                sending.cancel()
                if hold.is_ended:
                    raise ConnectionAbortedError from None
                raise
