"""The routes of an application as one table, which OpenAPI, `Allow` headers and the fast path read."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route


def add_heads(router: APIRouter) -> None:
    """Have every GET route answer HEAD with the same head, where it has no HEAD route of its own."""
    found = [(route.path, route.methods) for route in router.routes if isinstance(route, APIRoute) and route.methods]
    heads = {path for path, methods in found if methods == {"HEAD"}}
    for path, methods in found:
        if "GET" in methods and path not in heads:
            methods.add("HEAD")


class RouteTable:
    """What each path takes.

    Parameters
    ----------
    routes
        Of the application, and of its routers: what it makes of these itself takes it long.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = [
            (route.path_format, route.path_regex, frozenset(route.methods or ()))
            for route in routes
            if isinstance(route, Route)
        ]

    def methods(self, path: str) -> list[str]:
        """Return the methods of all routes that a path fits."""
        found = (methods for _, pattern, methods in self._routes if pattern.match(path))
        return sorted(frozenset[str]().union(*found))

    def names_in(self, folder: str) -> frozenset[str]:
        """Return the last parts of the routes in a folder that take no parameter; none of them is an id there."""
        formats = (path.removeprefix(folder) for path, _, _ in self._routes if path.startswith(folder))
        return frozenset(name for name in formats if "{" not in name)
