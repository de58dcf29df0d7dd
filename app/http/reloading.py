"""What can change while the server runs: certificates, the key in `api_key_file`, the log level; read on SIGHUP."""

from __future__ import annotations

import logging
import ssl

from oubli.app.errors import StartError
from oubli.app.http.auth import AccessRules
from oubli.app.http.tls import load_certificate
from oubli.app.logs import set_level
from oubli.app.settings import Settings

# The files are read again; the file of `oubli keys` is looked at every second anyway.
RELOADED = frozenset({"api_key_file", "log_level", "tls_cert_file", "tls_key_file"})

log = logging.getLogger("oubli.server")


class Reloader:
    """Reads the settings again, and applies those that can change while the server runs.

    Whatever is wrong is said in the log, and everything stays as it is.

    Parameters
    ----------
    settings
        In force.
    rules
        Get the new key.
    tls
        Gets the new certificate; None for plain HTTP.
    """

    def __init__(self, settings: Settings, rules: AccessRules, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._rules = rules
        self._tls = tls

    def __call__(self) -> None:
        """Reload, on the event loop."""
        try:
            found = self._settings.read_again()
            key = found.read_api_key()
            if (key is None) != (self._settings.api_key_file is None):
                raise StartError("api_key_file cannot be set or left out while the server runs: restart it")
            if (found.tls_cert_file is None) != (self._tls is None):
                raise StartError("TLS cannot be switched on or off while the server runs: restart it")
            if self._tls is not None:
                load_certificate(self._tls, found)
        except StartError as error:
            log.error("nothing was reloaded: %s", error)
            return
        self._rules.set_api_key(key)
        set_level(found.log_level)
        changed = [
            name
            for name in type(found).model_fields
            if name not in (*RELOADED, "port") and getattr(found, name) != getattr(self._settings, name)
        ]
        if changed:
            log.warning("these settings have changed and wait for a restart: %s", ", ".join(changed))
        self._settings = self._settings.model_copy(update={name: getattr(found, name) for name in RELOADED})
        log.info("reloaded certificates, keys and log level")
