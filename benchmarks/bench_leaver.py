"""Measure what answers show of the one who left: attacks by somebody who can ask before and after a deletion.

    python -m benchmarks.bench_leaver [--data DIR] [--quick] [--leavers 60] [--only forest low] [--sets adult heart]
        [--dare-python FILE] [--write-results]

The attacker has a list of candidates of whom one was deleted, with their rows and labels, and asks without limit. Each
candidate gets a score, and the one with the highest is named.

    own row      the change of the candidate's own row
    copies       the changes of eight rows that differ from it by a hundredth of a standard deviation, together
    neighbours   the changes of the eight nearest rows that the model never learned, together

A change is the largest one of a class probability, or what the probability of the candidate's label has lost; the
strongest of an attack's ways counts. *Learned* is a logistic regression over all six numbers, fitted on the other
half of the deletions; one over the two numbers of the own row is a way to attack that. *Of 100* is the share of
deletions of which the leaver is named, of candidates that were members; AUC compares the leaver's score with those of
100 rows that were never learned; *at 0.1 %* is the share of leavers above all but a thousandth of these. *Versions*
repeats the attack on own rows and copies with means over several versions before and after, between which other
samples came and went. *Batch* deletes 50 of 100 candidates at once, and is the share of leavers among the 50 with the
highest scores.

*Explained* compares what the candidates' own rows show when their probabilities are asked for, and when `/explain` is:
the largest change of an attribution, or the sum of all changes.

*Costs* compares low disclosure with the defaults: CPU time in one process, in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks import sections
from benchmarks.boosting.datasets import Split, load_split
from benchmarks.leaver_dare import DareForest
from benchmarks.results import Mark, Row, at_most
from benchmarks.sections import Bench, Section
from benchmarks.timing import cpu_seconds, per_call
from oubli.core import (
    DynamicForestClassifier,
    DynamicTreeClassifier,
    IncrementalBoostingClassifier,
    OnlineBoostingClassifier,
)

SETS = (
    *("adult", "heart", "purchase", "electricity", "bank", "letter", "covtype-first", "noshow", "vaccine", "weather"),
    *("pendigits", "optdigits"),
)
ROWS = 5_000
CANDIDATES = 100
PROBES = 8  # copies, and neighbours, of a candidate
NOISE = 0.01  # standard deviations that a copy differs by
VERSIONS = 4
HEAD = (
    *("data:", "answers:", "accuracy", "own row of 100", "AUC", "at 0.1 %", "copies of 100", "AUC"),
    *("neighbours of 100", "AUC", "learned of 100", "AUC", "at 0.1 %", "versions of 100", "batch", "own row"),
)
TEXT = (
    "{leavers} deletions of {rows:,} samples at most, one after the other; each sample comes back before the next one "
    "leaves. By chance a leaver is named in 1 % of the cases, the AUC is 0.5 and half of a batch is right."
)

COST_ROUNDS = 30
MOST_DEAR = at_most(3.5)
COSTS_TEXT = (
    "{rows:,} samples at most. CPU time in one process, both forests in turn, medians of {rounds} rounds: 20 "
    "predictions of one row each, and a deletion with all the work that it causes, after which the sample comes back."
)

Reals = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Learner:
    """A model that can be asked with and without some of its rows; a peer is trained again."""

    def __init__(self, make: Callable[[], Any], X: Reals, y: Ints) -> None:
        self.make, self.X, self.y = make, X, y
        self.model = make().fit(X, y)

    def without(self, rows: Ints, ask: Callable[[Any], Any]) -> Any:
        """What is answered when some rows have left; they come back."""
        if not hasattr(self.model, "delete"):
            return ask(self.make().fit(np.delete(self.X, rows, axis=0), np.delete(self.y, rows)))
        names = [str(row) for row in rows]
        self.model.delete(names)
        answer = ask(self.model)
        self.model.add(self.X[rows], self.y[rows], ids=names)
        return answer

    @property
    def depends_on_history(self) -> bool:
        """Whether the model is another one when rows have left and come back."""
        return getattr(self.model, "guarantee", "exact") != "exact"


@dataclass(frozen=True)
class Target:
    """A kind of model under attack, and the marks of the attacks on its probabilities."""

    title: str
    make: Callable[[], Any]
    mark: Mark | None = None


TARGETS = {
    "forest": Target("The forest, defaults", lambda: DynamicForestClassifier(random_state=0)),
    "low": Target(
        'The forest, `disclosure="low"`',
        lambda: DynamicForestClassifier(random_state=0, disclosure="low"),
        at_most(0.1),
    ),
    "boosting": Target("Exact boosting", lambda: IncrementalBoostingClassifier(random_state=0)),
    "online-boosting": Target("Online boosting", lambda: OnlineBoostingClassifier(random_state=0)),
    "tree": Target("The tree", lambda: DynamicTreeClassifier(random_state=0)),
    "scikit-learn": Target("scikit-learn's forest, trained again", lambda: RandomForestClassifier(random_state=0)),
    "lightgbm": Target("LightGBM, trained again", lambda: LGBMClassifier(random_state=0, verbose=-1, n_jobs=1)),
}


@dataclass(frozen=True)
class Leaving(Bench):
    """What the attacker has: data, and how many deletions there are."""

    group: ClassVar[str] = "leaver"
    leavers: int
    rows: int
    sets: Sequence[str]
    dare: Path | None  # an interpreter that has dare-rf


def matrix(X: Any) -> npt.NDArray[np.float32]:
    """A table as numbers, categories as codes."""
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    columns = [
        frame[name].to_numpy(np.float32) if frame[name].dtype.kind in "fiub" else pd.factorize(frame[name])[0]
        for name in frame
    ]
    return np.nan_to_num(np.column_stack(columns).astype(np.float32))


class Attack:
    """An attacker with a list of candidates: members first, then rows that were never learned."""

    def __init__(self, split: Split, target: Target, leavers: int, rows: int) -> None:
        self.rng = np.random.default_rng(0)
        X, first = np.unique(np.vstack([matrix(split.X), matrix(split.X_test)]), axis=0, return_index=True)
        y = np.concatenate([split.y, split.y_test])[first].astype(np.int64)
        order = self.rng.permutation(np.flatnonzero(np.isin(y, np.unique(split.y))))
        n = min(rows, 2 * len(order) // 3)
        self.X, self.y = X[order[:n]], y[order[:n]]
        others, labels = X[order[n : n + rows]], y[order[n : n + rows]]
        self.others, self.labels_of_others = others, labels
        self.learner = Learner(target.make, self.X, self.y)
        self.classes = np.unique(self.y)
        self.members = self.rng.choice(n, min(CANDIDATES, n // 4), replace=False)
        never = self.rng.choice(len(others), min(CANDIDATES, len(others) // 4), replace=False)
        self.leavers = self.members[:leavers]
        self.rows = np.vstack([self.X[self.members], others[never]])
        labels = np.concatenate([self.y[self.members], labels[never]])
        self.probes = np.vstack([self.rows, *self._copies(), *self._neighbours(np.delete(others, never, axis=0))])
        self.place = np.tile(np.searchsorted(self.classes, labels), 1 + 2 * PROBES)

    def _copies(self) -> Iterator[npt.NDArray[np.float32]]:
        step = NOISE * self.X.std(axis=0)
        many = np.array([len(np.unique(column)) > 20 for column in self.X.T])
        step = np.where(many | ~many.any(), step, 0.0)
        for _ in range(PROBES):
            yield (self.rows + step * self.rng.normal(size=self.rows.shape)).astype(np.float32)

    def _neighbours(self, pool: npt.NDArray[np.float32]) -> Iterator[npt.NDArray[np.float32]]:
        scale = self.X.std(axis=0) + 1e-9
        nearest = [np.argsort((((pool - row) / scale) ** 2).sum(axis=1))[:PROBES] for row in self.rows]
        yield from pool[np.array(nearest)].transpose(1, 0, 2)

    def ask(self, model: Any) -> Reals:
        """Probabilities of all probes; a class that has left has none."""
        found = np.zeros((len(self.probes), len(self.classes)))
        found[:, np.searchsorted(self.classes, model.classes_)] = model.predict_proba(self.probes)
        return found

    def changes(self, before: Reals, after: Reals) -> Reals:
        """Six scores of each candidate: largest change and loss of its label, of its own row, copies and neighbours."""
        moved = after - before
        largest = np.abs(moved).max(axis=1)
        lost = -moved[np.arange(len(moved)), self.place]
        parts = [slice(0, 1), slice(1, 1 + PROBES), slice(1 + PROBES, 1 + 2 * PROBES)]
        by_probe = [score.reshape(1 + 2 * PROBES, len(self.rows)) for score in (largest, lost)]
        return np.array([score[part].sum(axis=0) for part in parts for score in by_probe]).T

    def accuracy(self) -> float:
        """Share of other rows with the right label."""
        labels = np.asarray(self.learner.model.predict(self.others))
        return float(np.mean(labels == self.labels_of_others))


def labels_of(probabilities: Reals) -> Reals:
    """Answers of which only the label is used."""
    return (np.arange(probabilities.shape[1]) == probabilities.argmax(axis=1)[:, np.newaxis]).astype(np.float64)


@dataclass(frozen=True)
class Strength:
    """How strong a way is: named of 100, AUC against rows never learned, leavers above all but 0.1 % of these."""

    top: float
    auc: float
    low: float


def strength(scores: Reals, n_members: int) -> Strength:
    """What scores float64[deletions, candidates] achieve; the i-th deletion is that of the i-th candidate."""
    places = np.arange(len(scores))
    own = scores[places, places]
    best = scores[:, :n_members].max(axis=1)
    ties = (scores[:, :n_members] >= best[:, np.newaxis] - 1e-12).sum(axis=1)
    never = scores[:, n_members:]
    above = (own[:, np.newaxis] > never + 1e-12).mean(axis=1) + 0.5 * np.isclose(own[:, np.newaxis], never).mean(axis=1)
    return Strength(
        float(np.mean((own >= best - 1e-12) / ties)),
        float(above.mean()),
        float(np.mean(own > np.quantile(never, 0.999) + 1e-12)),
    )


def strongest(scores: Sequence[Reals], n_members: int) -> Strength:
    """The strongest of several ways, by each figure."""
    found = [strength(one, n_members) for one in scores]
    return Strength(*(max(getattr(one, name) for one in found) for name in ("top", "auc", "low")))


def learned(scores: Reals) -> Reals:
    """Scores float64[deletions, candidates] of a logistic regression over all ways, fitted on the other half."""
    n, found = len(scores), np.zeros(scores.shape[:2])
    leaves = np.eye(n, scores.shape[1], dtype=bool)
    scaled = scores / (scores.std(axis=(0, 1)) + 1e-12)
    for half in (0, 1):
        train = np.arange(n) % 2 != half
        model = LogisticRegression(class_weight="balanced", max_iter=1000)
        model.fit(scaled[train].reshape(-1, scores.shape[2]), leaves[train].ravel())
        asked = scaled[~train]
        found[~train] = model.decision_function(asked.reshape(-1, scores.shape[2])).reshape(asked.shape[:2])
    return found


def over_versions(attack: Attack) -> Iterator[tuple[list[Reals], list[Reals]]]:
    """Answers of several versions before and after some of the deletions; between versions others came and went."""
    n, others = len(attack.X), np.setdiff1d(np.arange(len(attack.X)), attack.members)
    for leaver in attack.leavers[: len(attack.leavers) // 4]:
        away = [attack.rng.choice(others, max(1, n // 200), replace=False) for _ in range(VERSIONS)]
        before = [attack.learner.without(some, attack.ask) for some in away]
        yield before, [attack.learner.without(np.append(some, leaver), attack.ask) for some in away]


def found_in_batch(attack: Attack, n: int, before: Reals, after: Reals) -> float:
    """Share of the leavers among as many with the highest scores, when the first n candidates have left together."""
    scores = attack.changes(before, after)[: 2 * n]
    chance = attack.rng.random(2 * n)  # decides between equal scores
    return max(float(np.mean(np.lexsort((chance, -scores[:, way]))[:n] < n)) for way in range(6))


def attacked(target: Target, split: Split, bench: Leaving) -> Iterator[Row]:
    """Rows of the table of one data set: with probabilities, and with labels alone."""
    attack = Attack(split, target, bench.leavers, bench.rows)
    base, answers, n_members = attack.ask(attack.learner.model), [], len(attack.members)
    for row in attack.leavers:
        before = attack.ask(attack.learner.model) if attack.learner.depends_on_history else base
        answers.append((before, attack.learner.without(np.array([row]), attack.ask)))
    versions, n_batch = list(over_versions(attack)), n_members // 2
    base = attack.ask(attack.learner.model)
    batch = attack.learner.without(attack.members[:n_batch], attack.ask)
    for name, told in (("probabilities", lambda given: given), ("labels", labels_of)):
        scores = np.array([attack.changes(told(before), told(after)) for before, after in answers])
        own, copies, neighbours = (
            strongest([scores[..., 2 * way], scores[..., 2 * way + 1], *more], n_members)
            for way, more in enumerate(([learned(scores[..., :2])], [], []))
        )
        everything = strength(learned(scores), n_members)
        means = [[np.mean([told(one) for one in side], axis=0) for side in sides] for sides in versions]
        by_means = np.array([attack.changes(*sides) for sides in means])
        figures = (
            *(f"{own.top:.0%}", f"{own.auc:.2f}", f"{own.low:.0%}"),
            *(f"{copies.top:.0%}", f"{copies.auc:.2f}", f"{neighbours.top:.0%}", f"{neighbours.auc:.2f}"),
            *(f"{everything.top:.0%}", f"{everything.auc:.2f}", f"{everything.low:.0%}"),
            f"{max(strength(by_means[..., way], n_members).top for way in range(4)):.0%}",
            f"{found_in_batch(attack, n_batch, told(base), told(batch)):.0%}",
        )
        mark = target.mark if name == "probabilities" else None
        yield Row((split.name, name, f"{attack.accuracy():.2%}", *figures), own.top, mark)


def section(target: Target, bench: Leaving, tasks: Sequence[str] = ("binary", "multiclass")) -> Section:
    """What attacks on one kind of model find."""
    rows: list[Row] = []
    for data in bench.sets:
        split = load_split(data, bench.data, bench.cache)
        if split.task in tasks:
            rows += attacked(target, split, bench)
    return Section(target.title, TEXT.format(leavers=bench.leavers, rows=bench.rows), HEAD, rows)


def of_dare(bench: Leaving) -> Section:
    """What attacks on `dare-rf` find."""
    if bench.dare is None:
        raise SystemExit("--only dare needs --dare-python: see benchmarks/README.md")
    python = bench.dare
    return section(Target("DaRE (`dare-rf`), unlearned", lambda: DareForest(python)), bench, ("binary",))


MODES = [
    Target(mode, partial(DynamicForestClassifier, random_state=0, lazy=False, disclosure=mode))
    for mode in ("standard", "low")
]


def costs(bench: Leaving) -> Section:
    """What low disclosure costs, beside the defaults."""
    rows = []
    for data in bench.sets:
        split = load_split(data, bench.data, bench.cache)
        models = [Attack(split, target, 0, bench.rows) for target in MODES]
        found = [[(_prediction(one, turn), _deletion(one, turn)) for one in models] for turn in range(COST_ROUNDS)]
        seconds = np.median(np.array(found), axis=0).T
        for what, (before, low) in zip(("one-row prediction, ms", "eager deletion, ms"), 1e3 * seconds, strict=True):
            rows.append(Row((data, what, f"{before:.3f}", f"{low:.3f}"), low / before, MOST_DEAR))
        before, low = (one.learner.model.nbytes_ for one in models)
        rows.append(Row((data, "memory, MB", f"{before / 1e6:.1f}", f"{low / 1e6:.1f}"), low / before, MOST_DEAR))
    text = COSTS_TEXT.format(rows=bench.rows, rounds=COST_ROUNDS)
    return Section("What low disclosure costs", text, ("data:", "what:", "defaults", "low", "times"), rows)


def _prediction(attack: Attack, turn: int) -> float:
    rows = attack.others[20 * turn : 20 * turn + 20]
    return per_call(attack.learner.model.predict_proba, [row[np.newaxis] for row in rows])


def _deletion(attack: Attack, turn: int) -> float:
    model, row = attack.learner.model, attack.members[turn]
    seconds = cpu_seconds(lambda: model.delete([str(row)]))
    model.add(attack.X[[row]], attack.y[[row]], ids=[str(row)])
    return seconds


EXPLAINED = ("forest", "boosting", "online-boosting", "tree")
EXPLAINED_TEXT = (
    "Own rows only. {leavers} deletions of {rows:,} samples at most, as above. *Of 100*: the share of deletions of "
    "which the leaver is named; *at 0.1 %* the share of leavers above all but a thousandth of 100 rows never learned."
)


def explained(bench: Leaving) -> Section:
    """What attributions show beside probabilities."""
    rows = []
    for name in EXPLAINED:
        for data in bench.sets:
            split = load_split(data, bench.data, bench.cache)
            if split.task == "binary":
                rows += _explained(Attack(split, TARGETS[name], bench.leavers, bench.rows), data, name)
    text = EXPLAINED_TEXT.format(leavers=bench.leavers, rows=bench.rows)
    head = ("data:", "kind:", "asked:", "AUC", "at 0.1 %", "of 100")
    return Section("What attributions show beside probabilities", text, head, rows)


def _explained(attack: Attack, data: str, kind: str) -> Iterator[Row]:
    def ask(model: Any) -> tuple[Reals, Reals]:
        return model.predict_proba(attack.rows), model.shap_values(attack.rows).values.reshape(len(attack.rows), -1)

    base = ask(attack.learner.model)
    pairs = []
    for row in attack.leavers:
        before = ask(attack.learner.model) if attack.learner.depends_on_history else base
        pairs.append((before, attack.learner.without(np.array([row]), ask)))
    moved = [[np.abs(after - before) for after, before in zip(last, first, strict=True)] for first, last in pairs]
    n = len(attack.members)
    found = {
        "probabilities": strength(np.array([one.max(axis=1) for one, _ in moved]), n),
        "attributions": strongest(
            [
                np.array([summed(one) for _, one in moved])
                for summed in (partial(np.max, axis=1), partial(np.sum, axis=1))
            ],
            n,
        ),
    }
    for asked, strong in found.items():
        yield Row((data, kind, asked, f"{strong.auc:.2f}", f"{strong.low:.0%}"), 100 * strong.top)


QUESTIONS = {name: partial(section, target) for name, target in TARGETS.items()} | {
    "dare": of_dare,
    "explained": explained,
    "costs": costs,
}


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--leavers", type=int, default=60)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--dare-python", type=Path, metavar="FILE", help="an interpreter that has dare-rf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask the questions, print the tables, and write them when asked."""
    options = sections.parse(__doc__, list(QUESTIONS), arguments, _add_options)
    if options.only == list(QUESTIONS) and options.dare_python is None:
        options.only = [name for name in QUESTIONS if name != "dare"]
    leavers, rows = (8, 600) if options.quick else (options.leavers, ROWS)
    bench = Leaving(*sections.folders(options), leavers, rows, options.sets, options.dare_python)
    sections.ask(QUESTIONS, bench, options)


if __name__ == "__main__":
    main()
