"""Reports of a load test: JSON, lines for a person, and a picture of times and rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oubli.client.load.plan import READ, LoadTestError, Plan, Threshold, percents
from oubli.client.load.records import Effort, Histogram, Measured, Operation, Result

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
# Above these the client has a part in what was measured.
MOST_BUSY = 0.9  # share of the time that a process works or waits for a processor
LATEST_SEND = 0.001  # seconds at p99 that a request leaves after it was due
LATEST_LOOP = 0.01  # seconds at p99 that a timer of the event loop is late


def times(histogram: Histogram, more: Sequence[float] = ()) -> dict[str, float] | None:
    """Percentiles, mean and maximum in milliseconds; None when nothing was measured."""
    if not histogram.n:
        return None
    shares = sorted({*PERCENTILES, *more})
    found = {f"p{share:g}": histogram.percentile(share) / 1e6 for share in shares}
    return {**found, "mean": histogram.mean / 1e6, "max": histogram.longest / 1e6}


def operation_report(operation: Operation, seconds: float, more: Sequence[float] = ()) -> dict[str, Any]:
    """What became of an operation's requests; rates are of successes, times in milliseconds."""
    return {
        "requests": operation.n_requests,
        "rate": operation.n_successes / seconds if seconds else 0.0,
        "latency_ms": times(operation.durations, more),
        "errors": operation.n_errors,
        "refused": operation.n_refused,
        "unanswered": operation.unanswered,
        "statuses": {str(status): n for status, n in sorted(operation.statuses.items())},
        "retry_after": {
            "answers": operation.retry_after.total(),
            "longest_s": max(operation.retry_after, default=0.0),
        },
    }


def limits_of_client(measured: Measured) -> list[str]:
    """Why the client, and not the server, may be the limit of what was measured; nothing when it was not."""
    reasons = []
    for number, effort in enumerate(measured.efforts):
        process = f"process {number}"
        if effort.busy_share > MOST_BUSY:
            waited = f", {effort.waited / effort.wall:.0%} of it waiting for a processor" if effort.waited else ""
            reasons.append(f"{process} was busy {effort.busy_share:.0%} of the time{waited}")
        late = effort.send_lag.percentile(99) / 1e9
        if late > LATEST_SEND:
            reasons.append(f"{process} sent requests {1000 * late:.1f} ms after they were due (p99)")
        late = effort.loop_lag.percentile(99) / 1e9
        if late > LATEST_LOOP:
            reasons.append(f"the event loop of {process} was {1000 * late:.0f} ms late (p99)")
    return reasons


def _effort(effort: Effort) -> dict[str, Any]:
    share = 1 / effort.wall if effort.wall else 0.0
    return {
        "cpu_share": effort.cpu * share,
        "waiting_share": effort.waited * share,
        "send_lag_ms": times(effort.send_lag),
        "loop_lag_ms": times(effort.loop_lag),
    }


def _step(measured: Measured, more: Sequence[float]) -> dict[str, Any]:
    step, record, seconds = measured.step, measured.record, max(measured.seconds, 1e-9)
    limits = limits_of_client(measured)
    mixed = {name: one for name, one in record.operations.items() if name != READ}
    operations = {name: operation_report(one, seconds, more) for name, one in mixed.items()}
    return {
        "load": str(step),
        "rate_asked": step.rate,
        "connections": step.connections,
        "is_warm_up": step.is_warm_up,
        "seconds": seconds,
        "operations": {**operations, "all": operation_report(record.all(READ), seconds, more)},
        "read_back": operation_report(record.operations[READ], seconds, more),
        "held_up": record.n_held_up,
        "substituted": record.n_substituted,
        "client": {
            "is_limit": bool(limits),
            "reasons": limits,
            "processes": [_effort(effort) for effort in measured.efforts],
        },
        "timeline": [
            {
                "begin": part.begin,
                "end": part.end,
                "operations": {
                    name: {
                        "rate": one.n_successes / max(part.end - part.begin, 1e-9),
                        "latency_ms": times(one.durations),
                    }
                    for name, one in part.record.operations.items()
                },
            }
            for _, part in sorted(measured.parts.items())
        ],
    }


def report(result: Result, plan: Plan, thresholds: Sequence[Threshold], url: str) -> dict[str, Any]:
    """Return the whole result.

    Parameters
    ----------
    result
        Of the test.
    plan
        What was asked for.
    thresholds
        Conditions that fail it.
    url
        Of the server.
    """
    steps = [_step(measured, percents(thresholds)) for measured in result.steps]
    counted = [step for step in steps if not step["is_warm_up"]]
    promises = result.promises
    return {
        "url": url,
        "model": {name: result.model.get(name) for name in ("kind", "task", "n_samples", "durable", "model_version")},
        "mix": dict(plan.mix),
        "processes": plan.n_processes,
        "steps": steps,
        "read_your_writes": {
            "answers_compared": promises.n_compared,
            "samples_read_back": promises.n_read_back if result.may_read else None,
            "violations": dict(promises.violations),
        },
        "conditions": [
            {
                "fails_if": one.text,
                "values": [one.value(step) for step in counted],
                "failed": any(one.fails(step) for step in counted),
            }
            for one in thresholds
        ],
        "subject": result.subject,
        "left_behind": result.left_behind or None,
        "interrupted": result.interrupted,
        "failed": result.failed or None,
    }


def failures(found: dict[str, Any]) -> Iterator[str]:
    """Why a test has failed, from its report: conditions, broken promises, and what answered nothing but errors."""
    for condition in found["conditions"]:
        if condition["failed"]:
            values = ", ".join("none" if value is None else f"{value:.4g}" for value in condition["values"])
            yield f"the condition {condition['fails_if']!r} is met (measured: {values})"
    for promise, n in found["read_your_writes"]["violations"].items():
        yield f"{promise} ({n} times)"
    for step in found["steps"]:
        if not step["operations"]["all"]["requests"]:
            yield f"no request was sent ({step['load']})"
        for name, one in step["operations"].items():
            if one["requests"] and not one["rate"] and not step["is_warm_up"] and name != "all":
                yield f"no {name} was answered as it should be ({step['load']})"


HEADINGS = ("operation", "requests", "rate/s", "p50", "p90", "p99", "p99.9", "max", "errors", "refused")


def cells(name: str, one: dict[str, Any]) -> tuple[str, ...]:
    """An operation's line in a table: times in milliseconds."""
    found = one["latency_ms"] or {}
    figures = (f"{found[share]:.2f}" if share in found else "-" for share in (*HEADINGS[3:7], "max"))
    counts = (f"{one['requests']:,}", f"{one['rate']:,.0f}")
    return (name, *counts, *figures, str(one["errors"]), str(one["refused"]))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield a table of each step, and what else there is to know; times are in milliseconds."""
    for step in found["steps"]:
        if step["is_warm_up"]:
            continue
        asked = step["rate_asked"]
        loop = "closed loop" if asked is None else f"open loop, up to {step['connections']} connections"
        processes = f"{found['processes']} process{'es' if found['processes'] > 1 else ''}"
        yield f"{step['load']} ({loop}), {step['seconds']:.1f} s, {processes}; times in ms"
        names = list(step["operations"])
        shown = names if len(names) > 2 else names[:1]  # all of one operation are the operation
        table = [HEADINGS, *(cells(name, step["operations"][name]) for name in shown)]
        if step["read_back"]["requests"]:
            table.append(cells(READ, step["read_back"]))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            first, *others = (
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            yield "  ".join([first, *others])
        yield from _notes(step)
        yield ""
    yield _promises(found)


def _notes(step: dict[str, Any]) -> Iterator[str]:
    everything = step["operations"]["all"]
    others = {status: n for status, n in everything["statuses"].items() if not status.startswith("2")}
    if others or everything["unanswered"]:
        counted = ", ".join(f"{n} x {status}" for status, n in others.items())
        yield f"Not answered as it should be: {counted or 'no status'}, {everything['unanswered']} never answered."
    if everything["retry_after"]["answers"]:
        after = everything["retry_after"]
        longest = f"{after['longest_s']:g} s"
        yield f"{after['answers']} answers said when to come back (at most {longest}); nothing was retried."
    if step["substituted"]:
        yield f"{step['substituted']} deletions were additions, because nothing was left to delete."
    if step["held_up"]:
        yield (
            f"{step['held_up']} requests were due while all {step['connections']} connections were busy; their times "
            "count from then. The server is slower than this rate, or stood still, or --connections is too low."
        )
    client = step["client"]
    if client["is_limit"]:
        yield f"The client is the limit, not the server: {'; '.join(client['reasons'])}."
    else:
        busy = max(one["cpu_share"] + one["waiting_share"] for one in client["processes"])
        yield f"The client is not the limit: its processes were busy at most {busy:.0%} of the time."


def _promises(found: dict[str, Any]) -> str:
    promises = found["read_your_writes"]
    read = promises["samples_read_back"]
    back = (
        "no sample read back, because the key lacks the scope `read`" if read is None else f"{read} samples read back"
    )
    compared = f"{promises['answers_compared']:,} answers compared, {back}"
    if promises["violations"]:
        return f"Read-your-writes was BROKEN {sum(promises['violations'].values())} times ({compared})."
    return f"Read-your-writes held ({compared})."


_COLOURS = {"predict": "#1f6fb4", "add": "#2a9d5c", "delete": "#c8553d", READ: "#8a8a8a"}
# Along the axis a percentile p is at -log10(1 - p/100): each nine has the same width.
_TICKS = {0.0: "0", 1.0: "90", 2.0: "99", 3.0: "99.9"}


def require_plotting() -> None:
    """Say how to get what plots need, before anything is measured.

    Raises
    ------
    LoadTestError
        When it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise LoadTestError("a plot needs matplotlib: pip install 'oubli-server[plot]'") from None


def draw(steps: list[Measured], found: dict[str, Any], path: Path) -> None:
    """Draw a load test into a PNG file.

    Parameters
    ----------
    steps
        What was measured.
    found
        Its report.
    path
        The file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplot_mosaic([["times", "rates"], ["percentiles", "percentiles"]])
    left, right, by_percentile = places["times"], places["rates"], places["percentiles"]
    start = 0.0
    for step in found["steps"]:
        if not step["is_warm_up"]:
            _draw_seconds(left, right, step, start)
            start += step["seconds"]
    left.set(title="p99 (line) and p50 (dotted) of each second", xlabel="seconds", ylabel="milliseconds", yscale="log")
    right.set(title="answers a second", xlabel="seconds", ylim=(0, None))
    counted = [one for one in steps if not one.step.is_warm_up]
    for number, measured in enumerate(counted):
        _draw_percentiles(by_percentile, measured, 1 - 0.6 * number / max(1, len(counted)), with_load=len(counted) > 1)
    by_percentile.set(title="times by percentile", xlabel="percent of requests", ylabel="milliseconds", yscale="log")
    by_percentile.set_xticks(list(_TICKS), list(_TICKS.values()))
    for axes in (left, right, by_percentile):
        axes.grid(visible=True, alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    figure.suptitle(f"{found['url']}: {found['model']['kind']}, {found['model']['n_samples']:,} samples")
    figure.savefig(path, format="png", dpi=120)


def _draw_seconds(left: Any, right: Any, step: dict[str, Any], start: float) -> None:
    names = [name for name in (*_COLOURS,) if any(name in part["operations"] for part in step["timeline"])]
    for name in names:
        parts = [part for part in step["timeline"] if (part["operations"].get(name) or {}).get("latency_ms")]
        at = [start + part["begin"] for part in parts]
        figures = [part["operations"][name] for part in parts]
        label = name if name not in left.get_legend_handles_labels()[1] else None
        left.plot(at, [one["latency_ms"]["p99"] for one in figures], ".-", color=_COLOURS[name], label=label)
        left.plot(at, [one["latency_ms"]["p50"] for one in figures], ":", color=_COLOURS[name])
        right.plot(at, [one["rate"] for one in figures], ".-", color=_COLOURS[name], label=label)


def _draw_percentiles(axes: Any, measured: Measured, alpha: float, *, with_load: bool) -> None:
    for name, operation in measured.record.operations.items():
        places = [place / 20 for place in range(61)]
        shown = [place for place in places if 10**place <= max(operation.durations.n, 1)]
        times = [operation.durations.percentile(100 * (1 - 10**-place)) / 1e6 for place in shown]
        label = f"{name}, {measured.step}" if with_load else name
        axes.plot(shown, times, color=_COLOURS[name], alpha=alpha, label=label)
