"""Draw the pictures of explanations in docs/images with shap's own plots, from a forest on the example data.

    python docs/scripts/explanations.py

It needs the package shap.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import shap

from oubli import DynamicForestClassifier

DOCS = Path(__file__).resolve().parent.parent
EXAMPLE = DOCS.parent / "examples" / "adult.csv.gz"
ROWS, HIGH = 500, 1  # of the rows that are explained; and the class, in the order of the classes
SHOWN = 8


def main() -> None:
    """Draw what drives the answers for many rows, and for one."""
    frame = pd.read_csv(EXAMPLE)
    X, y = frame.drop(columns="income"), frame["income"]
    model = DynamicForestClassifier(random_state=0).fit(X, y)
    found = shap.Explanation(**model.shap_values(X.iloc[:ROWS])._asdict())
    shap.plots.beeswarm(found[..., HIGH], max_display=SHOWN, show=False)
    _save("explanation-many.png")
    shap.plots.waterfall(found[7, :, HIGH], max_display=SHOWN, show=False)
    _save("explanation-one.png")


def _save(name: str) -> None:
    plt.gcf().set_size_inches(8, 4.5)
    plt.savefig(DOCS / "images" / name, dpi=100, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    plt.close()


if __name__ == "__main__":
    main()
