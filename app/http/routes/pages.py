"""The page that shows the API, without anything from another host.

Swagger UI comes with the package `fastapi-offline`, of which only these files are used. The page needs no key and
holds no data; the description of the API that it shows needs one where there are keys, so the page has a field for it.

The console: a web page for people, and the files that it loads. It asks the other routes, as any client does.
"""

import asyncio
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from oubli.app.http.console_files import CONSOLE_PATHS, file_answer
from oubli.app.http.openapi import MAIN
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import to_json

router = APIRouter(include_in_schema=False)

_JAVASCRIPT, _CSS = "text/javascript", "text/css"
ASSETS: dict[str, tuple[str, str, str]] = {
    "/docs": ("oubli.app.http", "static/docs.html", "text/html"),
    "/docs/page.js": ("oubli.app.http", "static/docs.js", _JAVASCRIPT),
    "/docs/page.css": ("oubli.app.http", "static/docs.css", _CSS),
    "/docs/swagger-ui-bundle.js": ("fastapi_offline", "static/swagger-ui-bundle.js", _JAVASCRIPT),
    "/docs/swagger-ui.css": ("fastapi_offline", "static/swagger-ui.css", _CSS),
}
"""Package, file and type of what is served, by path."""

HEADERS = {
    # Swagger UI has pictures in its style sheet, and writes styles into what it builds.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def _content(package: str, name: str) -> bytes:
    found = find_spec(package)  # without importing it: its code is not needed
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("a package that the page needs is not installed")
    return (Path(found.submodule_search_locations[0]) / name).read_bytes()


def _add(path: str, package: str, name: str, media_type: str) -> None:
    async def serve() -> Response:  # reads a file the first time, which takes a millisecond
        return Response(_content(package, name), 200, HEADERS, media_type)

    router.add_api_route(path, serve, response_class=Response)


@router.get("/openapi.json")
async def get_document(request: Request) -> Response:
    """Return the description of the API; making it takes about a second the first time."""
    return await _document(request, MAIN)


@router.get("/openapi/{name}.json")
async def get_part(request: Request) -> Response:
    """Return the description of routes that are not in the main one."""
    return await _document(request, request.path_params["name"])


async def _document(request: Request, name: str) -> Response:
    def write() -> bytes | None:
        content = request.app.openapi(name)
        return None if content is None else to_json(content)

    text = await asyncio.to_thread(write)
    if text is None:
        raise ProblemError("no-such-route")
    return Response(text, media_type="application/json")


for _path, _asset in ASSETS.items():
    _add(_path, *_asset)


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
