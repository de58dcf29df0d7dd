"""What the server has to say: lines for people or JSON objects for programs, on stderr.

A line is built from texts of this program, numbers and templates. The cause of a failure is in the words of the
error when it is one of ours or of the operating system; of any other only the place is logged, because its text and its
traceback could hold what was submitted, and its name tells an operator nothing. A line that is written while a request
is answered has its `X-Request-ID`.
"""

import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import orjson

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

ACCESS_LOG = "oubli.access"
_OWN = "oubli"
# What other packages have to say below a warning is about single requests.
_OTHERS_FROM = logging.WARNING

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered; empty outside of requests."""


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"an internal error at {places or 'an unknown place'}"


def cause_of(error: BaseException) -> str:
    """Return why something has failed, for a line of the log: words, neither a class of Python nor a value."""
    if getattr(error, "is_text_ours", False):
        return str(error) or (type(error).__doc__ or "").partition("\n")[0].rstrip(".").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "the server has no memory for it: nothing was changed" if isinstance(error, MemoryError) else place_of(error)


class TextFormatter(logging.Formatter):
    """Formats a record as a line, the request in brackets at its end."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without an exception."""
        line = super().formatMessage(record)
        request = _request_of(record)
        return f"{line} [{request}]" if request else line

    def formatException(  # noqa: N802 - logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return one line for an exception."""
        return place_of(ei[1]) if ei[1] is not None else ""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, and what belongs to the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        moment = datetime.fromtimestamp(record.created, UTC)
        content: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = _request_of(record)
        if request:
            content["request_id"] = request
        if record.exc_info is not None and record.exc_info[1] is not None:
            content["error"] = place_of(record.exc_info[1])
        content.update(_fields_of(record))
        return orjson.dumps(content).decode("utf-8")


_FORMATTERS: dict[LogFormat, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


@contextmanager
def about(request: str) -> Iterator[None]:
    """Name the request that log lines inside of the block are about."""
    token = request_id.set(request)
    try:
        yield
    finally:
        request_id.reset(token)


def configure_logging(log_format: LogFormat = "text", level: LogLevel = "info") -> None:
    """Send everything that is logged in this process to stderr, in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for name in ("uvicorn", "asyncio"):
        logging.getLogger(name).handlers.clear()
    logging.captureWarnings(capture=True)
    set_level(level)


def set_level(level: LogLevel) -> None:
    """Say what is logged from now on; may be called at any time."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger(_OWN).setLevel(number)
    logging.getLogger(ACCESS_LOG).setLevel(logging.INFO)  # it is written at every level
    logging.getLogger().setLevel(max(number, _OTHERS_FROM))


def fields(**values: str | float) -> dict[str, Any]:
    """Return what `extra` of a log call takes, so that a record in JSON has fields of its own."""
    return {"fields": values}


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(record, "fields", {})
    return found


def _request_of(record: logging.LogRecord) -> str:
    """Return the request that a record is about."""
    return str(_fields_of(record).get("request_id") or request_id.get())
