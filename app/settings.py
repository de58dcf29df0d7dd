"""Everything that can be set, in one class: flags, then ``OUBLI_*`` variables, then a TOML file.

Every field is a flag of ``oubli serve`` (``max_rows`` is ``--max-rows``), an environment variable
(``OUBLI_MAX_ROWS``) and a key of the TOML file (``max_rows = 5000``). The descriptions here are the texts of the
command line's help and of the reference, so that there is one place to change them.
"""

from __future__ import annotations

import difflib
import functools
import ipaddress
import json
import math
import operator
import os
import re
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, create_model, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from oubli.app.access.key_file import FILE_NAME, KeyFileError, now_ms, read_keys
from oubli.app.access.origins import ANY_ORIGIN, parse_origin
from oubli.app.errors import StartError
from oubli.app.logs import LogFormat, LogLevel
from oubli.app.privacy.addresses import EndpointError, parse_endpoint
from oubli.core.field_texts import field_texts
from oubli.core.parameters import Parameter
from oubli.core.registry import PLACES, parameters_of

ENV_PREFIX = "OUBLI_"
DEFAULT_CONFIG = Path("oubli.toml")
MIB = 1024 * 1024
SQLITE = "sqlite"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
POSTGRES_MODULE = "psycopg"
TELEMETRY_MODULE = "opentelemetry.exporter.otlp.proto.http"
MIN_KEY_LENGTH = 16  # characters; shorter keys can be guessed over a network

TABLES = {kind: tuple(one for one in parameters_of(kind) if one.is_setting) for kind in PLACES}
"""What can be set of each kind of model."""
_NAMED = {one.name: one for table in reversed(TABLES.values()) for one in reversed(table)}
MODEL_PARAMETERS = tuple(dict.fromkeys(one.name for table in TABLES.values() for one in table))

_PASSWORD = re.compile(r"(?<=//)([^:/?#]*):[^/?#]*@")
_PASSWORD_OPTION = re.compile(r"([?&](?:password|sslpassword)=)[^&]*", re.IGNORECASE)

Names = Annotated[tuple[str, ...], NoDecode]
"""A tuple of texts; in a variable it is written with commas, or as a JSON list when a text holds a comma."""


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
                description="Kind of model: `forest` or `incremental-boosting`, both exact; `tree`, to be read; or "
                "`online-boosting`.",
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
    """TOML file with settings; without it `oubli.toml` in the working directory is read if it is there."""

    # --- what to learn from
    data: Path | None = None
    """CSV (plain, .gz, .bz2 or .xz) or Parquet file to train on."""
    target: str | None = None
    """Column that holds the label; needed with `data`."""
    id_column: str | None = None
    """Column that holds the sample ids, read as text and never a feature; without it ids are row numbers from 0."""
    subject_column: str | None = None
    """Column that says whom a row is about, read as text and never a feature; lets you erase all rows of a person."""
    expiry_column: str | None = None
    """Column that says when a row expires, as `expires_at` does (RFC 3339 with a time zone; empty: never), and never a
    feature; rows whose time is over are left out."""
    drop: Names = ()
    """Columns to leave out."""
    categorical: Names = ()
    """Columns whose values are categories although they look like numbers."""
    schema_file: Path | None = None
    """JSON file that declares the columns and the label instead of inferring them; alone it starts an empty model."""
    task: Literal["classification", "regression"] | None = None
    """What to predict; by default labels with fractions or more than 20 distinct numbers mean regression."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """Character between the fields of a CSV file; a tab for files named .tsv."""
    max_data_bytes: int = Field(default=4096 * MIB, ge=1024)
    """Most bytes that the data file may unpack to; more is refused before it fills the memory."""

    # --- where it lives
    data_dir: Path = Path("./oubli-data")
    """Directory that keeps the model; one that already holds a model is recovered and `data` is not read."""
    journal: str = "sqlite"
    """Where changes are made durable: `sqlite`, in the data directory, or the URL of a PostgreSQL database,
    `postgresql://user@host/database`. Its password is better in PGPASSWORD or in a file that PGPASSFILE names. A
    journal in files goes on in the database."""
    ephemeral: bool = False
    """Keep nothing on disk: a restart trains on `data` again and brings deleted rows back."""

    snapshot_mutations: int = Field(default=10_000, ge=1)
    """Most records that the journal holds before a snapshot is written."""
    snapshot_bytes: int = Field(default=64 * MIB, ge=4096)
    """Most bytes that the journal holds before a snapshot is written."""
    snapshot_age: float = Field(default=3600.0, gt=0)
    """Longest time, in seconds, that a record stays in the journal alone."""
    scrub_mutations: int | None = Field(default=None, ge=1)
    """Samples added and deleted after which a model that is not exact is fitted anew; by default only for erasures."""
    scrub_age: float | None = Field(default=None, gt=0)
    """Seconds after which a model that is not exact and has changed is fitted anew; by default only for erasures."""
    ledger: Path | None = None
    """Ledger to take in at start, one entry of `GET /ledger` a line, when that in the data directory is older."""
    accept_missing_erasures: bool = False
    """Start although the ledger is older than the snapshot: erasures that are missing from it are given up."""

    accept_missing_keys: bool = False
    """Start although keys that the ledger names are missing: what was hashed or signed with them is given up."""

    # --- among other nodes
    follow: bool = False
    """Be one of several nodes with the same journal in PostgreSQL: one leads, the others follow it, answer predictions,
    and lead when it is gone. The command line is the same on all of them, but for their names and URLs."""
    node_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of this node, which no other has; by default that of the machine."""
    node_url: str | None = None
    """URL by which other nodes and redirected clients reach this one; needed with `follow`."""
    cluster_secret_file: Path | None = None
    """File with a secret of at least 32 characters that all nodes share, readable for its owner only; needed with
    `follow`."""
    lease: float = Field(default=3.0, ge=0.5, le=60)
    """Seconds for which a node leads without being heard of: so long it takes until another one leads in its place."""
    member_timeout: float = Field(default=30.0, ge=2, le=3600)
    """Seconds of silence after which a node is expelled: erasures are finished without it, and it has to rejoin."""

    # --- erasure
    erasure_deadline: float = Field(default=60.0, ge=1)
    """Seconds after an erasure until no file in the data directory may hold anything of it."""
    readd_grace: float = Field(default=86_400.0, ge=0)
    """Seconds for which an erased id comes back only when the sample says `readd`; 0 for none."""
    retention: float | None = Field(default=None, gt=0)
    """Seconds after which samples expire that say nothing else; without it they never do."""
    max_expiry_share: float = Field(default=0.1, gt=0, le=1)
    """Largest share of the samples that may expire at once; more have to be confirmed with `POST /expiry/confirm`."""
    max_empty_erasures: int = Field(default=1000, ge=0)
    """Most erasures an hour and key that find nothing and get a receipt and an entry of the ledger; more are answered
    without them. Requests without a key of `oubli keys` count together. What erases something always gets both."""
    key_dir: Path | None = None
    """Directory of the keys that sign receipts and hash ids; by default `keys` in the data directory."""
    log_name: str = Field(default="oubli", pattern=r"^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$")
    """Name of the log of erasures where one begins, best the server's domain; it is the first part of its origin."""
    log_witnesses: Names = ()
    """Witnesses that cosign the log: the key of each as `name+id+base64`, a space and its URL. `push_networks`,
    `push_plain_http` and `push_timeout` hold for them too."""
    core_dumps: bool = False
    """Let the system write a core file when the process crashes; such a file holds the samples."""

    # --- who may reach it
    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback it needs `api_key_file` or `allow_anonymous`."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    api_key_file: Path | None = None
    """File that holds the key which callers send as `Authorization: Bearer ...` or `X-API-Key`."""
    allow_anonymous: bool = False
    """Serve beyond loopback without a key."""
    allowed_hosts: Names = ()
    """Further host names that requests may carry in `Host`, besides loopback names and `host`; `*` allows any."""
    allowed_origins: Names = ()
    """Further origins of web pages that may change the model, such as `https://oubli.example` behind a TLS proxy."""
    cors_origins: Names = ()
    """Origins of web pages that may send requests and read the answers, such as `https://app.example`; `*` for any."""
    trusted_proxies: Names = ()
    """Addresses or networks of proxies in front of the server: they have no `max_connections_per_address`, and their
    `X-Forwarded-Proto` says whether a client used TLS."""
    tls_cert_file: Path | None = None
    """PEM file with the certificate chain of the server, for TLS; it is read again on SIGHUP."""
    tls_key_file: Path | None = None
    """PEM file with the key to the certificate, without a passphrase."""
    model_name: str = Field(default="oubli", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the model for clients of the Open Inference Protocol: its routes are below `/v2/models/` and the name."""
    workers: int = 1
    """Always 1: one process serves one model."""

    # --- whom it tells of erasures
    webhook_url: str | None = None
    """URL that is told of the states of receipts, as Standard Webhooks has it; needs `webhook_secret_file`."""
    webhook_secret_file: Path | None = None
    """File with the secrets that sign webhooks, `whsec_...`, one a line; all of them sign."""
    push_networks: Names = ()
    """Networks that may be sent to although they are loopback, private or otherwise special, such as `10.1.0.0/16`."""
    push_plain_http: bool = False
    """Let `webhook_url` and the URLs of callbacks begin with `http://`."""
    push_timeout: float = Field(default=15.0, gt=0)
    """Seconds that one attempt may take, from resolving the name to the answer."""
    push_give_up_after: float = Field(default=259_200.0, gt=0)
    """Seconds after which a state that could not be told becomes a dead letter."""

    opendsr_domain: str | None = Field(default=None, pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")
    """Domain by which the server is known as a processor of OpenDSR; without it `/opendsr/v2` takes no requests."""
    opendsr_cert_file: Path | None = None
    """PEM file with the certificate chain for that domain, which answers and callbacks are checked with."""
    opendsr_key_file: Path | None = None
    """PEM file with the key to the certificate, without a passphrase; RSA or ECDSA."""
    opendsr_controller: str = Field(default="controller", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """What answers of OpenDSR call the controller (`controller_id`)."""
    opendsr_identities: Names = ("controller_customer_id",)
    """Types of OpenDSR identities whose raw values are subjects here."""
    opendsr_callbacks: Names = ()
    """URLs that OpenDSR requests may name in `status_callback_urls`; others are refused."""

    # --- what it tells
    log_format: LogFormat = "text"
    """Lines for people, `text`, or one JSON object a line, `json`."""
    log_level: LogLevel = "info"
    """What is logged at least: `debug`, `info`, `warning` or `error`."""
    access_log: bool = False
    """Log each request with the template of its route, method, status, duration and request id; never its path."""
    traces_endpoint: str | None = None
    """URL of an OpenTelemetry collector that takes OTLP over HTTP; without it there are no traces."""

    # --- what it may use
    threads: int | None = Field(default=None, ge=1)
    """Threads for long work: training, comparing, large batches; by default, and at most, one for each core that the
    process may use. Once the server is ready, one core is left to requests."""

    # --- limits
    max_body_bytes: int = Field(default=16 * MIB, ge=1024)
    """Largest request body in JSON, and largest record in other formats, in bytes; a larger one is answered 413."""
    max_bulk_bytes: int = Field(default=256 * MIB, ge=1024)
    """Largest body of `POST /samples` in CSV, NDJSON or Arrow, in bytes; it is kept in memory until it is whole."""
    max_bulk_samples: int = Field(default=100_000, ge=1)
    """Most samples in one such body; `POST /predict` takes any number of rows in these formats."""
    max_snapshot_bytes: int = Field(default=4096 * MIB, ge=1024)
    """Largest snapshot file that can be uploaded, in bytes."""
    upload_pause: float = Field(default=30.0, gt=0)
    """Longest pause, in seconds, between two pieces of a snapshot file that is uploaded."""
    upload_deadline: float = Field(default=3600.0, gt=0)
    """Longest time, in seconds, that the upload of a snapshot file may take."""
    max_rows: int = Field(default=10_000, ge=1)
    """Most rows, samples or ids in one request in JSON."""
    max_queue: int = Field(default=1024, ge=1)
    """Most requests that wait for the model; further ones are answered 429, erasures excepted."""
    max_connections: int = Field(default=4096, ge=1)
    """Most connections at the same time; fewer where the process may not open enough files."""
    max_connections_per_address: int | None = Field(default=None, ge=1)
    """Most connections from one address, or from one IPv6 network of 64 bits; by default half of all."""
    head_timeout: float = Field(default=10.0, gt=0)
    """Seconds in which the head of a request has to arrive."""
    body_timeout: float = Field(default=60.0, gt=0)
    """Seconds in which a body has to arrive, one more for every 8 KiB of it; also for clients that read no answer."""
    idle_timeout: float = Field(default=75.0, gt=0)
    """Seconds after which a connection without a request is closed."""
    max_json_depth: int = Field(default=32, ge=4)
    """Deepest nesting of a JSON body."""
    page_size_max: int = Field(default=1000, ge=1)
    """Most samples on one page of a list."""
    idle_resolve: bool = True
    """Rebuild stale parts of trees while nothing else is to do, so that no later request waits for it. Of a forest,
    with two threads or more, a thread of its own does it between requests."""

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

    @field_validator(
        "drop",
        "categorical",
        "allowed_hosts",
        "allowed_origins",
        "cors_origins",
        "trusted_proxies",
        "push_networks",
        "log_witnesses",
        "opendsr_identities",
        "opendsr_callbacks",
        mode="before",
    )
    @classmethod
    def _split_names(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            try:
                return json.loads(value)
            except ValueError:
                raise ValueError("begins with [ but is not a JSON list of texts") from None
        return tuple(part.strip() for part in value.split(",") if part.strip())

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

    @field_validator("allowed_origins", "cors_origins")
    @classmethod
    def _whole_origins(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.field_name == "cors_origins" and value == (ANY_ORIGIN,):
            return value
        if any(parse_origin(name) is None for name in value):
            raise ValueError("must be origins, scheme and host and perhaps a port: https://oubli.example")
        return value

    @field_validator("trusted_proxies", "push_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            for name in value:
                ipaddress.ip_network(name, strict=False)
        except ValueError:
            raise ValueError("must be addresses or networks: 10.0.0.7 or 10.0.0.0/24") from None
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

    @field_validator("workers")
    @classmethod
    def _one_worker(cls, value: int) -> int:
        if value != 1:
            raise ValueError(
                "must be 1: every worker would hold a model of its own, and what one learns or unlearns the "
                "others would not know. One process serves thousands of requests a second; leave workers out"
            )
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.ephemeral and "data_dir" in self.model_fields_set:
            raise ValueError("data_dir and ephemeral exclude each other: set only one of them")
        if self.ephemeral and self.journal != SQLITE:
            raise ValueError("journal and ephemeral exclude each other: set only one of them")
        if self.data is not None and self.target is None and self.schema_file is None:
            raise ValueError("target is missing: name the column of the data file that holds the label")
        columns = (self.target, self.id_column, self.subject_column, self.expiry_column)
        roles = [name for name in columns if name is not None]
        if len(set(roles)) != len(roles):
            raise ValueError("target, id_column, subject_column and expiry_column must be different columns")
        if set(self.drop) & (set(roles) | set(self.categorical)):
            raise ValueError(
                "a column to drop is also the target, the ids, the subjects, the expiries or categorical: choose one"
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
        if self.member_timeout < 2 * self.lease:
            raise ValueError("member_timeout must be at least twice the lease")

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
        """Refuse what may be set but not served: workers, an open address without a key, traces without the extra.

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
        is_guarded = self.is_loopback or self.api_key_file is not None or self.allow_anonymous
        if not is_guarded and not self._has_live_key():
            raise SettingsError(
                f"host {self.host} can be reached from other machines and no key is asked for: make one with `oubli "
                "keys create`, or set api_key_file (--api-key-file, OUBLI_API_KEY_FILE), or allow_anonymous "
                "(--allow-anonymous) where a proxy or a private network already decides who may connect."
            )
        if ANY_ORIGIN in self.cors_origins and self.api_key_file is None and not self._has_live_key():
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
            raise SettingsError(
                f"{self.access_keys_path} {error}: restore it from a backup, or remove it and make new keys with "
                "`oubli keys create`"
            ) from None

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
            raise SettingsError(f"api_key_file {self.api_key_file} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"api_key_file {self.api_key_file} must hold one key in plain ASCII") from None
        if len(key) < MIN_KEY_LENGTH or any(character.isspace() for character in key):
            raise SettingsError(
                f"api_key_file {self.api_key_file} must hold one key of at least {MIN_KEY_LENGTH} characters "
                "without spaces; `openssl rand -hex 32` makes one"
            )
        return key


for _name, _text in field_texts(Settings).items():
    Settings.model_fields[_name].description = _text

_FIRST_OF_GROUP = {
    "config": "Settings file",
    "data": "Data",
    "data_dir": "Storage",
    "follow": "Nodes",
    "erasure_deadline": "Erasure",
    "host": "Network",
    "webhook_url": "Webhooks and callbacks",
    "log_format": "Monitoring",
    "threads": "Cores",
    "max_body_bytes": "Limits",
}


def _grouped() -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    group = "Model"  # the model's settings are those of the base class, which come first
    for name in Settings.model_fields:
        group = _FIRST_OF_GROUP.get(name, group)
        groups[group] = (*groups.get(group, ()), name)
    first = ("Settings file", "Data")
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
    _refuse_unknown_variables(os.environ)
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
        "id_column": "id", "subject_column": "subject", "expiry_column": "expiry", "schema_file": "schema",
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
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the settings file {path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None
    unknown = sorted(set(values) - set(Settings.model_fields) | set(values) & {"config"})
    if unknown:
        raise SettingsError(f"the settings file {path} holds {_unknown(unknown)}")
    return values


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    """A misspelt variable would otherwise be ignored in silence, limits and keys included."""
    # Upper case is how they are documented; pydantic-settings takes any case, and so does this.
    names = [
        name.lower().removeprefix(ENV_PREFIX.lower()) for name in environment if name.upper().startswith(ENV_PREFIX)
    ]
    unknown = sorted(set(names) - set(Settings.model_fields))
    if unknown:
        raise SettingsError(f"the environment holds {_unknown(unknown, prefix=ENV_PREFIX)}")


def _unknown(names: list[str], prefix: str = "") -> str:
    parts = []
    for name in names:
        close = difflib.get_close_matches(name, Settings.model_fields, n=1)
        shown = prefix + name.upper() if prefix else name
        known = prefix + close[0].upper() if close and prefix else close[0] if close else ""
        parts.append(f"{shown} (did you mean {known}?)" if known else shown)
    plural = "settings" if len(parts) > 1 else "a setting"
    return f"{plural} that Oubli does not know: {', '.join(parts)}. `oubli serve --help` lists them all."


def _explain(error: Any) -> str:
    """One line for one of pydantic's errors: where it can be set and the rule, without the value."""
    rule = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return rule
    field = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return _unknown([field])
    return f"{field} ({flag_name(field)}, {ENV_PREFIX}{field.upper()}): {rule[0].lower()}{rule[1:]}"
