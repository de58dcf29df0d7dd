"""The command line, `oubli`.

Commands import what they need when they run: `oubli --help` answers at once, and Numba must not be imported before it
knows where compiled kernels are kept.
"""

from __future__ import annotations

import asyncio
import csv
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer

from oubli.app.cli.audit import audit
from oubli.app.cli.console import Bars, complain, log_messages, shows_values, tell, warn
from oubli.app.cli.erase import erase
from oubli.app.cli.keys import keys_cli
from oubli.app.cli.ledger import ledger_cli
from oubli.app.cli.load_test import load_test
from oubli.app.cli.options import (
    FAILED,
    REFUSED,
    ApiKeyFile,
    Command,
    Force,
    Output,
    Read,
    require_new,
    takes,
    warn_of_unknown_variables,
    writing,
)
from oubli.app.cli.proofs import proof_cli
from oubli.app.cli.remote import asking, cluster_cli, snapshot
from oubli.app.datasets.formulas import guarded
from oubli.app.errors import StartError, StorageError
from oubli.app.logs import configure_logging
from oubli.app.service.compiling import use_kernel_cache
from oubli.app.service.memory import set_up_allocator, switch_core_dumps_off, without_collector
from oubli.app.settings import GROUPS, MODEL_PARAMETERS, TABLES, Settings
from oubli.app.threads import SWITCH_SECONDS
from oubli.app.version import VERSION
from oubli.core.concurrency.threads import set_default, threads_of

_SECONDS_ALONE = 1.0  # at the start, before health checks are answered

cli = typer.Typer(
    name="oubli",
    help="Serve a model that learns and forgets single samples, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_MODEL_SETTINGS = (*GROUPS["General"], *GROUPS["Data"], *GROUPS["Model"])
_ALL_SETTINGS = tuple(field for group in GROUPS.values() for field in group)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oubli {VERSION}")
        raise typer.Exit


@cli.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # The options of the program itself; its help is the text given to Typer.
    context.call_on_close(partial(set_default, 1))
    set_default(threads_of(-1))  # `--threads` says otherwise, where there is such an option


@takes(*_ALL_SETTINGS)
def serve(settings: Settings) -> None:
    """Serve a model over HTTP, trained on a data file or recovered from the data directory.

    If the data directory already holds a model, the server recovers it and does not read the data file. So you always
    restart with the same command line.
    """
    configure_logging(settings.log_format, settings.log_level)
    if settings.log_format == "json":
        log_messages()
    warn_of_unknown_variables()
    settings.require_servable()
    if not settings.core_dumps:
        switch_core_dumps_off()
    set_up_allocator()

    from oubli.app.http.standby import Standby, bind, tls_context

    tls = tls_context(settings)
    # Training may take minutes: a port that is taken should be known before.
    with _ignoring_hangups(), Standby(bind(settings.host, settings.port), settings, tls) as standby:
        settings = settings.model_copy(update={"port": standby.port})
        # What it needs takes a while to import, which would hold up what comes first.
        standby.start("starting", delay=_SECONDS_ALONE)
        url = f"{'http' if tls is None else 'https'}://{_url_host(settings.host)}:{settings.port}"
        service, lines = _start_service(settings, url, standby.hurry)
        from oubli.app.http.server import run

        run(settings, service, standby.sockets, tls, standby, partial(_tell_ready, settings, service, url, lines))


def _show(about: Any) -> None:
    """Say what was understood of a data file; a terminal shows values, and a log keeps none."""
    for line in about.lines(values=shows_values()):
        tell(line)


def _tell_ready(settings: Settings, service: Any, url: str, lines: Sequence[str]) -> None:
    """Say where the server listens, and how good a model is that this start has trained."""
    _tell_address(settings, url, lines)
    inspector = service.questions.inspector
    if inspector.understood is not None and shows_values():
        asyncio.get_running_loop().create_task(tell_quality(inspector)).add_done_callback(asyncio.Task.exception)


async def tell_quality(inspector: Any) -> None:
    """Say how well the model predicts samples that its trees have not learned, as `GET /model` with `score` does."""
    started = time.perf_counter()
    found = await inspector.quality()
    if found is not None:
        seconds = time.perf_counter() - started
        name, count = found["metric"], found["n_samples"]
        tell(f"{found['method']}: {name} {found['value']:.3f} for {count:,} samples, found in {seconds:.1f} s")


def _tell_address(settings: Settings, url: str, lines: Sequence[str]) -> None:
    """Say where the server listens, and print lines to try it with."""
    if settings.log_format == "json":
        tell(f"Oubli {VERSION} serves {url}")
        return
    tell(f"\nOubli {VERSION} serves {url} (documentation: {url}/docs, stop: Ctrl-C). Try:")
    for line in lines:
        tell(f"\n  {line}")
    tell("")


@contextmanager
def _ignoring_hangups() -> Iterator[None]:
    """Ignore SIGHUP, which may come before there is anything to reload, and after."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _start_service(settings: Settings, url: str, answer: Callable[[], object]) -> tuple[Any, list[str]]:
    """Return a service that is ready to be served, and lines to try it with; `answer`: called when that takes long."""
    with without_collector():
        from oubli.app.cli.examples import tour
        from oubli.app.progress import at_stages
        from oubli.app.service.build import RECOVERING, build_service
        from oubli.app.service.compiling import COMPILING, prepare_kernels
        from oubli.app.service.jobs.fits import TRAINING

        # Threads that load or import something beside should not wait five milliseconds for the interpreter each time.
        sys.setswitchinterval(SWITCH_SECONDS)
        # The HTTP layer takes a while to import. Kernels grow trees and read models without the interpreter, and the
        # threads that grow them take one tree after the other: none waits for the one that shares its core.
        begin_import = threading.Thread(target=import_module, args=("oubli.app.http.server",), daemon=True).start
        with Bars() as progress:
            stages = at_stages(progress, (COMPILING, TRAINING, RECOVERING), answer)
            stages = at_stages(stages, (TRAINING, RECOVERING), begin_import)
            build: Callable[..., Any] = partial(build_service, show=_show, ask=progress.ask)
            if settings.follow:
                from oubli.app.replication.start import build_node as build  # needs psycopg
            service = build(settings, stages, tell=tell, warn=warn)
            model = service.model.state.model
            prepare_kernels(model.kind, model.schema_, model.get_params(), progress, answers=False, part="predictions")
            lines = tour(url, model.samples_, settings.api_key_file, settings.tls_cert_file)
            gc.freeze()  # these objects stay, and the collector need not search them
        return service, lines


@takes(*_ALL_SETTINGS)
def config(settings: Settings) -> None:
    """Print the settings in force, and where each comes from, as a settings file."""
    warn_of_unknown_variables()
    for line in settings_lines(settings):
        typer.echo(line)


def settings_lines(settings: Settings) -> Iterator[str]:
    """Yield the lines of a settings file with the settings in force.

    What is not set is a comment. A parameter of the model that is not set has the default of its kind; parameters that
    the kind does not have are left out.
    """
    sources = settings.sources()
    parameters = {one.name: one for one in TABLES[settings.model]}
    for group, names in GROUPS.items():
        lines = []
        for name in names:
            if name == "config" or (name in MODEL_PARAMETERS and name not in parameters):
                continue
            value = settings.shown_journal if name == "journal" else getattr(settings, name)
            if value is None and name in parameters:
                value = parameters[name].default
                value = parameters[name].none_word if value is None else value
            set_here = "" if value is not None else "# "
            shown = "" if value is None else _toml(value)
            lines.append(f"{set_here}{name} = {shown}".rstrip().ljust(40) + f"  # {sources[name]}")
        if lines:
            yield f"# {group}"
            yield from lines
            yield ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


@takes(*_MODEL_SETTINGS)
def fit(settings: Settings, *, output: Output = None, force: Force = False) -> None:
    """Train a model on a data file and save it to a model file."""
    if output is None:
        raise StartError("there is no file to save to: name one with --output model.oubli")
    require_new(output, force)

    from oubli.app.service.jobs.fits import train

    with Bars() as progress:
        model, table = train(settings, progress, ask=progress.ask)
    _show(table.about)
    for note in table.notes:
        warn(note)
    with writing(output):
        model.save(output)
    tell(
        f"Saved a model for {table.schema.task} ({settings.model}) to {output}: {len(table):,} samples, "
        f"{table.schema.n_features} features, {output.stat().st_size:,} bytes."
    )


@takes(*GROUPS["General"], *GROUPS["Data"])
def inspect(settings: Settings, *, output: Output = None, force: Force = False) -> None:
    """Say what is understood of a data file, without a model: types, examples, and what looks odd.

    With --output the schema is written, as --schema reads it.
    """
    require_new(output, force)
    from oubli.app.datasets.loading import NoTargetError, load_table

    notes: tuple[str, ...] = ()
    with Bars() as progress:
        try:
            table = load_table(settings, progress)
        except NoTargetError as error:
            if output is not None:
                raise
            about = error.about
        else:
            about, notes = table.about, table.notes
    for line in (*about.lines(values=True), *(f"note: {note}" for note in notes), "", *about.examples_lines()):
        typer.echo(line)
    if output is not None:
        document = {**table.schema.to_dict(), "read": [one for one in about.read if "=" in one]}
        with writing(output):
            output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def predict(
    model: Annotated[
        Path | None, typer.Argument(help="Model file, or a server's data directory; leave it out with --url.")
    ] = None,
    data: Annotated[Path | None, typer.Argument(help="The data file; columns are matched by name.")] = None,
    *,
    url: Annotated[
        str | None, typer.Option(help="Address of a running server that predicts, instead of a model file.")
    ] = None,
    data_file: Annotated[Path | None, typer.Option("--data", metavar="FILE", help="The data file, with --url.")] = None,
    api_key_file: ApiKeyFile = None,
    output: Output = None,
    force: Force = False,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column to repeat in front of each prediction.")
    ] = None,
    extra_columns: Annotated[
        Literal["refuse", "ignore"] | None, typer.Option(help="What to do with columns that the model does not know.")
    ] = None,
    missing_columns: Annotated[
        Literal["refuse", "missing"] | None, typer.Option(help="What to do where the file lacks columns.")
    ] = None,
    read: Read = None,
) -> None:
    """Predict every row of a data file, and write CSV with a probability for each class.

    With --url a running server predicts, which needs the extra `client`: the file is sent piece by piece
    and may be of any size. Each row then names the version of the model that predicted it.
    """
    require_new(output, force)
    rules = {"extra_columns": extra_columns, "missing_columns": missing_columns}
    options: dict[str, Any] = {"id_column": id_column, "rules": rules}
    if url is not None:
        if data_file is None or model is not None:
            raise StartError("with --url name the data file with --data, and no model file")
        _predict_remotely(url, api_key_file, data_file, read or (), output, **options)
        return
    if model is None or data is None or data_file is not None:
        raise StartError("name a model file and a data file, or a server with --url and a data file with --data")

    from oubli.app.cli.predict import prediction_rows

    with Bars() as progress:
        estimator, queries = _read_queries(model, data, read=read or (), progress=progress, **options)
        with _results_to(output) as file:
            _write_csv(file, prediction_rows(estimator, queries, progress))
    if output is not None:
        tell(f"Wrote {len(queries):,} predictions to {output}.")


def influence(
    model: Annotated[Path, typer.Argument(help="Model file, or a server's data directory.")],
    data: Annotated[Path, typer.Argument(help="The data file with the rows to ask about.")],
    *,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the true labels; by default the predicted labels are used."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="leaf-influence, leaf-refit or leave-one-out; the default depends on the kind of model."),
    ] = None,
    update_set: Annotated[
        str,
        typer.Option(
            metavar="SET", help="Samples whose changes the leaf methods follow: all, single, or a number of leaves."
        ),
    ] = "all",
    top: Annotated[int, typer.Option(min=1, help="Largest number of samples in each list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, not CSV.")] = False,
    output: Output = None,
    force: Force = False,
    read: Read = None,
) -> None:
    """List the training samples that help most and harm most on the rows of a file, with their scores.

    A positive score says that a sample helps: without it the mean loss on these rows would be higher.
    """
    require_new(output, force)

    from oubli.app.cli.predict import find_influence, ranked_rows, read_update_set
    from oubli.app.service.model.influence import ranking_content

    followed = read_update_set(update_set)
    with Bars() as progress:
        options: dict[str, Any] = {"label_column": target, "rules": {"extra_columns": "ignore"}}
        estimator, queries = _read_queries(model, data, read=read or (), progress=progress, **options)
        found = find_influence(estimator, queries, path=data, method=method, update_set=followed, progress=progress)
    if found.note:
        warn(found.note)
    with _results_to(output) as file:
        if as_json:
            file.write(json.dumps(ranking_content(found, top, estimator.n_samples_), indent=2) + "\n")
        else:
            _write_csv(file, ranked_rows(found, top))
    meant = "the predicted labels" if target is None else f"the labels in {target!r}"
    tell(f"By {found.method}, for {meant} of {len(queries):,} rows.")


def verify(
    model: Annotated[Path, typer.Argument(help="Model file, or a server's data directory (its newest snapshot).")],
) -> None:
    """Train a fresh model on the samples held and compare. Exit code 0: both are the same bit for bit; 1: they differ.

    For a model that is not exact, recount everything that it keeps, and check its guarantee.
    """
    from oubli.app.cli.predict import load_model_file

    with Bars() as progress:
        progress("reading the model", 0, 1)
        estimator = load_model_file(model)
        progress("training a fresh model to compare with", 0, 1)
        result = estimator.verify()
    typer.echo(f"held   {result.live_digest}")
    typer.echo(f"fresh  {result.fresh_digest}")
    if not result.ok:
        complain("the model is not the one that training on its samples gives")
        for finding in result.wrong:
            complain(finding)
        raise typer.Exit(FAILED)
    n_samples = f"{estimator.n_samples_:,} samples"
    if estimator.guarantee == "exact":
        tell(f"The same: the model equals a fresh fit on its {n_samples}.")
    else:
        tell(f"Sound: everything that the model stores agrees with its {n_samples}. It is {estimator.guarantee}.")
        if result.distance_to_fresh is not None:
            tell(f"Its predictions are {result.distance_to_fresh:.2%} away from those of a fresh fit.")


def warm_up(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(help="Kinds of model: forest, tree, online-boosting, incremental-boosting; all when left out."),
    ] = None,
) -> None:
    """Compile the kernels into the cache (NUMBA_CACHE_DIR), so that the first start is fast. Use it to build images."""
    from oubli.core.warmup import warm_up as compile_kernels

    with Bars() as progress:
        compile_kernels(*kinds or (), progress=progress)


_GROUPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Run": {"serve": serve, "fit": fit, "config": config, "warm-up": warm_up},
    "Data": {"inspect": inspect, "predict": predict, "influence": influence, "verify": verify},
    "Privacy": {"erase": erase, "ledger": ledger_cli, "proof": proof_cli, "audit": audit},
    "Operate": {"keys": keys_cli, "snapshot": snapshot, "cluster": cluster_cli, "load-test": load_test},
}
for _group, _commands in _GROUPS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            cli.add_typer(_command, name=_name, rich_help_panel=_group)
        else:
            cli.command(_name, cls=Command, rich_help_panel=_group)(_command)


@cli.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def remove_node() -> None:
    """Name the command that replaces this one."""
    raise StartError("`oubli remove-node NAME` is `oubli cluster remove NAME` now")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors go to stderr and end with exit code 2."""
    use_kernel_cache()
    try:
        cli(args=None if arguments is None else list(arguments), prog_name="oubli")
    except Exception as error:
        text = _explain(error)
        if text is None:
            raise
        complain(text)
        sys.exit(REFUSED)


def _explain(error: Exception) -> str | None:
    """Return the text for an error that the user can fix; None for a bug, which keeps its traceback."""
    if isinstance(error, StartError):
        return str(error)
    from oubli.core.errors import FileError, OubliError

    if isinstance(error, FileError):
        return error.rule
    if isinstance(error, StorageError):
        return f"the data directory cannot be written: {error}. Make room there, or check that this user may write it"
    return str(error) if isinstance(error, OubliError) else None


def _url_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what was bound is compared, nothing is bound here
        return "127.0.0.1"
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _read_queries(model: Path, data: Path, *, rules: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """Read a model file, and the rows of a data file by its schema and rules; `options` are of `load_queries`."""
    from oubli.app.cli.predict import load_model_file
    from oubli.app.datasets.loading import load_queries

    estimator = load_model_file(model)
    asked = {name: rule for name, rule in rules.items() if rule is not None}
    queries = load_queries(data, replace(estimator.schema_, **asked), **options)
    if queries.ignored:
        warn(f"not used by the model: {', '.join(map(repr, queries.ignored))}")
    return estimator, queries


def _predict_remotely(
    url: str, key_file: Path | None, data: Path, read: Sequence[str], output: Path | None, **options: Any
) -> None:
    """Have a server predict a file, and write what it answers."""
    from oubli.app.datasets.dialect import read_options
    from oubli.app.datasets.readers import open_source

    source = open_source(data, read_options(read), sys.maxsize)
    with Bars() as progress, _results_to(output) as file, asking(url, key_file) as client:
        from oubli.app.cli.predict import remote_prediction_rows

        _write_csv(file, remote_prediction_rows(client, source, progress=progress, **options))
    if output is not None:
        tell(f"Wrote the server's predictions to {output}.")


def _write_csv(file: IO[str], rows: Iterator[list[Any]]) -> None:
    csv.writer(file, lineterminator="\n").writerows(map(guarded, row) for row in rows)


@contextmanager
def _results_to(output: Path | None) -> Iterator[IO[str]]:
    """Open the output file, or use stdout.

    A reader that closes the pipe, such as `head`, has what it wants: the command ends quietly.
    """
    if output is not None:
        with writing(output), output.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer is written at exit: it must go somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
