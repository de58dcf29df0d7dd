"""Log lines: two formats, no texts of exceptions, the request that they are about."""

import json
import logging
import warnings
from collections.abc import Iterator
from datetime import datetime

import pytest

from oubli.app.http.monitoring.observer import ALONE, log_access
from oubli.app.logs import LogFormat, about, configure_logging, fields, set_level


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Logging is as before after each test."""
    names = (None, "oubli", "oubli.access", "uvicorn", "asyncio")
    before = {name: (logging.getLogger(name).handlers[:], logging.getLogger(name).level) for name in names}
    yield
    logging.captureWarnings(capture=False)
    for name, (handlers, level) in before.items():
        logging.getLogger(name).handlers[:] = handlers
        logging.getLogger(name).setLevel(level)


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was written to stderr."""
    return capsys.readouterr().err.splitlines()


def fail(name: str) -> None:
    try:
        raise RuntimeError("SECRET")
    except RuntimeError:
        logging.getLogger(name).exception("it failed")


def test_a_line_says_what_a_record_says_and_its_request(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json")
    with about("abc-1"):
        logging.getLogger("oubli.test").warning("%d things", 3, extra=fields(n=3))
    (line,) = lines_of(capsys)
    content = json.loads(line)
    assert datetime.fromisoformat(content.pop("time")).tzinfo is not None
    expected = {"level": "warning", "logger": "oubli.test", "message": "3 things", "request_id": "abc-1", "n": 3}
    assert content == expected
    configure_logging()
    with about("abc-1"):
        logging.getLogger("oubli.test").info("begun")
    logging.getLogger("oubli.test").info("alone")
    begun, alone = lines_of(capsys)
    assert begun.endswith(" INFO oubli.test: begun [abc-1]")
    assert alone.endswith(" INFO oubli.test: alone")


def test_exceptions_are_told_by_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    formats: tuple[LogFormat, ...] = ("text", "json")
    for log_format in formats:
        configure_logging(log_format)
        for name in ("oubli.test", "uvicorn.error", "another.package"):
            fail(name)
            said = capsys.readouterr().err
            assert "an internal error at test_logs.py:" in said
            assert not any(secret in said for secret in ("RuntimeError", "SECRET", "Traceback"))


def test_the_level_can_be_changed_while_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "error")
    log = logging.getLogger("oubli.test")
    log.warning("one")
    set_level("debug")
    log.debug("two")
    logging.getLogger("uvicorn.error").info("three: what others say of single requests is left out")
    set_level("info")
    log.debug("four")
    assert [line.rpartition(": ")[2] for line in lines_of(capsys)] == ["two"]


def test_warnings_of_python_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("something is old", DeprecationWarning, stacklevel=1)
    (line,) = lines_of(capsys)
    assert "something is old" in json.loads(line)["message"]


def test_an_access_line_holds_the_template_and_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("json", "error"), ("text",)):  # the access log has a switch of its own
        configure_logging(*arguments)
        log_access("DELETE", "/samples/{id}", 200, 0.0001234, b"abc-2", ALONE)
    first, second = lines_of(capsys)
    content = json.loads(first)
    del content["time"]
    message = "DELETE /samples/{id} 200 in 0.123 ms"
    told = {"method": "DELETE", "route": "/samples/{id}", "status": 200, "seconds": 0.000123, "request_id": "abc-2"}
    assert content == {"level": "info", "logger": "oubli.access", "message": message, **told}
    assert second.endswith(f" INFO oubli.access: {message} [abc-2]")
