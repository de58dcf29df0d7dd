"""The routes of an application as one table, which OpenAPI, `Allow` headers and the fast path read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute, iter_route_contexts


def add_heads(router: APIRouter) -> None:
    """Have every GET route answer HEAD with the same head, where it has no HEAD route of its own.

    They are routes of their own, because a route with two methods would be two operations of one id.
    """
    found = [route for route in router.routes if isinstance(route, APIRoute)]
    heads = {route.path for route in found if "HEAD" in (route.methods or ())}
    for route in found:
        if "GET" in (route.methods or ()) and route.path not in heads:
            router.add_api_route(
                route.path,
                route.endpoint,
                methods=["HEAD"],
                include_in_schema=False,
                response_model=route.response_model,
                response_model_exclude_none=route.response_model_exclude_none,
                response_class=route.response_class,
            )


class RouteTable:
    """What each path takes.

    Parameters
    ----------
    routes
        Of the application.
    """

    def __init__(self, routes: Iterable[Any]) -> None:
        self._routes = [
            (route.path_format or "", re.compile(route.path_regex), frozenset(route.methods or ()))
            for route in iter_route_contexts(list(routes))
        ]

    def methods(self, path: str) -> list[str]:
        """Return the methods of all routes that a path fits."""
        found = (methods for _, pattern, methods in self._routes if pattern.match(path))
        return sorted(frozenset[str]().union(*found))

    def names_in(self, folder: str) -> frozenset[str]:
        """Return the last parts of the routes in a folder that take no parameter; none of them is an id there."""
        formats = (path.removeprefix(folder) for path, _, _ in self._routes if path.startswith(folder))
        return frozenset(name for name in formats if "{" not in name)
