"""The result of a load test as a picture: times and rates by second, and times by percentile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oubli.client.load.controller import Measured
from oubli.client.load.plan import READ, LoadTestError

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
