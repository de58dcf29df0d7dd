"""Histories of every kind that must end the same however the kernels are run.

`python -m tests.process.core.smoke` prints what came of them.
"""

import sys

import numpy as np

from tests.histories.kinds import BY_NAME
from tests.histories.player import play

HISTORIES = {"forest": 6, "tree": 6, "quantised": 1, "presorted": 2, "online": 2}


def run() -> list[str]:
    """Play, which compares after every operation, and return what the models are at the end."""
    told = []
    with np.errstate(all="ignore"):  # interpreted, the hashes' overflow would warn
        for name, n in HISTORIES.items():
            for seed in range(n):
                model = play(BY_NAME[name], BY_NAME[name].random_history(seed, 8, 30)).model
                told.append(f"{name} {seed} {model.n_samples_} {model.digest()}")
    return told


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(run()))
