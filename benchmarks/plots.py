"""The plots of `RESULTS.md` and of the pages in `results/`, drawn from the tables: `python -m benchmarks plots`.

Each plot reads its figures from the tables of the pages, so that the two cannot disagree. The file says from which
tables it was drawn, with a checksum that a test compares. Lines carry their names, ours are coloured and told apart by
their markers, and all colours stand out from a light and from a dark page.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from benchmarks.results import FIGURES, rows_of, shown

INK = "#7b7b7b"  # 4.2 to 1 on white, 4.4 to 1 on #0d1117
BLUE = "#1f8fd6"
ORANGE = "#d55e00"
NAN = float("nan")
LIKE_FOR_LIKE = {"dare-rf": "as ours"}
STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "oubli",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
}


@dataclass(frozen=True)
class Series:
    """A system: its figures by line, and the line at which its name stands (None: nowhere)."""

    name: str
    values: Sequence[float]
    marker: str
    colour: str = INK
    filled: bool = True
    named_at: int | None = 0
    name_below: bool = False


@dataclass(frozen=True)
class Dots:
    """A plot of dots on lines."""

    title: str
    x_label: str
    lines: Sequence[str]
    series: Sequence[Series]
    logarithmic: bool = False
    reference: tuple[float, str] | None = None  # where a vertical line stands, and its name
    with_values: bool = False


@dataclass(frozen=True)
class Plot:
    """What a plot reads, and how it is made of that."""

    sections: tuple[str, ...]
    make: Callable[[], Dots]


def number(cell: str) -> float:
    """A figure as the tables print it."""
    return float(cell.replace(",", "").split(" ")[0])


def figure(section: str, heading: str, **cells: str) -> float:
    """The figure under a heading in the first row of a table that has these cells."""
    return number(next(row for row in rows_of(section) if cells.items() <= row.items())[heading])


def connections(row: Mapping[str, str]) -> str:
    """The number of connections in words."""
    return f"{row['connections']} connection" + ("" if row["connections"] == "1" else "s")


def listed(entries: Sequence[tuple[str, float, str]]) -> tuple[list[str], list[Series]]:
    """Lines of one dot each; the colour says whose it is."""
    names, values, colours = zip(*entries, strict=True)
    series = [
        Series(
            colour,
            [v if c == colour else NAN for v, c in zip(values, colours, strict=True)],
            marker,
            colour,
            named_at=None,
        )
        for colour, marker in ((BLUE, "o"), (ORANGE, "D"), (INK, "s"))
    ]
    return list(names), series


def deleting() -> Dots:
    """One sample deleted from Adult, one-hot."""
    data = "adult-one-hot"
    mutations = {"data": data, "setting": "fast"}
    names, series = listed(
        [
            ("forest, lazily", figure("operations-mutations", "ms", operation="delete, lazily", **mutations), BLUE),
            (
                "forest, with the deferred work",
                figure("operations-dare", "our delete ms", ours="lazily, with what is owed", **LIKE_FOR_LIKE),
                BLUE,
            ),
            ("forest, eagerly", figure("operations-mutations", "ms", operation="delete, eagerly", **mutations), BLUE),
            ("online boosting", figure("boosting-update", "ms", data=data, operation="delete", batch="1"), BLUE),
            ("incremental boosting", figure("boosting-exact", "ms", data=data, operation="delete", batch="1"), BLUE),
            ("DaRE (dare-rf), same parameters", figure("operations-dare", "its delete ms", **LIKE_FOR_LIKE), INK),
            ("LightGBM, trained again", figure("boosting-update", "LightGBM ms", data=data, batch="1"), INK),
            ("ExtraTrees, trained again", 1e3 * figure("operations-training", "peer s", **mutations), INK),
        ]
    )
    return Dots("Deleting one sample from Adult", "CPU ms (logarithmic)", names, series, True, with_values=True)


def accuracy() -> Dots:
    """Forests beside scikit-learn's."""
    rows = [row for row in rows_of("accuracy") if row["gap oubli"] and "**" not in row["gap oubli"]][:8]
    return Dots(
        "Forests: accuracy beside the better of RandomForest and ExtraTrees",
        "points of AUC, accuracy or R2; right of the line is better",
        [f"{row['data set']} ({row['metric']})" for row in rows],
        [
            Series("Oubli", [number(row["gap oubli"]) for row in rows], "o", BLUE, named_at=5),
            Series("Oubli, q = 0.1", [number(row["gap oubli q=0.1"]) for row in rows], "D", ORANGE, named_at=5),
        ],
        reference=(0.0, "better of the two"),
    )


def boosting_error() -> Dots:
    """Boosted trees beside the best of three peers."""
    rows = rows_of("boosting-error")
    sets = list(dict.fromkeys(row["data"] for row in rows))
    kinds = (
        ("online boosting", "online-boosting", "o", BLUE),
        ("incremental boosting", "incremental-boosting", "D", ORANGE),
    )
    return Dots(
        "Boosting: test error beside the best of LightGBM, XGBoost and CatBoost",
        "points of error; left of the line is better",
        [name.removesuffix(", MSE") for name in sets],
        [
            Series(
                name,
                [figure("boosting-error", "gap", data=data, kind=kind) for data in sets],
                marker,
                colour,
                named_at=8,
                name_below=kind.startswith("online"),
            )
            for name, kind, marker, colour in kinds
        ],
        reference=(0.0, "best of the three"),
    )


def predicting() -> Dots:
    """One row of Adult from Python."""
    forest, boosted = {"data": "adult-native", "setting": "fast"}, {"data": "adult", "kind": "incremental-boosting"}
    names, series = listed(
        [
            ("incremental boosting", figure("boosting-prediction", "us a row", system="oubli", **boosted), BLUE),
            ("forest", figure("operations-prediction", "us a row", system="oubli", **forest), BLUE),
            (
                "online boosting",
                figure("boosting-prediction", "us a row", data="adult", kind="online-boosting", system="oubli"),
                BLUE,
            ),
            (
                "LightGBM, Booster",
                figure("boosting-prediction", "us a row", system="LightGBM, Booster", **boosted),
                INK,
            ),
            ("CatBoost", figure("boosting-prediction", "us a row", system="CatBoost", **boosted), INK),
            ("XGBoost", figure("boosting-prediction", "us a row", system="XGBoost", **boosted), INK),
            ("LightGBM, estimator", figure("boosting-prediction", "us a row", system="LightGBM", **boosted), INK),
            ("ExtraTrees", figure("operations-prediction", "us a row", system="ExtraTrees(100)", **forest), INK),
        ]
    )
    return Dots(
        "Predicting one row of Adult from Python", "CPU us (logarithmic)", names, series, True, with_values=True
    )


def requests() -> Dots:
    """Predictions over HTTP."""
    rows = [row for row in rows_of("http-rates") if row["setting"] == "fast"]
    rows.sort(key=lambda row: -int(row["connections"]))
    return Dots(
        "HTTP: requests for one prediction a second, one core",
        "requests a second",
        [f"{row['data'].removesuffix('-native')}, {connections(row)}" for row in rows],
        [
            Series("Oubli", [number(row["ours"]) for row in rows], "o", BLUE),
            Series("plain FastAPI, no model", [number(row["FastAPI"]) for row in rows], "s"),
            Series("bare ASGI, no model", [number(row["bare ASGI"]) for row in rows], "s", filled=False),
        ],
    )


def streams() -> Dots:
    """The tree beside river's."""
    rows = {(row["stream"], row["learner"]): row for row in rows_of("tree-streams")}
    names = ["covtype", "electricity", "weather", "covtype, first 20,000", "SEA", "hyperplane"]
    learners = (
        ("Oubli, window 1000", "oubli, window 1000", "o", BLUE),
        ("HAT", "HAT", "s", INK),
        ("EFDT", "EFDT", "^", INK),
        ("ARF (10 trees)", "ARF(10)", "D", INK),
    )
    return Dots(
        "Streams: F1 of a single tree, each sample predicted and then learned",
        "F1, %; right is better",
        names,
        [
            Series(
                name,
                [number(rows[stream, learner]["F1"]) for stream in names],
                marker,
                colour,
                name_below=name.startswith("Oubli"),
            )
            for name, learner, marker, colour in learners
        ],
    )


def updates() -> Dots:
    """Boosted updates beside LightGBM training."""
    rows = rows_of("boosting-update")
    sets = list(dict.fromkeys(row["data"] for row in rows))
    exact = {row["data"] for row in rows_of("boosting-exact")}
    one = {"operation": "delete", "batch": "1"}

    batches = {row["data"]: row["batch"] for row in rows if row["batch"].startswith("1.0%")}

    return Dots(
        "Boosting: a deletion beside LightGBM training from scratch",
        "times faster (logarithmic)",
        sets,
        [
            Series(
                "online, 1 sample",
                [figure("boosting-update", "times faster", data=s, **one) for s in sets],
                "o",
                BLUE,
                named_at=1,
            ),
            Series(
                "online, 1 %",
                [figure("boosting-update", "times faster", data=s, operation="delete", batch=batches[s]) for s in sets],
                "o",
                BLUE,
                filled=False,
                named_at=1,
            ),
            Series(
                "incremental, 1 sample",
                [figure("boosting-exact", "times faster", data=s, **one) if s in exact else NAN for s in sets],
                "D",
                ORANGE,
                named_at=1,
                name_below=True,
            ),
        ],
        logarithmic=True,
    )


def waiting() -> Dots:
    """Queries in a stream of changes."""
    data = [("higgs-like", "higgs-like"), ("adult-one-hot", "Adult, one-hot"), ("adult-native", "Adult")]
    cases = [(key, name, stream) for stream in ("back to back", "with idle time") for key, name in data]

    def of(heading: str, what: str) -> list[float]:
        return [
            figure("operations-stream", heading, data=key, setting="fast", stream=stream, figure=what)
            for key, _, stream in cases
        ]

    return Dots(
        "A prediction that follows an addition or a deletion",
        "microseconds (logarithmic)",
        [f"{name}, {stream}" for _, name, stream in cases],
        [
            Series("no work deferred", of("untagged us", "mean"), "s"),
            Series("mean", of("us", "mean"), "o", BLUE),
            Series("99th percentile", of("us", "p99"), "o", BLUE, filled=False),
        ],
        logarithmic=True,
    )


def durability() -> Dots:
    """What a durable answer costs."""
    rows = sorted(rows_of("durability-rates"), key=lambda row: (-int(row["connections"]), row["setting"] != "fast"))
    return Dots(
        "Durability: changes a second with and without a journal",
        "changes a second",
        [f"{row['route'].split(' ')[0]}, {row['setting']}, {connections(row)}" for row in rows],
        [
            Series("durable", [number(row["durable"]) for row in rows], "o", BLUE),
            Series("no journal (--ephemeral)", [number(row["`--ephemeral`"]) for row in rows], "s", name_below=True),
        ],
    )


def membership() -> Dots:
    """What a membership attack sees of deleted samples."""
    rows = [row for row in rows_of("boosting-membership") if row["kind"] == "online-boosting"]
    rows.sort(key=lambda row: (row["parameters"] == "paper", row["data"]))
    return Dots(
        "Online boosting: how sure an attack is that a sample was learned",
        "mean probability of membership, %",
        [f"{row['data']}, parameters: {row['parameters']}" for row in rows],
        [
            Series("while learned", [number(row["fitted: samples %"]) for row in rows], "s"),
            Series("deleted", [number(row["deleted: samples %"]) for row in rows], "o", BLUE, name_below=True),
            Series("never learned", [number(row["never: samples %"]) for row in rows], "s", filled=False),
        ],
    )


def scaling() -> Dots:
    """What an operation costs at a thousand and at a million samples."""
    rows = [row for row in rows_of("paper-scaling") if "owed" not in row["operation"]]
    units = {"us": 1e-3, "ms": 1.0, "s": 1e3}

    def milliseconds(cell: str) -> float:
        value, unit = cell.split(" ")
        return float(value) * units[unit]

    return Dots(
        "What an operation costs at a thousand and at a million samples",
        "CPU ms (logarithmic)",
        [row["operation"].replace(", fit", " (10 trees), fit") for row in rows],
        [
            Series("1,000", [milliseconds(row["n = 1,000"]) for row in rows], "o", BLUE, filled=False),
            Series("1,000,000 samples", [milliseconds(row["n = 1,000,000"]) for row in rows], "o", BLUE),
        ],
        logarithmic=True,
    )


def presorted() -> Dots:
    """Batches without quantisation."""
    rows = rows_of("igbdt-batch-size")
    faster, share = ([row for row in rows if row["beside"] == what] for what in ("times faster", "share of own fit"))
    return Dots(
        "Presorted boosting: adding a batch beside training from scratch",
        "times faster (logarithmic)",
        [f"{row['data']}, {row['what']}" for row in faster],
        [
            Series("than our own fit", [1 / number(row["figure"]) for row in share], "o", BLUE),
            Series("than sorting at every node", [number(row["figure"]) for row in faster], "s"),
        ],
        logarithmic=True,
    )


def flipped_labels() -> Dots:
    """Finding flipped labels."""
    rows = [row for row in rows_of("influence-noise") if row["ranked"] == "all samples"]
    methods = (
        ("AllPoints", "LeafInfluence, AllPoints", "o", BLUE, True),
        ("SinglePoint", "LeafInfluence, SinglePoint", "o", BLUE, False),
        ("the model's probability", "Detector", "s", INK, True),
    )
    sets = list(dict.fromkeys(row["data"] for row in rows))
    return Dots(
        "Influence: finding flipped labels among all training samples",
        "ROC-AUC; right is better",
        sets,
        [
            Series(
                name,
                [number(row["ROC-AUC"]) for row in rows if row["by"] == method],
                marker,
                colour,
                filled,
                name_below=name == "AllPoints",
            )
            for name, method, marker, colour, filled in methods
        ],
    )


PLOTS: dict[str, Plot] = {
    "delete-one": Plot(
        ("operations-mutations", "operations-dare", "operations-training", "boosting-update", "boosting-exact"),
        deleting,
    ),
    "accuracy": Plot(("accuracy",), accuracy),
    "boosting-error": Plot(("boosting-error",), boosting_error),
    "predict-one": Plot(("operations-prediction", "boosting-prediction"), predicting),
    "http": Plot(("http-rates",), requests),
    "tree-f1": Plot(("tree-streams",), streams),
    "boosting-deletions": Plot(("boosting-update", "boosting-exact"), updates),
    "waiting": Plot(("operations-stream",), waiting),
    "durability": Plot(("durability-rates",), durability),
    "membership": Plot(("boosting-membership",), membership),
    "sizes": Plot(("paper-scaling",), scaling),
    "presorted": Plot(("igbdt-batch-size",), presorted),
    "flipped-labels": Plot(("influence-noise",), flipped_labels),
}


def source_of(plot: Plot) -> str:
    """The tables that a plot is drawn from, with their checksum."""
    rows = json.dumps([rows_of(name) for name in plot.sections], sort_keys=True)
    return f"Drawn from {', '.join(plot.sections)}; sha256 {hashlib.sha256(rows.encode()).hexdigest()}"


def draw(dots: Dots, path: Path, source: str) -> None:
    """Draw a plot and write it."""
    with plt.rc_context(STYLE):
        drawing, axis = plt.subplots(figsize=(7.6, 0.36 * len(dots.lines) + 1.3))
        places = range(len(dots.lines))
        axis.set_yticks(places, dots.lines)
        axis.set_ylim(len(dots.lines) - 0.4, -0.9)
        if dots.reference is not None:
            at, name = dots.reference
            axis.axvline(at, color=INK, linewidth=1.2)
            axis.annotate(name, (at, -0.9), (4, -2), textcoords="offset points", va="top", fontsize=9)
        if dots.logarithmic:
            axis.set_xscale("log")
        for one in dots.series:
            face = one.colour if one.filled else "none"
            axis.plot(
                one.values,
                places,
                one.marker,
                color=one.colour,
                markerfacecolor=face,
                markersize=7,
                markeredgewidth=1.5,
            )
            if one.named_at is not None:
                spot, shift = (one.values[one.named_at], one.named_at), (0, -14 if one.name_below else 7)
                axis.annotate(
                    one.name, spot, shift, textcoords="offset points", ha="center", color=one.colour, fontsize=9
                )
            if dots.with_values:
                for place, value in zip(places, one.values, strict=True):
                    if not math.isnan(value):
                        axis.annotate(shown(value), (value, place), (8, -3.5), textcoords="offset points", fontsize=9)
        axis.margins(x=0.1)
        low, high = axis.get_xlim()
        ends = [max(one.values[place] for one in dots.series if not math.isnan(one.values[place])) for place in places]
        axis.hlines(places, low, ends if dots.with_values else high, color=INK, linewidth=0.6, alpha=0.35, zorder=0)
        axis.set_xlim(low, high)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.set_xlabel(dots.x_label)
        axis.set_title(dots.title, x=0, fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None, "Description": source} if path.suffix == ".svg" else {}
        drawing.savefig(path, bbox_inches="tight", transparent=True, metadata=metadata)
        plt.close(drawing)


def main(folder: Path = FIGURES, suffix: str = "svg") -> None:
    """Draw all plots."""
    for name, plot in PLOTS.items():
        draw(plot.make(), folder / f"{name}.{suffix}", source_of(plot))


if __name__ == "__main__":
    main()
