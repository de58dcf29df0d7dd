"""What routes read from a request: its application, its body and its query. `core` checks values against the schema.

orjson parses the raw bytes, and no model class is in between: an object for each row would take longer than the rest.
Every shape is closed: an unknown key is refused, so that a misspelt key does not pass in silence. A JSON pointer names
each wrong place; submitted values are never repeated.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

import numpy as np
import orjson
from starlette.requests import Request

from oubli.api.samples import LONGEST_PERIOD
from oubli.app.http.auth import AccessRules
from oubli.app.http.monitoring.metrics import RequestMetrics
from oubli.app.http.problems import NOT_ADDED, ProblemError, invalid, pointer, too_many_rows
from oubli.app.ledger.entries import By
from oubli.app.service.changes.additions import NewSamples, Row
from oubli.app.service.changes.deletions import Replacement
from oubli.app.service.model.questions import Change
from oubli.app.service.service import Service
from oubli.app.times import TimeError, parse_future
from oubli.core.data.schema import COLUMN_RULES, LARGEST_WEIGHT, Schema, Task
from oubli.core.data.values import NOT_FINITE, TOO_LARGE, normalise_id
from oubli.core.errors import InputError
from oubli.core.jit.targets import GRID
from oubli.core.planning import KEEP, Keep
from oubli.core.samples.weights import FIELD, RULE
from oubli.core.unseen.conformal import read_coverage

KEY_HEADER = "Idempotency-Key"
METHODS = ("leaf-influence", "leaf-refit", "leave-one-out")
MOST_NAMED = 1000  # samples in an answer about influence
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PREDICTION_KEYS = frozenset({"instances", "receipt", "coverage", "by_class"})
_SAMPLE_KEYS = {"id", "subject", "features", "label", "expires_at", "restricted_at", "readd", "retention", "weight"}
_REPLACEMENT_KEYS = _SAMPLE_KEYS - {"readd", "retention"}
MOST_COMPARED = 100  # instances
SHORT_BODY = 2**15  # bytes that are read in 5 ms at most; lists of ids take the longest
_SCANNED = 2**20  # bytes that are looked at in one step
_MORE_VALUES = 16  # that a sample has besides its features, and brackets
_FEW_VALUES = 1000  # that any body may have
T = TypeVar("T")


async def read(work: Callable[[bytes], T], body: bytes) -> T:
    """Return the result of some work on a body, which runs in a thread unless the body is short."""
    return work(body) if len(body) <= SHORT_BODY else await asyncio.to_thread(work, body)


def require_few_values(body: bytes, n_rows: int, n_features: int) -> None:
    """Refuse JSON with more values than so many rows have: the parser would keep all other threads waiting.

    Raises
    ------
    ProblemError
        When there are more.
    """
    most = _FEW_VALUES + n_rows * (n_features + _MORE_VALUES)
    if len(body) <= most or sum(map(body.count, (b",", b"[", b"{"))) <= most:
        return
    # Those in texts do not count. Without what is escaped, each quotation mark begins or ends a text.
    plain = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    n_values, n_quotes = 0, 0
    for start in range(0, len(plain), _SCANNED):
        part = plain[start : start + _SCANNED]
        quotes = np.cumsum(part == ord('"'), dtype=np.int64) + n_quotes
        n_quotes = int(quotes[-1])
        n_values += int(np.count_nonzero(np.isin(part, (ord(","), ord("["), ord("{"))) & (quotes % 2 == 0)))
    if n_values > most:
        raise ProblemError("too-many-rows", f"The body has more values than {n_rows} rows can have: split it.")


def parse_json(text: bytes) -> Any:
    """Return JSON as an object. A number that no 64-bit float holds is infinite, and refused where it stands.

    Raises
    ------
    orjson.JSONDecodeError
        When it is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "infinity" not in error.msg:
            raise
        try:  # a constant, such as NaN, is no integer
            return json.loads(
                text, parse_int=lambda one: int(one) if len(one) < 309 else float(one), parse_constant=int
            )
        except (ValueError, RecursionError):
            raise error from None


def parse_object(body: bytes, n_rows: int, n_features: int) -> dict[str, Any]:
    """Return the JSON object of a body that has no more values than so many rows have."""
    require_few_values(body, n_rows, n_features)
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ProblemError("broken-json") from None
    if not isinstance(content, dict):
        raise invalid("", "must be a JSON object")
    return content


def with_rules(schema: Schema, sent: Mapping[str, Any], place: str = "") -> Schema:
    """Return a schema with the rules about columns that a request asks for, at a place, where it does."""
    asked = {name: sent[name] for name in COLUMN_RULES if sent.get(name) is not None}
    for name, rule in asked.items():
        if rule not in COLUMN_RULES[name]:
            raise invalid(f"{place}/{name}", f"must be {' or '.join(map(repr, COLUMN_RULES[name]))}")
    return replace(schema, **asked) if asked else schema


class AskedPrediction(NamedTuple):
    """What a `/predict` body asks: the instances as sent, and their rows in order."""

    instances: list[Any]
    rows: list[Row]
    coverage: float | None
    with_receipt: bool
    by_class: bool


class Asked(NamedTuple):
    """What a `POST /influence` body asks, as it was sent."""

    instances: list[Any]
    labels: list[Any] | None
    method: str | None
    update_set: Any
    top: int


class Reader:
    """Reads request bodies for one schema.

    Parameters
    ----------
    schema
        Gives the names and the order of the features.
    max_rows
        Most instances, samples or ids in one request.
    max_depth
        Deepest nesting of a body.
    now_ms
        The time, in milliseconds since 1970.

    Attributes
    ----------
    rules
        The schema with the rules about columns that the request asks for.
    """

    def __init__(self, schema: Schema, *, max_rows: int, max_depth: int, now_ms: Callable[[], int]) -> None:
        self.schema = schema
        self.max_rows = max_rows
        self.max_depth = max_depth
        self._now_ms = now_ms
        self._names = tuple(schema.names)
        self._known = frozenset(self._names)
        self.rules = schema

    # --- bodies

    def prediction(self, body: bytes) -> AskedPrediction:
        """Return what a `/predict` body asks."""
        content = self._object(body, _PREDICTION_KEYS)
        instances = self._list(content, "instances", "instances")
        coverage = content.get("coverage")
        if coverage is not None:
            try:
                coverage = read_coverage(coverage)
            except InputError as error:
                raise invalid("/coverage", error.rule) from None
        by_class = flag_of(content, "by_class")
        if by_class and coverage is None:
            raise invalid("/by_class", "says whom `coverage` is for: pass it too, or leave this out")
        return AskedPrediction(instances, self.rows(instances), coverage, flag_of(content, "receipt"), by_class)

    def rows(self, instances: list[Any]) -> list[Row]:
        """Return the cells of instances in feature order."""
        n_features = len(self._names)
        for i, row in enumerate(instances):
            if type(row) is not list or len(row) != n_features:
                return [*instances[:i], *(self.row(r, ("instances", j)) for j, r in enumerate(instances[i:], i))]
        return instances

    def samples(self, body: bytes) -> tuple[NewSamples, list[Any]]:
        """Return the samples of a `POST /samples` body, and the list as it was sent."""
        content = self._object(body, {"samples"})
        sent = self._list(content, "samples", "samples")
        samples = NewSamples([], [], [], [], [], [])
        for i, sample in enumerate(sent):
            self.add_sample(samples, i, sample)
        refuse_repeated(samples.ids)
        return samples, sent

    def question(self, body: bytes) -> Asked:
        """Return what a `POST /influence` body asks."""
        content = self._object(body, {"instances", "labels", "method", "update_set", "top"})
        instances = self._list(content, "instances", "instances")
        labels = content.get("labels")
        if labels is not None:
            labels = self._list(content, "labels", "labels")
            if len(labels) != len(instances):
                raise invalid("/labels", f"has {len(labels)} labels for {len(instances)} instances: send one for each")
        method, update_set, top = content.get("method"), content.get("update_set", "all"), content.get("top", 10)
        if method is not None and method not in METHODS:
            raise invalid("/method", f"must be one of {', '.join(map(repr, METHODS))}")
        is_number = type(update_set) is int and update_set >= 1
        if not is_number and update_set not in ("all", "single"):
            raise invalid("/update_set", "must be 'all', 'single' or a number of leaves of at least 1")
        if type(top) is not int or not 1 <= top <= MOST_NAMED:
            raise invalid("/top", f"must be an integer from 1 to {MOST_NAMED}")
        return Asked(instances, labels, method, update_set, top)

    def explanation(self, body: bytes) -> tuple[list[Any], Change | None]:
        """Return the instances of an `/explain` body as they were sent, and which change is asked for."""
        content = self._object(body, {"instances", "change"})
        instances, sent = self._list(content, "instances", "instances"), content.get("change")
        if sent is None:
            return instances, None
        if not isinstance(sent, dict) or not {"columns", "features", "target"}.issuperset(sent):
            raise self._refuse(sent, "/change", "must be an object with 'columns', 'features' and 'target', or null")
        columns, features = sent.get("columns", 1), sent.get("features")
        if type(columns) is not int or columns not in (1, 2):
            raise invalid("/change/columns", "must be 1 or 2: how many columns may change")
        if features is not None and not isinstance(features, list):
            raise invalid("/change/features", "must be a list of feature names, or null for all")
        for i, name in enumerate(features or ()):
            if not isinstance(name, str) or name not in self._known:
                raise invalid(pointer("change", "features", i), "must be the name of a feature: GET /model lists them")
        if sent.get("target") is None and self.schema.task is Task.REGRESSION:
            raise invalid("/change/target", "is missing: send the number that the prediction is to cross")
        return instances, Change(columns, features, sent.get("target"))

    def replacement(self, body: bytes, sample_id: str) -> tuple[Replacement, Any]:
        """Return what a `PUT /samples/{id}` body asks for, and the features as they were sent."""
        content = self._object(body, _REPLACEMENT_KEYS)
        if content.get("id") is not None and parse_name(content["id"], "/id") != sample_id:
            raise invalid("/id", "must be the id in the path: a sample keeps its id; leave it out")
        for key in ("features", "label"):
            if key not in content:
                raise invalid(pointer(key), "is missing: PUT replaces the whole sample")
        if content.get("restricted_at") is not None:
            rule = "does not come with a sample: leave it out, the restriction stays until `POST /subjects/release`"
            raise invalid("/restricted_at", rule)
        subject: str | Keep | None = KEEP
        if "subject" in content:
            subject = None if content["subject"] is None else parse_name(content["subject"], "/subject")
        expires: int | Keep | None = KEEP
        if "expires_at" in content:
            sent = content["expires_at"]
            expires = None if sent is None else self.time(sent, ("expires_at",))
        weight: float | Keep = parse_weight(content["weight"], ("weight",)) if "weight" in content else KEEP
        features = content["features"]
        row = self.row(features, ("features",))
        return Replacement(sample_id, row, content["label"], subject, expires, weight), features

    def targets(self, body: bytes) -> tuple[list[str] | None, list[str] | None, str | None, bool]:
        """Return ids, subjects (one is None) and case number of a batch deletion, and whether to list what is found."""
        content = self._object(body, {"ids", "subjects", "ref", "list_found"})
        ids, subjects = self._named(content)
        ref = None if content.get("ref") is None else parse_ref(content["ref"], "/ref")
        return ids, subjects, ref, flag_of(content, "list_found")

    def absence(self, body: bytes) -> tuple[list[Any], list[str] | None, list[str] | None]:
        """Return the instances of a `/predict/without` body as they were sent, and ids or subjects."""
        content = self._object(body, {"instances", "ids", "subjects"})
        instances = self._list(content, "instances", "instances")
        if len(instances) > MOST_COMPARED:
            raise invalid("/instances", f"has {len(instances)} rows: send at most {MOST_COMPARED}")
        return instances, *self._named(content)

    def _named(self, content: dict[str, Any]) -> tuple[list[str] | None, list[str] | None]:
        """Return ids and subjects, one of which is None."""
        named = [key for key in ("ids", "subjects") if key in content]
        if len(named) != 1:
            raise invalid("", "must have either 'ids' or 'subjects', and not both")
        key = named[0]
        names = parse_names(self._list(content, key, key), key)
        return (names, None) if key == "ids" else (None, names)

    def subjects(self, body: bytes, *, takes_keep: bool = False) -> tuple[list[str], str | None, bool]:
        """Return the subjects that a body names, its case number, and whether samples are kept beyond their expiry."""
        content = self._object(body, {"subjects", "ref", "keep_expired"} if takes_keep else {"subjects", "ref"})
        names = parse_names(self._list(content, "subjects", "subjects"), "subjects")
        ref = None if content.get("ref") is None else parse_ref(content["ref"], "/ref")
        return names, ref, flag_of(content, "keep_expired")

    def retained(self, body: bytes) -> tuple[list[str], int | None, str | None]:
        """Return the subjects that a body names, for how many seconds their samples are kept, and its case number."""
        content = self._object(body, {"subjects", "seconds", "ref"})
        names = parse_names(self._list(content, "subjects", "subjects"), "subjects")
        if "seconds" not in content:
            raise invalid("/seconds", "is missing: say for how many seconds samples are kept, or null for no period")
        seconds = None if content["seconds"] is None else parse_seconds(content["seconds"], ("seconds",))
        return names, seconds, None if content.get("ref") is None else parse_ref(content["ref"], "/ref")

    def export(self, body: bytes) -> tuple[str, bool]:
        """Return whose bundle is asked for, and whether with influence."""
        content = self._object(body, {"subject", "influence"})
        if "subject" not in content:
            raise invalid("/subject", "is missing: name whose samples to return")
        return parse_name(content["subject"], "/subject"), flag_of(content, "influence")

    def absent_name(self, body: bytes) -> tuple[By, str]:
        """Return what is to be proved absent."""
        content = self._object(body, {"id", "subject"})
        if len(content) != 1:
            raise invalid("", "must name either an 'id' or a 'subject'")
        (key, name), *_ = content.items()
        return "ids" if key == "id" else "subjects", parse_name(name, pointer(key))

    def search(self, body: bytes, most: int) -> tuple[list[str] | None, str, Any, Any]:
        """Return what a search is for: ids, at most so many; or None, subject, and cursor and limit as sent."""
        content = self._object(body, {"ids", "subject", "cursor", "limit"})
        if "ids" in content:
            if len(content) > 1:
                raise invalid("/ids", "names the samples: leave out 'subject', 'cursor' and 'limit'")
            values = self._list(content, "ids", "ids")
            if len(values) > most:
                raise invalid("/ids", f"has {len(values)} ids: send at most {most}")
            return parse_names(values, "ids"), "", None, None
        if "subject" not in content:
            raise invalid("/subject", "is missing: name whose samples to return, or send 'ids'")
        return None, parse_name(content["subject"], "/subject"), content.get("cursor"), content.get("limit")

    # --- pieces

    def _object(self, body: bytes, keys: Set[str]) -> dict[str, Any]:
        require_few_values(body, self.max_rows, len(self._names))
        try:
            content = parse_json(body)
        except orjson.JSONDecodeError as error:
            if "depth" in error.msg:  # the parser's own limit, 1024 levels
                raise self._too_deep() from None
            raise ProblemError("broken-json") from None
        if not isinstance(content, dict):
            raise self._refuse(content, "", "must be a JSON object")
        for key in content:
            if key not in keys:
                raise self._refuse(content, "", f"has a key that is not known; {_listed(keys)}")
        return content

    def _list(self, content: dict[str, Any], key: str, what: str) -> list[Any]:
        if key not in content:
            raise invalid(pointer(key), "is missing: send a list")
        values = content[key]
        if not isinstance(values, list):
            raise self._refuse(values, pointer(key), "must be a list")
        if not values:
            raise invalid(pointer(key), "must not be empty")
        if len(values) > self.max_rows:
            raise too_many_rows(what, len(values), self.max_rows)
        return values

    def add_sample(self, samples: NewSamples, i: int, sample: Any) -> None:
        """Add one of the samples as they were sent, the one at position `i`, to the others."""
        if not isinstance(sample, dict):
            raise self._refuse(sample, pointer("samples", i), "must be an object with 'features' and 'label'")
        if not _SAMPLE_KEYS.issuperset(sample):
            raise self._refuse(sample, pointer("samples", i), f"has a key that is not known; {_listed(_SAMPLE_KEYS)}")
        for key in ("features", "label"):
            if key not in sample:
                raise invalid(pointer("samples", i, key), "is missing: a sample has 'features' and a 'label'")
        readd, expires = sample.get("readd", False), sample.get("expires_at")
        if not isinstance(readd, bool):
            raise invalid(pointer("samples", i, "readd"), "must be true or false")
        if sample.get("restricted_at") is not None:
            raise invalid(pointer("samples", i, "restricted_at"), NOT_ADDED)
        features = sample["features"]
        if type(features) is not list or len(features) != len(self._names):
            features = self.row(features, ("samples", i, "features"))
        name, subject = sample.get("id"), sample.get("subject")
        samples.rows.append(features)
        samples.labels.append(sample["label"])
        samples.ids.append(None if name is None else parse_name(name, ("samples", i, "id")))
        samples.subjects.append(None if subject is None else parse_name(subject, ("samples", i, "subject")))
        samples.expires.append(None if expires is None else self.time(expires, ("samples", i, "expires_at")))
        samples.readd.append(readd)
        weight = parse_weight(sample.get("weight"), ("samples", i, "weight"))
        if weight != 1:
            samples.weights[i] = weight
        retention = sample.get("retention")
        if retention is not None:
            self.add_retention(samples.retentions, samples.subjects[-1], retention, i)

    def add_retention(self, retentions: dict[str, int], subject: str | None, seconds: Any, i: int) -> None:
        """Add what the sample at position `i` says of how long samples of its subject are kept."""
        place = ("samples", i, "retention")
        period = parse_seconds(seconds, place) * 1000
        if subject is None:
            raise invalid(pointer(*place), "is of a subject, and the sample has none: name it, or leave this out")
        if retentions.setdefault(subject, period) != period:
            raise invalid(pointer(*place), "is another than that of an earlier sample of the subject: say one period")

    def time(self, value: Any, place: tuple[str | int, ...]) -> int:
        """Return a time to come, in milliseconds since 1970."""
        try:
            return parse_future(value, self._now_ms())
        except TimeError as error:
            raise invalid(pointer(*place), error.rule) from None

    def row(self, features: Any, place: tuple[str | int, ...]) -> Row:
        """Return the cells of one row, which stands at a place in the request, in feature order."""
        n_features = len(self._names)
        if isinstance(features, list):
            if len(features) == n_features:
                return features
            given = len(features)
            remedy = "add the missing ones" if given < n_features else "remove what the schema does not have"
            raise self._refuse(
                features,
                pointer(*place),
                f"has {given} features, the model has {n_features}: {remedy}, in the order that GET /model lists",
            )
        if not isinstance(features, dict):
            rule = "must be a list in feature order, or an object by feature name"
            raise self._refuse(features, pointer(*place), rule)
        if features.keys() != self._known:
            self._check_names(features, place)
        return list(map(features.get, self._names))

    def _check_names(self, features: dict[str, Any], place: tuple[str | int, ...]) -> None:
        """Refuse the names of a row's features, which are not those of the schema, unless the rules allow them."""
        errors, rules = list[tuple[str, str]](), self.rules
        number = next((number for number, name in enumerate(features, 1) if name not in self._known), None)
        if number is not None and _depth(features) > self.max_depth:
            raise self._too_deep()
        if number is not None and rules.extra_columns == "refuse":
            nearest = rules.nearest(list(features)[number - 1])
            rule = f"has as feature {number} a name that the model does not know{nearest}: GET /model lists the names; "
            errors.append((pointer(*place), f"{rule}{LEAVE_OUT}"))
        if rules.missing_columns == "refuse":
            missing = [name for name in self._names if name not in features]
            rule = "is missing: send null when the value is unknown, or ask with missing_columns=missing"
            errors += [(pointer(*place, name), rule) for name in missing[:10]]
        if errors:
            raise ProblemError("invalid-input", errors=errors)

    def _refuse(self, content: Any, place: str, rule: str) -> ProblemError:
        """Return the problem of a wrong shape. As all shapes are closed, a body that is too deep ends here."""
        return self._too_deep() if _depth(content) > self.max_depth else invalid(place, rule)

    def _too_deep(self) -> ProblemError:
        return invalid("", f"is nested too deeply: at most {self.max_depth} levels are accepted")


LEAVE_OUT = "leave it out, or ask with extra_columns=ignore"


def explain(
    error: InputError, place: Callable[[int], tuple[str | int, ...]], sent: Sequence[Any], schema: Schema
) -> ProblemError:
    """Return the problem of an input that `core` refused.

    Parameters
    ----------
    error
        Names row, field and rule.
    place
        Returns the JSON pointer of a row's features, as parts.
    sent
        The features of each row as they were sent: places in a list are named by position, in an object by name.
    schema
        Gives the positions.
    """
    if error.row is None:
        return invalid("", error.rule)
    parts = place(error.row)
    row = sent[error.row]
    if error.field is None:
        return invalid(pointer(*parts), error.rule)
    if error.field in schema.names:
        position: str | int = error.field if isinstance(row, dict) else schema.index(error.field)
        # JSON has no infinities, see `parse_json`.
        rule = TOO_LARGE if row and error.rule == NOT_FINITE else error.rule
        # The name helps a client that sent a list; it comes from the schema.
        rule = rule if isinstance(row, dict) else f"(feature '{error.field}') {rule}"
        return invalid(pointer(*parts, position), rule)
    beside = parts[:-1]
    key = {"id": "id", "subject": "subject", FIELD: "weight"}.get(error.field, "label")
    return invalid(pointer(*beside, key), error.rule)


# --- query strings


def parse_query(raw: bytes, allowed: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each query parameter, in order; refuses names that are not allowed and broken UTF-8."""
    values: dict[str, list[str]] = {}
    known = set(allowed)
    for part in raw.split(b"&"):
        if not part:
            continue
        name, _, value = part.partition(b"=")
        key = _unquote(name.replace(b"+", b" "))
        if key not in known:
            raise invalid("", f"the query has a parameter that is not known; {_listed(known)}")
        values.setdefault(key, []).append(_unquote(value.replace(b"+", b" ")))
    return values


def one_value(query: Mapping[str, list[str]], name: str) -> str | None:
    """Return a parameter that may be given once."""
    values = query.get(name, [])
    if len(values) > 1:
        raise invalid(pointer(name), "must be given once")
    return values[0] if values else None


def parse_values(raw: bytes, *names: str) -> list[str | None]:
    """Return the values of query parameters that may each be given once; refuses other parameters."""
    query = parse_query(raw, names)
    return [one_value(query, name) for name in names]


def parse_names(values: list[Any], key: str) -> list[str]:
    """Return ids or subjects of a list in the request."""
    return [parse_name(value, pointer(key, i)) for i, value in enumerate(values)]


def parse_weight(value: Any, place: tuple[str | int, ...]) -> float:
    """Return the weight of a sample, as it is held; 1 for null."""
    if value is None:
        return 1.0
    smallest = 0.5 / GRID
    if type(value) not in (int, float) or not smallest <= value < LARGEST_WEIGHT - smallest:
        raise invalid(pointer(*place), RULE)
    units: int = math.floor(value * GRID + 0.5)
    return units / GRID


def parse_id(raw_path: bytes, prefix: bytes) -> str:
    """Return the id in a path, percent-decoded: any text, slashes included."""
    return parse_name(_unquote(raw_path[len(prefix) :]), "/id")


def parse_ref(value: Any, place: str) -> str:
    """Return a case number: a UUID, so that it cannot be a person's name."""
    if isinstance(value, str) and _UUID.fullmatch(value):
        return str(uuid.UUID(value))
    raise invalid(place, "must be a UUID, as 36 characters with hyphens: no personal data belongs here")


def parse_number_cursor(text: str | None) -> int:
    """Return the number after which a page begins."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise invalid("/cursor", "is no cursor of this server: pass on 'next' of the page before as it is")
    return int(text)


def parse_page(raw_query: bytes, default: int, most: int) -> tuple[int, int]:
    """Return the number after which a page begins, and how much is on it, of a list that takes nothing else."""
    cursor, limit = parse_values(raw_query, "cursor", "limit")
    return parse_number_cursor(cursor), parse_limit(limit, default, most)


def parse_uuid(text: str, missing: str) -> str:
    """Return the UUID in a path; `missing` is the problem where it is none, as nothing has such an id."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ProblemError(missing) from None


def parse_flag(value: str | None, place: str) -> bool:
    """Return a parameter that is true or false; false when it is left out."""
    if value not in (None, "true", "false"):
        raise invalid(place, "must be 'true' or 'false'")
    return value == "true"


def parse_limit(value: Any, default: int, most: int) -> int:
    """Return the number of samples on a page."""
    if value is None:
        return min(default, most)
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else -1
    if type(value) is not int or not 1 <= value <= most:
        raise invalid("/limit", f"must be an integer from 1 to {most}")
    return value


def parse_name(value: Any, place: str | tuple[str | int, ...]) -> str:
    """Return an id or a subject that stands at a place in the request."""
    try:
        return normalise_id(value)
    except InputError as error:
        raise invalid(place if isinstance(place, str) else pointer(*place), error.rule) from None


def parse_seconds(value: Any, place: tuple[str | int, ...]) -> int:
    """Return a retention period, in seconds."""
    if type(value) is not int or not 1 <= value <= LONGEST_PERIOD:
        raise invalid(pointer(*place), f"must be a whole number of seconds from 1 to {LONGEST_PERIOD}")
    return value


def flag_of(content: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    """Return a value of a body that is true or false."""
    value = content.get(key, default)
    if not isinstance(value, bool):
        raise invalid(pointer(key), "must be true or false")
    return value


def _unquote(value: bytes) -> str:
    try:
        return unquote_to_bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise invalid("", "the address is not UTF-8: percent-encode it") from None


def refuse_repeated(ids: list[str | None]) -> None:
    """Refuse samples of which several have the same id."""
    named = [name for name in ids if name is not None]
    if len(set(named)) == len(named):
        return
    first: dict[str, int] = {}
    repeated = [i for i, name in enumerate(ids) if name is not None and first.setdefault(name, i) != i]
    rule = "is repeated: an id can occur once in a request"
    raise ProblemError("invalid-input", errors=[(pointer("samples", i, "id"), rule) for i in repeated[:100]])


def _listed(names: Iterable[str]) -> str:
    return "known are " + ", ".join(f"'{name}'" for name in sorted(names))


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested, without recursion."""
    depth = 0
    level = [value] if isinstance(value, (dict, list)) else []
    while level:
        depth += 1
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for found in children for child in found if isinstance(child, (dict, list))]
    return depth


@dataclass(slots=True)
class Context:
    """Belongs to one application.

    Attributes
    ----------
    service
        What is served.
    new_reader
        Makes the reader for a schema.
    metrics
        Counts the requests.
    model_name
        Of the model, in the Open Inference Protocol.
    page_size_max
        Most samples, receipts or entries on a page.
    """

    service: Service
    new_reader: Callable[[Schema], Reader]
    metrics: RequestMetrics
    model_name: str
    page_size_max: int
    _reader: Reader | None = None

    def reader(self) -> Reader:
        """Return the reader for the schema of now: a restore can change it."""
        schema = self.service.model.state.model.schema_
        if self._reader is None or self._reader.schema is not schema:
            self._reader = self.new_reader(schema)
        return self._reader

    def require_ready(self) -> None:
        """Refuse a request that asks whether the server is ready for predictions, while it is not."""
        if self.service.model.state.phase != "ready":
            raise ProblemError("not-ready", f"The server is {self.service.model.state.phase}.")
        unready = self.service.lifecycle.role.unready()
        if unready is not None:
            raise ProblemError("not-ready", unready)
        if not self.service.model.state.model.is_usable:
            raise ProblemError("model-unusable")


def context_of(request: Request) -> Context:
    """Return the context of the application that handles a request."""
    context: Context = request.scope["app"].state.context
    return context


def service_of(request: Request) -> Service:
    """Return the rooms of the service behind the application that handles a request."""
    return context_of(request).service


def reader_of(request: Request, *names: str) -> tuple[Reader, list[str | None]]:
    """Return the reader of a request, with the rules about columns that its query asks for, and further parameters.

    names: of the further parameters that the query may have.
    """
    reader = copy(context_of(request).reader())
    known = (*names, *COLUMN_RULES)
    found = dict(zip(known, parse_values(request.scope["query_string"], *known), strict=True))
    reader.rules = with_rules(reader.schema, found)
    return reader, [found[name] for name in names]


def caller_of(request: Request) -> str:
    """Return the id of the key that a request came with; empty when it has none of its own."""
    rules: AccessRules = request.app.state.rules
    return rules.caller(request.scope["headers"]).id or ""
