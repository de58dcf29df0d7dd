"""Settings, in one class: read from flags, then ``OUBLI_*`` variables, then a TOML file.

Every field is a flag of ``oubli serve`` (``max_rows`` is ``--max-rows``), an environment variable
(``OUBLI_MAX_ROWS``) and a key of the TOML file (``max_rows = 5000``). The descriptions here are the texts of the
command line's help and of the reference. The parameters of models come from the tables in ``core``, not from here.
Values that no deployment needs to change are constants of the class.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import ipaddress
import json
import math
import operator
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from oubli.app.access.keys import FILE_NAME, KeyFileError, now_ms, read_keys
from oubli.app.access.origins import ANY_ORIGIN, parse_origin
from oubli.app.errors import StartError
from oubli.app.logs import LogFormat, LogLevel
from oubli.app.outgoing.addresses import EndpointError, parse_endpoint
from oubli.core.parameters import Parameter
from oubli.core.registry import PLACES, parameters_of

ENV_PREFIX = "OUBLI_"
DEFAULT_CONFIG = Path("oubli.toml")
MIB = 1024 * 1024
SQLITE = "sqlite"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
POSTGRES_MODULE = "psycopg"
TELEMETRY_MODULE = "opentelemetry.exporter.otlp.proto.http"
_CLOSE = 0.73  # similarity from which a name counts as a misspelt setting; OUBLI_PORT_8000_TCP of Kubernetes does not
MIN_KEY_LENGTH = 16  # characters; shorter keys can be guessed over a network

TABLES = {kind: tuple(one for one in parameters_of(kind) if one.is_setting) for kind in PLACES}
"""What can be set of each kind of model."""
_NAMED = {one.name: one for table in reversed(TABLES.values()) for one in reversed(table)}
MODEL_PARAMETERS = tuple(dict.fromkeys(one.name for table in TABLES.values() for one in table))

_PASSWORD = re.compile(r"(?<=//)([^:/?#]*):[^/?#]*@")
_PASSWORD_OPTION = re.compile(r"([?&](?:password|sslpassword)=)[^&]*", re.IGNORECASE)


def _split_names(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("begins with [ but is not a JSON list of texts") from None
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _whole_origins(value: tuple[str, ...]) -> tuple[str, ...]:
    if any(parse_origin(name) is None for name in value):
        raise ValueError("must be origins, scheme and host and perhaps a port: https://oubli.example")
    return value


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        for name in value:
            ipaddress.ip_network(name, strict=False)
    except ValueError:
        raise ValueError("must be addresses or networks: 10.0.0.7 or 10.0.0.0/24") from None
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_names)]
"""A tuple of texts; in a variable it is written with commas, or as a JSON list when a text holds a comma."""
Origins = Annotated[Names, AfterValidator(_whole_origins)]
AnyOrigins = Annotated[Names, AfterValidator(lambda value: value if value == (ANY_ORIGIN,) else _whole_origins(value))]
Networks = Annotated[Names, AfterValidator(_networks)]
Missing = Annotated[tuple[Literal["erasures", "keys"], ...], NoDecode, BeforeValidator(_split_names)]


class SettingsError(StartError):
    """A setting is wrong; the text names it, the rule and the remedy, and never repeats a submitted value."""


def _model_field(parameter: Parameter) -> tuple[Any, Any]:
    """A parameter of a model as a setting: type, bounds and text. None leaves it at its default."""
    types: tuple[Any, ...] = parameter.type if isinstance(parameter.type, tuple) else (parameter.type,)
    a_tuple: Any = tuple
    bounds: dict[str, Any] = {
        "gt" if parameter.opens == "low" else "ge": parameter.low,
        "lt" if parameter.opens == "high" else "le": parameter.high,
    }
    bounds = {name: bound for name, bound in bounds.items() if abs(bound) < math.inf}
    annotation: Any
    if isinstance(parameter.type, list):
        words = (*parameter.choices, parameter.none_word)
        annotation = Annotated[Literal[words] | a_tuple[tuple(parameter.type)] | None, NoDecode]
    elif parameter.type is object:
        annotation = int | None
    elif parameter.type is dict:  # texts like "income:1"
        annotation = Annotated[a_tuple[str, ...] | None, NoDecode, BeforeValidator(_split_names)]
    elif len(types) > 1:
        annotation = functools.reduce(operator.or_, types) | None
    elif parameter.none_word is not None and parameter.default is not None:
        annotation = Annotated[types[0], Field(**bounds)] | Literal[parameter.none_word] | None
        bounds = {}
    else:
        annotation = types[0] | None
    return annotation, Field(default=None, description=parameter.text, **bounds)


if TYPE_CHECKING:

    class _ModelSettings(BaseSettings):
        model: str

else:
    _KINDS = Literal[tuple(PLACES)]
    _ModelSettings = create_model(
        "_ModelSettings",
        __base__=BaseSettings,
        model=(
            _KINDS,
            Field(
                default="forest",
                description="`forest` or `incremental-boosting` (both exact), `tree` (readable) or `online-boosting`.",
            ),
        ),
        **{name: _model_field(_NAMED[name]) for name in MODEL_PARAMETERS},
    )


class Settings(_ModelSettings):
    """The settings of one run. ``Settings(**flags)`` reads the other sources; see :func:`load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        # `model`, `model_...` would clash with pydantic's own protected prefix.
        protected_namespaces=(),
        env_parse_none_str="",
    )

    _flags: dict[str, Any] = PrivateAttr(default_factory=dict)

    config: Path | None = None
    """TOML file with settings. By default `oubli.toml` in the working directory, if it is there."""
    threads: int | None = Field(default=None, ge=1)
    """Threads for long work (training, verification, large batches); by default, and at most, one for each core of the
    process. A server that is ready leaves one core to requests."""

    # --- data
    data: Path | None = None
    """File to train on: CSV (also compressed), Parquet, Arrow, JSON lines or Excel."""
    target: str | None = None
    """Column that holds the label; needed with `data`. Without it the columns are listed, and a terminal asks."""
    id_column: str | None = None
    """Column that holds the sample ids, read as text and never a feature. By default ids are row numbers from 0."""
    subject_column: str | None = None
    """Column that names the person a row is about. It is read as text, is never a feature, and lets you erase all rows
    of a person."""
    expiry_column: str | None = None
    """Column that holds the time at which a row expires, as `expires_at` does (RFC 3339 with a time zone; empty:
    never). It is never a feature. Rows that have expired are left out."""
    weight_column: str | None = None
    """Column that holds the weight of a row, as `weight` does (empty: 1). It is never a feature."""
    drop: Names = ()
    """Columns to leave out."""
    categorical: Names = ()
    """Columns whose values are categories even if they look like numbers."""
    schema_file: Path | None = None
    """JSON file that declares the columns and the label. Without `data` the server starts with an empty model."""
    task: Literal["classification", "regression"] | None = None
    """What to predict. By default labels with fractions or more than 20 distinct numbers mean regression."""
    classes: Literal["open", "closed"] | None = None
    """`open`: a new label makes a new class. `closed`: a label that is not a class of the data, or of the schema file,
    is refused. By default classes are open unless the schema file lists them."""
    read: Names = ()
    """How `data` is written where the guess is wrong, as `KEY=VALUE`: `delimiter`, `decimal`, `encoding`, `missing`,
    `dates` and others; see the guide to your own data."""

    # --- storage
    data_dir: Path = Path("./oubli-data")
    """Directory that keeps the model. A model that is already there is recovered, and `data` is not read."""
    journal: str = "sqlite"
    """Where changes are made durable: `sqlite`, in the data directory, or the URL of a PostgreSQL database,
    `postgresql://user@host/database`. Put the password in PGPASSWORD or in a file that PGPASSFILE names. A journal in
    files is moved to the database at the first start with its URL."""
    ephemeral: bool = False
    """Keep nothing on disk. A restart trains on `data` again and brings deleted rows back."""
    snapshot_mutations: int = Field(default=10_000, ge=1)
    """Most records in the journal before a snapshot is written."""
    scrub_age: float | None = Field(default=None, gt=0)
    """Seconds after which a model that is not exact and has changed is fitted again. By default this happens only
    before an erasure is finished."""
    ledger: Path | None = None
    """Ledger to apply at start, as `oubli ledger fetch` writes it, complete with its signed end. Samples that it lists
    as erased are not served, whichever data file or snapshot they come from."""
    accept_missing: Missing = ()
    """Start although something is missing, and accept the loss: `erasures` (the ledger is older than the snapshot, or
    the file of `ledger` ends before its signed end) or `keys` (the ledger names keys that are not there)."""

    # --- nodes
    follow: bool = False
    """Run as one of several nodes that share a journal in PostgreSQL. One node leads and takes changes; the others
    follow it, answer predictions, and take over when it fails."""
    node_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of this node, unique in the cluster. By default the name of the machine."""
    node_url: str | None = None
    """URL at which other nodes and redirected clients reach this node; needed with `follow`."""
    cluster_secret_file: Path | None = None
    """File with a secret of at least 32 characters that all nodes share, readable by its owner only; needed with
    `follow`."""
    member_timeout: float = Field(default=30.0, ge=2, le=3600)
    """Seconds of silence after which a node is expelled: erasures no longer wait for it, and it must rejoin. A node
    that has not reached PostgreSQL for nine tenths of this time answers nothing that depends on samples. Another node
    takes over from a silent leader after 3 seconds, or a tenth of this time if that is less."""

    # --- erasure
    erasure_deadline: float = Field(default=60.0, ge=1)
    """Seconds after which no file in the data directory holds anything of an erased sample."""
    readd_grace: float = Field(default=86_400.0, ge=0)
    """Seconds in which an erased id is accepted again only with `readd`; 0 for none."""
    retention: float | None = Field(default=None, gt=0)
    """Seconds after which samples expire that have no `expires_at`. By default they never do."""
    max_expiry_share: float = Field(default=0.1, gt=0, le=1)
    """Largest share of the samples that may expire at once. More must be confirmed with `POST /expiry/confirm`."""
    key_dir: Path | None = None
    """Directory of the keys that sign receipts and hash ids. By default `keys` in the data directory."""
    log_name: str = Field(default="oubli", pattern=r"^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$")
    """Name of a new log of erasures, the first part of its origin; use the server's domain."""
    log_witnesses: Names = ()
    """Witnesses that cosign the log: for each its key as `name+id+base64`, a space and its URL. `push_networks` applies
    to them too."""

    # --- network
    host: str = "127.0.0.1"
    """Address to listen on. An address beyond loopback needs a key (`oubli keys`, `api_key_file`) or
    `allow_anonymous`."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 chooses a free one."""
    api_key_file: Path | None = None
    """File with the key that callers send as `Authorization: Bearer ...` or `X-API-Key`."""
    allow_anonymous: bool = False
    """Serve beyond loopback without a key."""
    allowed_hosts: Names = ()
    """Further host names that `Host` may hold, besides loopback names and `host`; `*` allows any."""
    allowed_origins: Origins = ()
    """More origins of web pages that may change the model, such as `https://oubli.example` behind a TLS proxy."""
    cors_origins: AnyOrigins = ()
    """Origins of web pages that may send requests and read the answers, such as `https://app.example`; `*` for any."""
    csv_formulas: bool = False
    """Write texts into CSV answers as they are, also those that a spreadsheet would run as formulas."""
    trusted_proxies: Networks = ()
    """Addresses or networks of proxies in front of the server. The number of their connections is not limited by
    address, and their `X-Forwarded-Proto` says whether a client used TLS."""
    tls_cert_file: Path | None = None
    """PEM file with the certificate chain of the server, for TLS; SIGHUP reads it again."""
    tls_key_file: Path | None = None
    """PEM file with the key of the certificate, without a passphrase."""
    model_name: str = Field(default="oubli", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the model in the Open Inference Protocol (`/v2/models/NAME`)."""

    # --- webhooks and callbacks
    webhook_url: str | None = None
    """URL that receives each change of a receipt's status as a Standard Webhook; needs `webhook_secret_file`."""
    webhook_secret_file: Path | None = None
    """File with the secrets that sign webhooks, `whsec_...`, one a line; each webhook is signed with all of them."""
    push_networks: Networks = ()
    """Networks that webhooks, callbacks and witnesses may be in although they are loopback, private or otherwise
    special, such as `10.1.0.0/16`. URLs in these networks may begin with `http://`."""
    opendsr_domain: str | None = Field(default=None, pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")
    """Domain of the server as an OpenDSR processor. Without it `/opendsr/v2` takes no requests."""
    opendsr_cert_file: Path | None = None
    """PEM file with the certificate chain for that domain; controllers check answers and callbacks with it."""
    opendsr_key_file: Path | None = None
    """PEM file with the key of the certificate, without a passphrase; RSA or ECDSA."""
    opendsr_controller: str = Field(default="controller", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """`controller_id` in OpenDSR answers."""
    opendsr_identities: Names = ("controller_customer_id",)
    """Types of OpenDSR identities whose raw values are subjects."""
    opendsr_callbacks: Names = ()
    """URLs that OpenDSR requests may name in `status_callback_urls`; others are refused."""

    # --- logs and traces
    log_format: LogFormat = "text"
    """Format of the log: `text` for people, or `json`, one object a line."""
    log_level: LogLevel = "info"
    """Lowest level that is logged: `debug`, `info`, `warning` or `error`."""
    access_log: bool = False
    """Log each request with route template, method, status, duration and request id; never with its path."""
    traces_endpoint: str | None = None
    """URL of an OpenTelemetry collector for OTLP over HTTP; without it there are no traces."""

    # --- limits
    max_body_bytes: int = Field(default=16 * MIB, ge=1024)
    """Largest JSON body, and largest record in other formats, in bytes; a larger one is answered 413. A body of `POST
    /samples` in CSV, NDJSON or Arrow may have 16 times as many."""
    max_rows: int = Field(default=10_000, ge=1)
    """Most rows, samples or ids in a JSON request."""
    idle_timeout: float = Field(default=75.0, gt=0)
    """Seconds after which a connection without a request is closed; more than a load balancer keeps one."""

    # --- fixed: values that no deployment needs to change; `REMOVED` names them where they were settings
    snapshot_bytes: ClassVar[int] = 64 * MIB  # of the journal; replaying it takes a restart a few seconds
    snapshot_age: ClassVar[float] = 3600.0  # seconds; a snapshot an hour is no load, and backups are never older
    max_empty_erasures: ClassVar[int] = 1000  # an hour and caller; beyond it repeated requests would fill the ledger
    core_dumps: ClassVar[bool] = False  # a core file holds the samples, and no erasure reaches it
    push_timeout: ClassVar[float] = 15.0  # seconds of an attempt; Standard Webhooks asks for 15 to 30
    push_give_up_after: ClassVar[float] = 3 * 86_400.0  # seconds; a receiver may be down over a weekend
    max_bulk_samples: ClassVar[int] = 100_000  # one transaction: more would hold other changes up for seconds
    max_snapshot_bytes: ClassVar[int] = 64 * 1024 * MIB  # an upload is written to disk; a larger model is not served
    upload_pause: ClassVar[float] = 30.0  # seconds; a client that sends nothing for longer is gone
    upload_deadline: ClassVar[float] = 3600.0  # seconds; 64 GiB at 150 Mbit/s
    max_queue: ClassVar[int] = 1024  # less than a second of work; a request that waits longer is better sent again
    max_connections: ClassVar[int] = 4096  # `ulimit -n` is the limit that an operator sets
    head_timeout: ClassVar[float] = 10.0  # seconds; a head is one packet, so only an attack takes longer
    body_timeout: ClassVar[float] = 60.0  # seconds, and one more for each 8 KiB: 64 kbit/s
    max_json_depth: ClassVar[int] = 32  # requests have fewer than ten levels
    page_size_max: ClassVar[int] = 1000  # samples; a page is built on the event loop
    idle_resolve: ClassVar[bool] = True  # the work is needed by the next query in any case

    def __init__(self, **flags: Any) -> None:
        super().__init__(**flags)
        self._flags = flags

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags first, then the environment, then the TOML file; no .env file."""
        flags = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        from_file = InitSettingsSource(settings_cls, _read_toml(_config_path(flags)))
        return init_settings, env_settings, from_file

    @field_validator(*(name for name, one in _NAMED.items() if isinstance(one.type, list)), mode="before")
    @classmethod
    def _word_or_grids(cls, value: object) -> object:
        if not isinstance(value, str) or "," not in value:
            return value
        return tuple(value.strip("[]() ").split(","))

    @field_validator(
        *(name for name, one in _NAMED.items() if one.type != [float, float] and one.none_word), mode="before"
    )
    @classmethod
    def _number_or_word(cls, value: object) -> object:
        """Flags and variables are texts; as a union of int, float and str they would stay texts."""
        if not isinstance(value, str):
            return value
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return value

    @field_validator("traces_endpoint")
    @classmethod
    def _collector(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise ValueError(
                "must be a URL such as http://127.0.0.1:4318; OTEL_EXPORTER_OTLP_HEADERS is for credentials"
            )
        return value if parts.path.strip("/") else f"{value.rstrip('/')}/v1/traces"

    @field_validator("journal")
    @classmethod
    def _known_journal(cls, value: str) -> str:
        if value != SQLITE and not value.startswith(POSTGRES_SCHEMES):
            raise ValueError("must be `sqlite`, or a URL such as postgresql://oubli@db.example/oubli")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.ephemeral and "data_dir" in self.model_fields_set:
            raise ValueError("data_dir and ephemeral exclude each other: set only one of them")
        if self.ephemeral and self.journal != SQLITE:
            raise ValueError("journal and ephemeral exclude each other: set only one of them")
        if self.ephemeral and self.ledger is not None:
            raise ValueError("ledger and ephemeral exclude each other: what a ledger knows needs a data_dir to be kept")
        columns = (self.target, self.id_column, self.subject_column, self.expiry_column, self.weight_column)
        roles = [name for name in columns if name is not None]
        if len(set(roles)) != len(roles):
            raise ValueError("target and the columns of ids, subjects, expiries and weights must be different columns")
        if set(self.drop) & (set(roles) | set(self.categorical)):
            raise ValueError(
                "a column to drop is also the target, the ids, the subjects, the expiries, the weights or categorical: "
                "choose one"
            )
        self._require_cluster()
        if (self.webhook_url is None) != (self.webhook_secret_file is None):
            raise ValueError("webhook_url and webhook_secret_file belong together: set both, or neither")
        opendsr = (self.opendsr_domain, self.opendsr_cert_file, self.opendsr_key_file)
        if None in opendsr and any(opendsr):
            raise ValueError("opendsr_domain, opendsr_cert_file and opendsr_key_file belong together: set all, or none")
        urls = [("opendsr_callbacks", url) for url in self.opendsr_callbacks]
        for name, url in (*([("webhook_url", self.webhook_url)] if self.webhook_url is not None else ()), *urls):
            try:
                parse_endpoint(url, plain_http=self.push_plain_http)
            except EndpointError as error:
                raise ValueError(f"{name} {error}") from None
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together: set both, or neither")
        return self

    def _require_cluster(self) -> None:
        """Refuse a node that others could not reach, or that has no log to follow."""
        if not self.follow:
            return
        if self.journal == SQLITE:
            raise ValueError("journal is missing: nodes follow a journal in PostgreSQL, set its URL")
        if self.node_url is None or self.cluster_secret_file is None:
            raise ValueError("node_url and cluster_secret_file are missing: follow needs both")
        parts = urlsplit(self.node_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("node_url must be a URL such as https://node1.example:8000")

    @property
    def lease(self) -> float:
        """Seconds after which another node takes over from a silent leader; the leader renews it four times before."""
        return min(3.0, max(0.5, self.member_timeout / 10))

    @property
    def max_bulk_bytes(self) -> int:
        """Largest body of `POST /samples` in CSV, NDJSON or Arrow; it is kept in memory until it is complete."""
        return 16 * self.max_body_bytes

    @property
    def push_plain_http(self) -> bool:
        """Whether URLs may begin with `http://`; only addresses in `push_networks` are then connected to."""
        return bool(self.push_networks)

    @property
    def accept_missing_erasures(self) -> bool:
        """Whether to start although erasures are missing from the ledger."""
        return "erasures" in self.accept_missing

    @property
    def accept_missing_keys(self) -> bool:
        """Whether to start although keys that the ledger names are missing."""
        return "keys" in self.accept_missing

    @property
    def shown_journal(self) -> str:
        """The journal without its password, for people and logs."""
        without_user = _PASSWORD.sub(r"\1:***@", self.journal)
        return _PASSWORD_OPTION.sub(r"\1***", without_user)

    def read_again(self) -> Self:
        """Read all sources again, with the flags of this run.

        Raises
        ------
        SettingsError
            As `load_settings` does.
        """
        return cast("Self", load_settings(**self._flags))

    def sources(self) -> dict[str, str]:
        """Return where each setting comes from: a flag, a variable, the settings file, or its default."""
        variables = {name.lower(): name for name in os.environ if name.upper().startswith(ENV_PREFIX)}
        path = _config_path(self._flags)
        in_file = _read_toml(path)
        found = {}
        for name in type(self).model_fields:
            variable = variables.get(f"{ENV_PREFIX}{name}".lower())
            if name in self._flags:
                found[name] = f"flag {flag_name(name)}"
            elif variable is not None:
                found[name] = f"variable {variable}"
            else:
                found[name] = f"file {path}" if name in in_file else "default"
        return found

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    def model_parameters(self) -> dict[str, Any]:
        """Return the model's parameters that were set; the others keep the estimator's defaults.

        Raises
        ------
        SettingsError
            When one was set that this kind of model does not have.
        """
        known = {one.name: one for one in TABLES[self.model]}
        for name in MODEL_PARAMETERS:
            if name not in known and getattr(self, name) is not None:
                kinds = " or ".join(
                    f"`{kind}`" for kind, table in TABLES.items() if any(one.name == name for one in table)
                )
                raise SettingsError(
                    f"{flag_name(name)} is for a model of kind {kinds}, this one is a `{self.model}`: leave it out, "
                    "or choose another kind with --model"
                )
        values = {name: getattr(self, name) for name in known}
        # None means "not set" here and something else to the estimator, hence words for it.
        return {
            name: None if known[name].none_word is not None and value == known[name].none_word else value
            for name, value in values.items()
            if value is not None
        }

    def require_servable(self) -> None:
        """Refuse what may be set but not served: several workers, an open address without a key, a lost file of keys.

        Raises
        ------
        SettingsError
            With the setting, the reason and the remedy.
        """
        if os.environ.get("WEB_CONCURRENCY", "1").strip() not in ("", "1"):
            raise SettingsError(
                "WEB_CONCURRENCY asks for several workers, but one process serves one model: every worker would "
                "hold a model of its own. Unset WEB_CONCURRENCY or set it to 1."
            )
        if self.traces_endpoint is not None and not _is_importable(TELEMETRY_MODULE):
            raise SettingsError(
                "traces_endpoint needs further packages: install them with `pip install 'oubli-server[telemetry]'`, or "
                "leave traces_endpoint out"
            )
        if self.journal != SQLITE and not _is_importable(POSTGRES_MODULE):
            raise SettingsError(
                "journal needs a further package: install it with `pip install 'oubli-server[postgres]'`, or leave "
                "journal out"
            )
        has_key = self._has_live_key() or self.api_key_file is not None
        if not (has_key or self.is_loopback or self.allow_anonymous):
            raise SettingsError(
                f"host {self.host} can be reached from other machines and no key is asked for: make one with `oubli "
                "keys create`, or set api_key_file (--api-key-file, OUBLI_API_KEY_FILE), or allow_anonymous "
                "(--allow-anonymous) where a proxy or a private network already decides who may connect."
            )
        if ANY_ORIGIN in self.cors_origins and not has_key:
            raise SettingsError(
                "cors_origins is `*` and no key is asked for, so every web page could change the model: make a key "
                "with `oubli keys create`, set api_key_file, or name the origins"
            )
        self.read_api_key()

    @property
    def access_keys_path(self) -> Path | None:
        """The file that `oubli keys` writes; None when there is no data directory."""
        return None if self.ephemeral else self.data_dir / FILE_NAME

    def _has_live_key(self) -> bool:
        if self.access_keys_path is None:
            return False
        try:
            return any(key.is_live(now_ms()) for key in read_keys(self.access_keys_path))
        except KeyFileError as error:
            raise SettingsError(str(self.data_dir / str(error))) from None

    def read_api_key(self) -> str | None:
        """Return the key in ``api_key_file``, or None when no key is asked for.

        Raises
        ------
        SettingsError
            When the file cannot be read, is empty, or holds a key that is too short. The text names the file only.
        """
        if self.api_key_file is None:
            return None
        try:
            key = self.api_key_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise SettingsError(
                f"api_key_file {self.api_key_file} cannot be read ({error.strerror}): see to its owner"
            ) from None
        except UnicodeDecodeError:
            raise SettingsError(
                f"api_key_file {self.api_key_file} must hold one key in plain ASCII: `openssl rand -hex 32` makes one"
            ) from None
        if len(key) < MIN_KEY_LENGTH or any(character.isspace() for character in key):
            raise SettingsError(
                f"api_key_file {self.api_key_file} must hold one key of at least {MIN_KEY_LENGTH} characters "
                "without spaces: `openssl rand -hex 32` makes one"
            )
        return key


def _describe(settings: type[BaseSettings]) -> None:
    """Give each setting the text below it, if the source is there.

    pydantic's `use_attribute_docstrings` does the same; it takes an eighth of the time to import this module.
    """
    try:
        source = inspect.getsource(sys.modules[settings.__module__])
    except OSError:
        return
    [found] = [one for one in ast.parse(source).body if isinstance(one, ast.ClassDef) and one.name == settings.__name__]
    for field, below in pairwise(found.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                settings.model_fields[name].description = inspect.cleandoc(text)


_describe(Settings)

REMOVED = {
    "workers": "is gone: one process serves one model, and a second worker would hold a model of its own",
    "delimiter": "is `delimiter` of read now (--read 'delimiter=;'), and is found out by itself",
    "accept_missing_erasures": "is `erasures` in accept_missing now (--accept-missing erasures)",
    "accept_missing_keys": "is `keys` in accept_missing now (--accept-missing keys)",
    "lease": "is 3 seconds now, or a tenth of member_timeout if that is less",
    "max_bulk_bytes": "is 16 times max_body_bytes now",
    "max_classes": 'is in the schema file now, as "max_classes" of the label',
    "max_connections_per_address": "is fixed at half of all connections now; trusted_proxies exempts proxies",
    "max_data_bytes": "is the memory of the machine now",
    "push_plain_http": "is gone: URLs in push_networks may begin with http://",
    "scrub_mutations": "is gone: scrub_age says when a model is fitted again",
}
"""What became of each setting of earlier versions that is gone."""


def _fixed_at(value: Any) -> str:
    if isinstance(value, bool):
        return f"is always {'on' if value else 'off'} now"
    return f"is fixed at {value:,} now".replace(".0 ", " ")


REMOVED |= {
    name: _fixed_at(getattr(Settings, name))
    for name, kind in Settings.__annotations__.items()
    if "ClassVar" in str(kind)
}


def removal(name: str, shown: str) -> str | None:
    """Return what became of a setting of earlier versions, `shown` as it was given; None: there was no such setting."""
    return f"{shown} {REMOVED[name]}; leave it out" if name in REMOVED else None


_FIRST_OF_GROUP = {
    "config": "General",
    "data": "Data",
    "data_dir": "Storage",
    "follow": "Nodes",
    "erasure_deadline": "Erasure",
    "host": "Network",
    "webhook_url": "Webhooks and callbacks",
    "log_format": "Monitoring",
    "max_body_bytes": "Limits",
}


def _grouped() -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    group = "Model"  # the model's settings are those of the base class, which come first
    for name in Settings.model_fields:
        group = _FIRST_OF_GROUP.get(name, group)
        groups[group] = (*groups.get(group, ()), name)
    first = ("General", "Data")
    return {name: groups[name] for name in (*first, *(name for name in groups if name not in first))}


GROUPS = _grouped()
"""Every setting once, in the order of the command line's help and of the reference."""


def load_settings(**flags: Any) -> Settings:
    """Read the settings from the flags given, the environment and the TOML file.

    Parameters
    ----------
    **flags
        Values from the command line; None means that the flag was not given.

    Raises
    ------
    SettingsError
        Naming every wrong setting; values are not repeated.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    unknown_variables()
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(part) for part in error.errors(include_input=False))) from None


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def flag_name(field: str) -> str:
    """Return the flag of a setting: some are shorter than its name, or name one of several values."""
    short = {
        "id_column": "id", "subject_column": "subject", "expiry_column": "expiry", "weight_column": "weight",
        "schema_file": "schema",
        "cors_origins": "cors-origin",
        "trusted_proxies": "trusted-proxy", "push_networks": "push-network",
        "log_witnesses": "log-witness",
        "opendsr_identities": "opendsr-identity", "opendsr_callbacks": "opendsr-callback",
    }  # fmt: skip
    return "--" + short.get(field, field).replace("_", "-")


def _config_path(flags: Mapping[str, Any]) -> Path | None:
    named = flags.get("config") or os.environ.get(ENV_PREFIX + "CONFIG")
    if named:
        return Path(named)
    return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None


def _read_toml(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read ({error.strerror}): see to its owner") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the settings file {path} is not UTF-8 text: convert it") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        raise SettingsError(f"the settings file {path}: {_unknown(unknown)}")
    if "config" in values:
        raise SettingsError(f"the settings file {path} names another one in config: remove the line")
    return values


def unknown_variables() -> list[str]:
    """Return the variables that begin as ours and name no setting, nor nearly; other programs may have set them.

    Raises
    ------
    SettingsError
        When one is nearly a setting, or was one: it would be ignored in silence, limits and keys included.
    """
    # Upper case is how they are documented; pydantic-settings takes any case, and so does this.
    names = sorted(name for name in os.environ if name.upper().startswith(ENV_PREFIX))
    unknown = {name: name.lower().removeprefix(ENV_PREFIX.lower()) for name in names}
    unknown = {name: field for name, field in unknown.items() if field not in Settings.model_fields}
    wrong = [field for field in unknown.values() if _close(field) or field in REMOVED]
    if wrong:
        raise SettingsError(f"the environment: {_unknown(wrong, prefix=ENV_PREFIX)}")
    return list(unknown)


def _close(name: str) -> str | None:
    """Return the setting whose name is nearly this one."""
    return next(iter(difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=_CLOSE)), None)


def _unknown(names: Iterable[str], prefix: str = "") -> str:
    """Say of names that are no settings what is meant, or what became of them."""
    texts = []
    for name in names:
        close, shown = _close(name), prefix + (name.upper() if prefix else name)
        meant = f" (did you mean {prefix}{close.upper() if prefix else close}?)" if close else ""
        texts.append(
            removal(name, shown) or f"there is no setting {shown}{meant}; `oubli serve --help-all` lists all settings"
        )
    return "\n".join(texts)


def _explain(error: Any) -> str:
    """One line for one of pydantic's errors: where it can be set and the rule, without the value."""
    rule = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return rule
    field = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return _unknown([field])
    return f"{field} ({flag_name(field)}, {ENV_PREFIX}{field.upper()}): {rule[0].lower()}{rule[1:]}"
