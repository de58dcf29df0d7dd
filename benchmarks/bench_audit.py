"""Measure what an audit costs beside the fit that it makes: `python -m benchmarks.bench_audit`.

    python -m benchmarks.bench_audit [--data DIR] [--quick] [--rounds 5] [--only forest boosting] [--write-results]

A server tells the state of a model of Adult, and gives out its samples with openings; `oubli audit` reads the files,
makes the root over the samples, fits and compares; of the forest also with a few trees only. Root and digests must be
equal, or the script stops.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from starlette.testclient import TestClient

from benchmarks import sections
from benchmarks.problems import Problem, load_problem, warm_up
from benchmarks.results import Row, at_most, shown
from benchmarks.sections import Bench, Section
from benchmarks.timing import median
from oubli.app.cli.audit import check_samples
from oubli.app.cli.audit_fits import check_model, draw, fit, grow
from oubli.app.http.app import create_app
from oubli.app.ledger.downloads import read_object
from oubli.app.service.build import compose, open_nothing
from oubli.app.settings import Settings
from oubli.core import IncrementalBoostingClassifier
from oubli.verifier import check_state, check_trees, read_policy

DATA_SET = "adult-native"
HEAD = ("model:", "samples", "fit s", "samples, root and fit s", "digest s", "audit s", "audit by fit")
TEXT = (
    "Adult as it is, with the defaults. The fit is `fit` on a DataFrame. The audit is what `oubli audit` does, in this "
    "process: it checks the proof of the state, reads {pages} pages of JSON, fits the samples while a thread "
    "makes the root over them, and makes the digest. Medians of {rounds} rounds, in turn."
)
FEW_TEXT = (
    " With {few} trees it grows as many of the 100 in place of a fit (`oubli audit --trees {few}`), and compares their "
    "digests; its figure is by the fit of all trees."
)
FEW = 10  # trees
EXPORT, STATE, POLICY = Path("export.jsonl"), Path("state.json"), Path("policy")
PAGE = 1000


@dataclass(frozen=True)
class Audits(Bench):
    """What is measured."""

    group: ClassVar[str] = "audit"

    rounds: int
    n_rows: int | None


@dataclass(frozen=True)
class Seconds:
    """Of one audit, by its parts."""

    samples: float
    digest: float

    @property
    def total(self) -> float:
        """Of all parts."""
        return self.samples + self.digest


def write_files(model: Any) -> int:
    """Have a server give out what an audit needs, into the current folder; return how many pages there are."""
    service = compose(open_nothing().begin(model), idle_resolve=False)
    app = create_app(Settings(), service)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.05)
        index, pages, cursor = client.post("/model/states").json()["index"], list[Any](), ""
        while cursor is not None:
            found = client.get(f"/samples?openings=true&limit={PAGE}{cursor and '&cursor=' + cursor}")
            pages.append(found.json())
            cursor = pages[-1]["next"]
        EXPORT.write_text("".join(json.dumps(page) + "\n" for page in pages), encoding="utf-8")
        STATE.write_bytes(client.get(f"/model/states/{index}?trees=true").content)
        keys = client.get("/ledger/keys").json()["keys"]
        POLICY.write_text("".join(f"log {key['log_key']}\n" for key in keys) + "quorum none\n", encoding="utf-8")
    return len(pages)


def audit(n_trees: int | None = None) -> Seconds:
    """Audit the files in the current folder, with all trees or with so many."""
    started = time.perf_counter()
    state = check_state(read_object(STATE), read_policy(POLICY.read_bytes()))
    if n_trees is None:
        _, model = check_samples(EXPORT, state, partial(fit, checked=state))
        learned = time.perf_counter()
        if model is None:
            raise RuntimeError("nothing was fitted")
        check_model(model, state)
    else:
        drawn = draw(state, n_trees)
        _, some = check_samples(EXPORT, state, partial(grow, checked=state, drawn=drawn))
        learned = time.perf_counter()
        if some is None:
            raise RuntimeError("nothing was grown")
        check_trees(state, some.header, drawn.n_trees, some.digests)
    return Seconds(learned - started, time.perf_counter() - learned)


def section(
    bench: Audits, title: str, new: Callable[[Problem], Any], audits: Mapping[str, int | None], text: str = TEXT
) -> Section:
    """Fit and audit in turn; audits by their names in the table, with the trees of each."""
    problem = load_problem(DATA_SET, bench.data, bench.cache, bench.n_rows)
    warm_up(problem, "defaults")
    fits, made = list[float](), {name: list[Seconds]() for name in audits}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        n_pages = write_files(new(problem))
        for _ in range(bench.rounds + 1):  # the first is to warm up
            started = time.perf_counter()
            new(problem)
            fits.append(time.perf_counter() - started)
            for name, n_trees in audits.items():
                made[name].append(audit(n_trees))
    fit_seconds = median(fits[1:])
    rows = []
    for name, (_, *counted) in made.items():
        parts = [median(getattr(one, part) for one in counted) for part in ("samples", "digest", "total")]
        cells = (name, f"{len(problem.y):,}", *map(shown, (fit_seconds, *parts)))
        rows.append(Row(cells, parts[-1] / fit_seconds, at_most(2.0 if audits[name] is None else 1.0)))
    return Section(f"Audit: {title}", text.format(pages=n_pages, rounds=bench.rounds, few=FEW), HEAD, rows)


def forest(bench: Audits) -> Section:
    """The forest."""
    audits = {"forest": None, f"forest, {FEW} trees": FEW}
    return section(bench, "forest", lambda problem: problem.fit(problem.forest("defaults")), audits, TEXT + FEW_TEXT)


def boosting(bench: Audits) -> Section:
    """Incremental boosting."""

    def new(problem: Problem) -> Any:
        return IncrementalBoostingClassifier(random_state=0).fit(
            problem.X, problem.y, categorical_features=problem.categorical
        )

    return section(bench, "incremental boosting", new, {"incremental boosting": None})


QUESTIONS = {"forest": forest, "boosting": boosting}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions."""
    options = sections.parse(
        __doc__, list(QUESTIONS), arguments, lambda parser: parser.add_argument("--rounds", type=int, default=5)
    )
    rounds, n_rows = (1, 2_000) if options.quick else (options.rounds, None)
    sections.ask(QUESTIONS, Audits(*sections.folders(options), rounds, n_rows), options)


if __name__ == "__main__":
    main()
