"""The rules for all requests, as the settings ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oubli.app.access.keys import AccessKeys
from oubli.app.http.auth import AccessRules, known_hosts

if TYPE_CHECKING:
    from oubli.app.settings import Settings


def rules_of(settings: Settings, now_ms: Callable[[], int]) -> AccessRules:
    """Return the rules that settings ask for.

    Parameters
    ----------
    settings
        Hosts, origins, keys and limits.
    now_ms
        Tells the time by which keys end, in milliseconds since 1970.
    """
    return AccessRules(
        allowed_hosts=known_hosts(settings.host, (*settings.allowed_hosts, *_own_name(settings))),
        api_key=settings.read_api_key(),
        max_body_bytes=settings.max_body_bytes,
        max_bulk_bytes=settings.max_bulk_bytes,
        max_snapshot_bytes=settings.max_snapshot_bytes,
        access_keys=AccessKeys(settings.access_keys_path, now_ms=now_ms),
        allowed_origins=settings.allowed_origins,
        cors_origins=settings.cors_origins,
    )


def _own_name(settings: Settings) -> tuple[str, ...]:
    """Return the name by which other nodes and redirected clients call this one."""
    name = None if settings.node_url is None else urlsplit(settings.node_url).hostname
    return () if name is None else (name,)
