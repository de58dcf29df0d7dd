"""Online streams of adds, deletes and queries in four mixtures (the paper's Table 8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.paper.figures import COLOURS, figure
from benchmarks.paper.sets import Split, ready_copy
from benchmarks.problems import WARM_UP_ROWS
from benchmarks.results import Row
from benchmarks.timing import cpu_seconds, per_call
from oubli.core import DynamicForestClassifier

NAME = "online"
TITLE = "online streams"
TEXT = (
    "Requests in random order, each sent after the answer to the one before. Higgs-like with the parameters of "
    "`fast`; mixtures are adds : deletes : queries. Wall time of each request, one thread in all scenarios (the "
    "paper uses 25 in the last three). scikit-learn has to retrain after every change, so that a change costs it "
    "one fit of 10 trees. *Changes in a retraining*: how many of our adds and deletes, at their mean time, fit into "
    "the fastest such fit."
)
HEAD = (
    "scenario:",
    "mixture",
    "requests",
    "add us",
    "delete us",
    "query us",
    "query p99 us",
    "ExtraTrees change s",
    "ExtraTrees query us",
    "RandomForest change s",
    "RandomForest query us",
    "changes in a retraining",
)
MIXTURES = {"1": (1, 1, 2), "2": (1, 1, 8), "3": (1, 1, 18), "4": (1, 1, 98)}
PEERS = ("ExtraTrees", "RandomForest")
_ADD, _DELETE, _QUERY = range(3)


@dataclass(frozen=True)
class Scenario:
    """Wall seconds of each request, by what it was."""

    name: str
    adds: npt.NDArray[np.float64]
    deletes: npt.NDArray[np.float64]
    queries: npt.NDArray[np.float64]

    @property
    def n_requests(self) -> int:
        """Requests in all."""
        return len(self.adds) + len(self.deletes) + len(self.queries)

    @property
    def change(self) -> float:
        """Seconds of an add or a delete on average."""
        return float(np.concatenate([self.adds, self.deletes]).mean())


@dataclass(frozen=True)
class Found:
    """The scenarios, and what a fit and a query take scikit-learn, in CPU seconds."""

    scenarios: list[Scenario]
    fits: dict[str, float]
    queries: dict[str, float]


def measure(split: Split, n_requests: int) -> Found:
    """Run each scenario on a copy of one model."""
    small = split.forest().fit(split.X[:WARM_UP_ROWS], split.y[:WARM_UP_ROWS])
    _run("warm-up", small, split, np.array([_ADD, _DELETE, _QUERY] * 5))
    forest = split.forest().fit(split.X, split.y)
    scenarios = []
    for seed, (name, weights) in enumerate(MIXTURES.items()):
        counts = [max(10, round(n_requests * weight / sum(weights))) for weight in weights]
        requests = np.random.default_rng(seed).permutation(np.repeat([_ADD, _DELETE, _QUERY], counts))
        scenarios.append(_run(name, ready_copy(forest), split, requests))
    fits, queries = {}, {}
    for name, estimator in split.peers().items():
        fits[name] = cpu_seconds(partial(estimator.fit, split.X, split.y))
        queries[name] = per_call(estimator.predict_proba, [split.X_test[i : i + 1] for i in range(20)])
    return Found(scenarios, fits, queries)


def _run(name: str, forest: DynamicForestClassifier, split: Split, requests: npt.NDArray[np.int64]) -> Scenario:
    """Answer the requests one by one; samples of the first fit are deleted, test rows added and asked about."""
    random = np.random.default_rng(len(requests))
    rows = random.integers(0, len(split.y_test), len(requests)).tolist()
    doomed = random.permutation(forest.n_samples_).tolist()
    seconds: dict[int, list[float]] = {_ADD: [], _DELETE: [], _QUERY: []}
    for request, row in zip(requests.tolist(), rows, strict=True):
        x, y = split.X_test[row : row + 1], split.y_test[row : row + 1]
        work: Callable[[], object]
        if request == _ADD:
            work = partial(forest.add, x, y)
        elif request == _DELETE:
            work = partial(forest.delete, str(doomed.pop()))
        else:
            work = partial(forest.predict_proba, x)
        started = time.perf_counter()
        work()
        seconds[request].append(time.perf_counter() - started)
    return Scenario(name, *(np.array(seconds[kind]) for kind in (_ADD, _DELETE, _QUERY)))


def rows(found: Found) -> list[Row]:
    """One row a scenario."""
    table = []
    for one in found.scenarios:
        ours = [one.adds.mean(), one.deletes.mean(), one.queries.mean(), np.quantile(one.queries, 0.99)]
        theirs = [cell for peer in PEERS for cell in (f"{found.fits[peer]:.2f}", f"{1e6 * found.queries[peer]:.0f}")]
        mixture = " : ".join(map(str, MIXTURES[one.name]))
        cells = (one.name, mixture, f"{one.n_requests:,}", *(f"{1e6 * value:.1f}" for value in ours), *theirs)
        table.append(Row(cells, min(found.fits.values()) / one.change))
    return table


def draw(found: Found, path: Path) -> None:
    """Bars of the mean latency of each kind of request, by mixture; the peers' change as level lines."""
    with figure(path, ["higgs-like"], "adds : deletes : queries", "mean latency, s") as (axis,):
        places = np.arange(len(found.scenarios))
        kinds = {
            "add": [one.adds.mean() for one in found.scenarios],
            "delete": [one.deletes.mean() for one in found.scenarios],
            "query": [one.queries.mean() for one in found.scenarios],
        }
        for number, ((kind, values), alpha) in enumerate(zip(kinds.items(), (1.0, 0.7, 0.4), strict=True)):
            offset = 0.27 * (number - 1)
            axis.bar(places + offset, values, 0.25, color=COLOURS["oubli"], alpha=alpha, label=f"oubli, {kind}")
        for peer in PEERS:
            axis.axhline(found.fits[peer], color=COLOURS[peer], linestyle="--", label=f"{peer}, a change (refit)")
        axis.set_yscale("log")
        axis.set_xticks(places, [":".join(map(str, MIXTURES[one.name])) for one in found.scenarios])
