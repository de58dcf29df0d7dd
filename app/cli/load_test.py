"""`oubli load-test`: put load on a running server, and say what it answers and how soon."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from oubli.app.cli.console import complain, messages, tell, warn
from oubli.app.cli.options import (
    FAILED,
    INTERRUPTED,
    LOCAL,
    REFUSED,
    ApiKeyFile,
    Force,
    read_api_key,
    require_new,
    writing,
)
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.client.load.controller import LoadTest
    from oubli.client.load.records import Measured, Result


def load_test(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the server.")] = LOCAL,
    *,
    mix: Annotated[
        str, typer.Option(help="Shares of predict, add and delete. The test deletes only samples that it has added.")
    ] = "predict=100",
    rate: Annotated[
        list[float] | None,
        typer.Option(
            min=0.001,
            help="Open loop: requests a second, sent when they are due, even if the server is slow. Repeat it for "
            "several steps.",
        ),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Closed loop: connections that send the next request after each answer. Repeat it for several steps; "
            "the default without a rate is 16.",
        ),
    ] = None,
    connections: Annotated[
        int, typer.Option(min=1, help="Open loop: maximum number of requests at the same time.")
    ] = 64,
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds of each step.")] = 10.0,
    warm_up: Annotated[
        float, typer.Option(min=0, help="Seconds of load before the first step that are not measured.")
    ] = 2.0,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the load.")] = 1,
    rows: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="Source of the rows: held (samples of the server), schema (made up), or a CSV file with the columns "
            "of the model.",
        ),
    ] = "held",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the order of operations, and of made-up rows.")] = 0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with 1 if this condition is true in any step: predict.p99>5ms, errors>0, refused>1%, "
            "all.rate<1000. May be repeated.",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the result into a PNG file (extra `plot`).")
    ] = None,
    force: Force = False,
    api_key_file: ApiKeyFile = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust instead of those of the system.")
    ] = None,
) -> None:
    """Put load on a running server, and report the times of its answers up to p99.9.

    With rates, times count from when a request was due, so that pauses of the server are measured. The test checks that
    every answer includes all changes acknowledged before, says when the client is the limit, and deletes the samples
    that it has added, also after Ctrl-C and errors. Exit with 1 when a condition or a promise is broken,
    with 2 when the test could not be done, with 130 after Ctrl-C.
    """
    from oubli.client.load.controller import LoadTest
    from oubli.client.load.plan import LoadTestError, Plan, read_mix, read_threshold, steps_of
    from oubli.client.load.report import draw, failures, lines, report, require_plotting
    from oubli.client.load.target import Target

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
        with viewing() as show:
            test = LoadTest(Target(url, key, ca_file), plan, rows, show, tell)
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

    def stop(*_: object) -> None:
        if test.result.interrupted:
            raise KeyboardInterrupt
        test.stop()

    before = [(number, signal.signal(number, stop)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        return test.run(key=key, ca_file=ca_file)
    except KeyboardInterrupt:
        return test.result
    finally:
        for number, handler in before:
            signal.signal(number, handler)


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


@contextmanager
def viewing(console: Console = messages) -> Iterator[Callable[[Measured, int], None]]:
    """Show what is measured on the terminal while it is; without a terminal, a line for each step."""
    if console.is_terminal and not console.quiet:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            yield lambda measured, _: live.update(_table(measured), refresh=True)
        return
    shown: set[int] = set()

    def show(measured: Measured, number: int) -> None:
        if number not in shown:
            tell(f"{measured.step} ...")
        shown.add(number)

    yield show


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
