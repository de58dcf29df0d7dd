"""The console: a web page for people, and the files that it loads. It asks the other routes, as any client does."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from oubli.app.http.console_files import CONSOLE_PATHS, file_answer
from oubli.app.http.problems import ProblemError

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=Response)
async def get_page(request: Request) -> Response:
    """Return the page."""
    return _answer(request, "/")


@router.get("/console/{file:path}", response_class=Response)
async def get_file(request: Request) -> Response:
    """Return a file that the page loads."""
    return _answer(request, f"/console/{request.path_params['file']}")


def _answer(request: Request, path: str) -> Response:
    if path not in CONSOLE_PATHS:
        raise ProblemError("no-such-route")
    return file_answer(path, request.headers.get("if-none-match", ""))  # reads it once, in less than a millisecond
