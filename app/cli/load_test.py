"""`oubli load-test`: put load on a running server, and say what it answers and how soon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from oubli.app.cli.console import complain, messages, tell, warn
from oubli.app.cli.files import ApiKeyFile, read_api_key, require_new, writing
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.client.load.controller import LoadTest, Measured, Result

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


def load_test(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the server.")] = "http://127.0.0.1:8000",
    *,
    mix: Annotated[
        str, typer.Option(help="Shares of predict, add and delete. Only samples that the test has added are deleted.")
    ] = "predict=100",
    rate: Annotated[
        list[float] | None,
        typer.Option(
            min=0.001,
            help="Open loop: requests a second, sent when they are due whatever the server does. Repeat it for several "
            "steps.",
        ),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Closed loop: connections that send the next request when the answer is there. Repeat it for several "
            "steps; without any rate it is 16.",
        ),
    ] = None,
    connections: Annotated[int, typer.Option(min=1, help="Open loop: most requests at the same time.")] = 64,
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds of each step.")] = 10.0,
    warm_up: Annotated[
        float, typer.Option(min=0, help="Seconds before the first step, with its load, that are not measured.")
    ] = 2.0,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the load.")] = 1,
    rows: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="Where rows come from: held (samples of the server), schema (made up), or a CSV file with the "
            "columns of the model.",
        ),
    ] = "held",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of the order of operations, and of rows that are made up.")] = 0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with 1 when this is so in any step, as in predict.p99>5ms, errors>0, refused>1%, all.rate<1000. "
            "May be repeated.",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the result into a PNG file (extra `plot`).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output files.")] = False,
    api_key_file: ApiKeyFile = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust in place of those of the system.")
    ] = None,
) -> None:
    """Put load on a running server, and report the times of its answers up to p99.9.

    With rates, times count from when a request was due, so that a server that stands still cannot hide it. The test
    checks that every answer knows of all changes acknowledged before, says when the client is the limit, and takes away
    the samples that it has added, also after Ctrl-C and errors. Exit with 1 when a condition or a promise is broken,
    with 2 when the test could not be done, with 130 after Ctrl-C.
    """
    from oubli.client.load.controller import LoadTest
    from oubli.client.load.http import Target
    from oubli.client.load.plan import LoadTestError, Plan, read_mix, steps_of
    from oubli.client.load.plot import draw, require_plotting
    from oubli.client.load.report import failures, lines, report
    from oubli.client.load.thresholds import read_threshold

    for path in (json_file, plot):
        require_new(path, force)
    try:
        if plot is not None:
            require_plotting()
        shares = read_mix(mix)
        thresholds = [read_threshold(text, shares) for text in fail_if or ()]
        closed = concurrency or ([] if rate else [16])
        steps = steps_of(rate or (), closed, connections=connections, seconds=duration, warm_up=warm_up)
        plan = Plan(steps, shares, processes, timeout, seed)
        key = None if api_key_file is None else read_api_key(api_key_file)
        with View() as view:
            test = LoadTest(Target(url, key, ca_file), plan, rows, observe=view.show, tell=tell)
            result = _run(test, key, ca_file)
        found = report(result, plan, thresholds, url)
        if json_file is not None:
            with writing(json_file):
                json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if plot is not None and result.steps:
            with writing(plot):
                draw(result.steps, found, plot)
    except LoadTestError as error:
        raise StartError(str(error)) from None
    for line in lines(found):
        typer.echo(line)
    _end(result, list(failures(found)))


def _run(test: LoadTest, key: str | None, ca_file: Path | None) -> Result:
    """Run a test; Ctrl-C ends it in order, a second one waits for no answers, a third one for no deletions."""

    async def run() -> Result:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(test.run(key=key, ca_file=ca_file))

        def stop() -> None:
            if test.result.interrupted:
                task.cancel()
            else:
                tell(
                    "Stopping: waiting for answers, then taking away what was added. Ctrl-C again waits for no answers."
                )
                test.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            return await task
        return test.result

    return asyncio.run(run())


def _end(result: Result, failed: list[str]) -> None:
    """Say what a person must know, and end with the code that says how it went."""
    for text in failed:
        complain(text)
    if result.left_behind:
        complain(
            f"samples may be left that the test has added: {result.left_behind}. Delete the subject {result.subject} "
            "when the server answers again"
        )
    if result.failed:
        complain(f"the test was not done to its end: {result.failed}")
        raise typer.Exit(REFUSED)
    if result.interrupted:
        warn("the test was stopped before its end.")
        raise typer.Exit(INTERRUPTED)
    if failed or result.left_behind:
        raise typer.Exit(FAILED)


class View:
    """What is measured, on the terminal while it is; without a terminal, a line for each step.

    Used as ``with View() as view: ...``.
    """

    def __init__(self, console: Console = messages) -> None:
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._draws = console.is_terminal and not console.quiet
        self._number = -1

    def __enter__(self) -> Self:
        if self._draws:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._draws:
            self._live.stop()

    def show(self, measured: Measured, number: int) -> None:
        """Show a step as it is now."""
        if not self._draws:
            if number != self._number:
                tell(f"{measured.step} ...")
            self._number = number
            return
        self._live.update(_table(measured), refresh=True)


def _table(measured: Measured) -> Table:
    """The step so far, and the client's effort below it."""
    from oubli.client.load.report import HEADINGS, cells, limits_of_client, operation_report

    step = measured.step
    busy = max(effort.busy_share for effort in measured.efforts)
    limits = limits_of_client(measured)
    caption = f"client busy {busy:.0%}" if not limits else f"the client is the limit: {limits[0]}"
    table = Table(title=f"{step}: {measured.seconds:.0f} of {step.seconds:.0f} s", caption=caption)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
    for name, one in measured.record.operations.items():
        table.add_row(*cells(name, operation_report(one, measured.seconds)))
    return table
