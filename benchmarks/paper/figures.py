"""Plots in one style, written without a display."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

# Ours and the peers look the same in every plot.
COLOURS = {
    "oubli": "#0b6e4f",
    "oubli, retrained": "#7bc8a4",
    "ExtraTrees": "#d1495b",
    "RandomForest": "#edae49",
}


@contextmanager
def figure(path: Path, titles: Sequence[str], x_label: str, y_label: str) -> Iterator[Sequence[Any]]:
    """Give the axes of a row of plots, one a title, and write the file at the end."""
    width = 6.5 if len(titles) == 1 else 4.6 * len(titles)
    drawing, axes = plt.subplots(1, len(titles), figsize=(width, 3.6), squeeze=False)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title)
        axis.set_xlabel(x_label)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel(y_label)
    try:
        yield axes[0]
        handles, labels = axes[0][0].get_legend_handles_labels()
        drawing.tight_layout()
        columns = 3 if len(titles) == 1 else 4
        drawing.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=columns, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    finally:
        plt.close(drawing)
