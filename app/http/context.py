"""What routes need besides the request: the service and the reader of bodies for its schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from oubli.app.http.problems import ProblemError

if TYPE_CHECKING:
    from oubli.app.http.auth import AccessRules
    from oubli.app.http.bulk import Bulk
    from oubli.app.http.feeds import Feed
    from oubli.app.http.metrics import RequestMetrics
    from oubli.app.http.parsing import Reader
    from oubli.app.service.model_service import ModelService
    from oubli.core.data.schema import Schema


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
    """

    service: ModelService
    new_reader: Callable[[Schema], Reader]
    metrics: RequestMetrics
    model_name: str
    _reader: Reader | None = None

    def reader(self) -> Reader:
        """Return the reader for the schema of now: a restore can change it."""
        schema = self.service.state.model.schema_
        if self._reader is None or self._reader.schema is not schema:
            self._reader = self.new_reader(schema)
        return self._reader

    def require_ready(self) -> None:
        """Refuse a request that asks whether the server is ready for predictions, while it is not."""
        if self.service.phase != "ready":
            raise ProblemError("not-ready", f"The server is {self.service.phase}.")
        unready = self.service.role.unready()
        if unready is not None:
            raise ProblemError("not-ready", unready)
        if not self.service.state.model.is_usable:
            raise ProblemError("model-unusable")


def context_of(request: Request) -> Context:
    """Return the context of the application that handles a request."""
    context: Context = request.scope["app"].state.context
    return context


def caller_of(request: Request) -> str:
    """Return the id of the key that a request came with; empty when it has none of its own."""
    rules: AccessRules = request.app.state.rules
    return rules.caller(request.scope["headers"]).id or ""


@dataclass(frozen=True, slots=True)
class Feeds:
    """The streams of events of one application.

    Attributes
    ----------
    state
        What changes.
    metrics
        A line a second.
    """

    state: Feed
    metrics: Feed


def feeds_of(request: Request) -> Feeds:
    """Return the streams of events."""
    feeds: Feeds = request.scope["app"].state.feeds
    return feeds


def bulk_of(request: Request) -> Bulk:
    """Return what answers requests in bulk."""
    bulk: Bulk = request.scope["app"].state.bulk
    return bulk
