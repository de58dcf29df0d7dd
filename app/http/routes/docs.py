"""The page that shows the API, without anything from another host.

Swagger UI comes with the package `fastapi-offline`, of which only these files are used. The page needs no key and
holds no data; the description of the API that it shows needs one where there are keys, so the page has a field for it.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response

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


for _path, _asset in ASSETS.items():
    _add(_path, *_asset)
