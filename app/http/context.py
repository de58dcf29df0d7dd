"""What routes need besides the request: the service and the reader of bodies for its schema."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from oubli.app.http.parsing import Reader
from oubli.app.service.model_service import ModelService


@dataclass(slots=True)
class Context:
    """Belongs to one application."""

    service: ModelService
    max_rows: int
    max_depth: int
    _reader: Reader | None = None

    def reader(self) -> Reader:
        """Return the reader for the schema of now: a restore can change it."""
        schema = self.service.schema
        if self._reader is None or self._reader.schema is not schema:
            service = self.service
            self._reader = Reader(
                schema, max_rows=self.max_rows, max_depth=self.max_depth, now_ms=lambda: service.now_ms
            )
        return self._reader


def context_of(request: Request) -> Context:
    """Return the context of the application that handles a request."""
    context: Context = request.scope["app"].state.context
    return context
