"""The console: a web page for people, and the files that it loads. It asks the other routes, as any client does."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from oubli.app.http.console_files import CONSOLE_PATHS, read_file
from oubli.app.http.problems import ProblemError

router = APIRouter(include_in_schema=False)

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # may be kept, and is asked for again with its tag
}


@router.get("/", response_class=Response)
async def get_page(request: Request) -> Response:
    """Return the page."""
    return _answer(request, "/")


@router.get("/console/{file:path}", response_class=Response)
async def get_file(request: Request) -> Response:
    """Return a file that the page loads."""
    return _answer(request, f"/console/{request.path_params['file']}")


def _answer(request: Request, path: str) -> Response:
    """Return a file, or only that it has not changed. Reading it the first time takes less than a millisecond."""
    if path not in CONSOLE_PATHS:
        raise ProblemError("no-such-route")
    file = read_file(path)
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}:
        return Response(None, 304, headers)
    return Response(file.content, 200, headers, file.media_type)
