"""One model in many threads: what each of them sees is the model before or after each change.

    python -m tests.stress --minutes 30

A round takes one model. Writers follow scripts that are written beforehand, on samples of their own. Readers do
anything else, and compare what they see with an oracle: another model that makes the same changes alone, in one thread.
A reader notes how many changes each writer has ended before it begins, and has begun when it ends: what it sees must be
what the oracle says for some numbers between. Kinds whose trees depend on the order of changes have one writer.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import pickle
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import oubli
from oubli.core.boosting.quantised.engine import QuantisedTrees
from oubli.core.forest.engine import ForestEngine
from oubli.core.influence import influence
from oubli.core.planning import Changeable, Plan
from oubli.core.samples.records import Rows
from tests.histories.comparisons import unseen_answers
from tests.threads import many_threads

Change = Callable[[Any], object]
CHANGES = ("add", "add some", "add in slices", "delete", "delete some", "delete in slices", "replace", "class")
Steps = tuple[int, ...]  # how many changes each writer has made

patience = [120.0]  # seconds that a round may take before its threads are shown


@dataclass(frozen=True)
class Crowd:
    """A model that is used by many threads."""

    name: str
    new: Callable[[], Any]
    n_writers: int = 2
    is_regression: bool = False
    n_samples: int = 80
    is_exact: bool = True
    is_history: bool = True  # whether the changes alone decide what the model is, and not when it is asked

    def rows(self, rng: random.Random, n: int) -> list[list[Any]]:
        """Rows of numbers and a category, some of them missing."""
        return [
            [rng.choice([rng.gauss(0, 1), rng.randrange(4), None]), rng.gauss(0, 2), rng.choice([*"abcdefg", None])]
            for _ in range(n)
        ]

    def labels(self, rng: random.Random, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Labels that depend on the rows."""
        scores = [(row[0] or 0) + row[1] + rng.gauss(0, 0.5) for row in rows]
        return scores if self.is_regression else ["low" if score < 0 else "high" for score in scores]

    def script(self, rng: random.Random, writer: int, n: int, owned: list[str]) -> list[Change]:
        """Changes of one writer, which touch its samples only; `owned` are those that are held."""
        owned, steps = list(owned), []
        for step in range(n):
            what = rng.choice(CHANGES)
            if what in ("add", "add some", "add in slices", "class") or len(owned) < 6:
                rows = self.rows(rng, 1 if what == "add" else rng.randrange(2, 6))
                labels = self.labels(rng, rows)
                if what == "class" and not self.is_regression:
                    labels = [f"class {writer}"] * len(rows)
                names = [f"{writer} {step} {row}" for row in range(len(rows))]
                owned += names
                steps.append((_add_in_slices if what == "add in slices" else _add)(rows, labels, names))
            elif what == "replace":
                row = self.rows(rng, 1)
                steps.append(_replace(rng.choice(owned), row[0], self.labels(rng, row)[0]))
            else:
                gone = rng.sample(owned, 1 if what == "delete" else min(4, len(owned)))
                owned = [name for name in owned if name not in gone]
                steps.append((_delete_in_slices if what == "delete in slices" else _delete)(gone))
        return steps


def _add(rows: list[Any], labels: list[Any], names: list[str]) -> Change:
    weights = [0.5 if sum(map(ord, name)) % 5 == 0 else 1.0 for name in names]
    return lambda model: model.add(rows, labels, ids=names, sample_weight=weights)


def _delete(names: list[str]) -> Change:
    return lambda model: model.delete(names)


def _replace(name: str, row: list[Any], label: Any) -> Change:
    return lambda model: model.replace(name, row, label)


def _add_in_slices(rows: list[Any], labels: list[Any], names: list[str]) -> Change:
    return lambda model: _change_in_slices(model, lambda: model.plan_add(Rows(rows, names), labels), rows)


def _delete_in_slices(names: list[str]) -> Change:
    asked = [[0.5, 0.5, "a"], [None, -1.0, None]]
    return lambda model: _change_in_slices(model, lambda: model.plan_delete(names), asked)


def _change_in_slices(model: Any, make_plan: Callable[[], Plan], rows: list[Any]) -> None:
    """Make a change as a server does: in slices if the kind can, else at once; readers between them see no change."""
    with model.lock.change():
        plan = make_plan()
        if not model.can_be_sliced(plan):
            model.apply(plan)
            return
        model.resolve()
        seen = {repr((before.n_samples_, _numbers_of(before, rows))) for before in model.change_in_slices(plan)}
    assert len(seen) <= 1, "what is read between two slices has changed"


@dataclass
class Answers:
    """What a model of some steps says of the rows that readers ask about."""

    n_samples: int
    labels: list[Any]
    numbers: list[Any]
    digest: str | None
    unseen: list[object]  # what trees say that have not learned samples
    explained: list[object]  # why the model answers so, its trees, and its losses

    @classmethod
    def of(cls, model: Any, rows: list[Any], *, with_digest: bool) -> Answers:
        result = model.query(rows)
        numbers = result.labels if result.probabilities is None else result.probabilities
        return cls(
            len(model.samples_), result.labels.tolist(), numbers.tolist(), model.digest() if with_digest else None,
            unseen_answers(model, rows), explained_answers(model, rows),
        )  # fmt: skip


@dataclass
class Round:
    """A model, its oracle's answers by steps, and what readers have found to be wrong."""

    crowd: Crowd
    model: Any
    rows: list[Any]
    scripts: list[list[Change]]
    answers: dict[Steps, Answers]
    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    n_reads: int = 0

    @classmethod
    def prepared(cls, crowd: Crowd, rng: random.Random, n_changes: int) -> Round:
        rows = crowd.rows(rng, crowd.n_samples)
        names = [str(number) for number in range(len(rows))]
        model = crowd.new().fit(rows, crowd.labels(rng, rows), ids=names)
        scripts = [
            crowd.script(rng, writer, n_changes, names[writer :: crowd.n_writers][:20])
            for writer in range(crowd.n_writers)
        ]
        asked = crowd.rows(rng, 7)
        answers: dict[Steps, Answers] = {}
        for steps in itertools.product(range(n_changes + 1), repeat=crowd.n_writers):
            if steps[-1] == 0:  # the last writer continues from where the others are
                oracle = model.copy()
                for script, n in zip(scripts, steps, strict=True):
                    for change in script[:n]:
                        change(oracle)
            else:
                scripts[-1][steps[-1] - 1](oracle)
            answers[steps] = Answers.of(oracle.copy(), asked, with_digest=crowd.is_exact)
        counters = [0] * crowd.n_writers
        return cls(crowd, model, asked, scripts, answers, counters, counters.copy())

    def allowed(self, before: Sequence[int], after: Sequence[int]) -> Iterator[Answers]:
        """What may be seen by a read that lies between two moments."""
        for steps in itertools.product(*(range(a, b + 1) for a, b in zip(before, after, strict=True))):
            yield self.answers[steps]

    def write(self, writer: int, rng: random.Random) -> None:
        """Make the changes of a writer."""
        for change in self.scripts[writer]:
            self.begun[writer] += 1
            change(self.model)
            self.ended[writer] += 1
            if rng.random() < 0.3:
                time.sleep(rng.random() * 0.003)

    def read(self, rng: random.Random, folder: Path, is_over: threading.Event) -> None:
        """Read in any way until the writers have ended, and once more then."""
        while True:
            was_over = is_over.is_set()
            name = rng.choice(list(READS))
            before = self.ended.copy()
            see = READS[name](self, folder / f"{threading.get_ident()}")
            after = self.begun.copy()
            if self.crowd.is_history and not any(see(answers) for answers in self.allowed(before, after)):
                self.wrong.append(f"{name} sees what is no model between {before} and {after}")
            self.n_reads += 1
            if was_over:
                return

    def run(self, rng: random.Random, n_readers: int, folder: Path) -> None:
        """Have all threads work; AssertionError says what is wrong."""
        is_over = threading.Event()

        def guarded(work: Callable[..., None], *arguments: Any) -> None:
            try:
                work(*arguments)
            except BaseException:
                self.wrong.append(traceback.format_exc())

        seeds = [random.Random(rng.random()) for _ in range(n_readers + self.crowd.n_writers)]
        writers = [
            threading.Thread(target=guarded, args=(self.write, number, seeds[number]), daemon=True)
            for number in range(self.crowd.n_writers)
        ]
        readers = [
            threading.Thread(target=guarded, args=(self.read, seed, folder, is_over), daemon=True)
            for seed in seeds[self.crowd.n_writers :]
        ]
        faulthandler.dump_traceback_later(patience[0], exit=True)
        for thread in (*writers, *readers):
            thread.start()
        for thread in writers:
            thread.join()
        is_over.set()
        for thread in readers:
            thread.join()
        faulthandler.cancel_dump_traceback_later()
        assert not self.wrong, f"{self.crowd.name}: " + "\n".join(self.wrong[:5])
        last = self.answers[tuple(map(len, self.scripts))]
        self.model.check_invariants()
        verdict = self.model.verify()
        assert verdict.ok, f"{self.crowd.name}: {verdict}"
        if self.crowd.is_history:
            assert Answers.of(self.model, self.rows, with_digest=self.crowd.is_exact) == last


# -- what readers do: each returns what tells whether the answers of a model are what it has seen -------

See = Callable[[Answers], bool]


def _numbers_of(model: Any, rows: list[Any]) -> list[Any]:
    numbers: list[Any] = (model.predict if model.task == "regression" else model.predict_proba)(rows).tolist()
    return numbers


def explained_answers(model: Any, rows: list[Any]) -> list[object]:
    """What is read of the trees themselves: attributions, a nearest change, exports, and stages of boosting."""
    found: list[object] = [model.trees_to_json(), model.to_lightgbm(), model.decision_path(rows)[0].toarray().tolist()]
    target = 0.0 if model.task == "regression" else None
    found += [model.shap_values(rows).values.tolist(), repr(model.nearest_change(rows[0], columns=2, target=target))]
    if model.is_boosted:
        found += [model.train_loss_.tolist(), [stage.tolist() for stage in model.staged_predict(rows)]]
    return found


def _plain(read: Callable[[Any, list[Any]], Any], expected: Callable[[Answers], Any]) -> Callable[[Round, Path], See]:
    """What is read is equal to a part of the answers."""

    def begin(turn: Round, path: Path) -> See:
        found = read(turn.model, turn.rows)
        return lambda answers: bool(expected(answers) == found)

    return begin


def _read_digest(turn: Round, path: Path) -> See:
    digest = turn.model.digest()
    return lambda answers: answers.digest in (None, digest)


def _like(turn: Round, other: Any) -> See:
    found = Answers.of(other, turn.rows, with_digest=turn.crowd.is_exact)
    return lambda answers: answers == found


def _read_file(turn: Round, path: Path) -> See:
    turn.model.save(path)
    return _like(turn, oubli.load(path))


def _read_pickle(turn: Round, path: Path) -> See:
    return _like(turn, pickle.loads(pickle.dumps(turn.model)))  # noqa: S301 - ours


def _read_copy(turn: Round, path: Path) -> See:
    other = deepcopy(turn.model)
    other.check_invariants()
    return _like(turn, other)


def _read_verdict(turn: Round, path: Path) -> See:
    verdict = turn.model.verify()
    return lambda answers: verdict.ok and answers.digest in (None, verdict.live_digest)


def _read_influence(turn: Round, path: Path) -> See:
    if not turn.model.influence_methods:
        return lambda answers: True
    label = 0.0 if turn.crowd.is_regression else "low"
    found = influence(turn.model, turn.rows[:1], [label], method=turn.model.influence_methods[0])
    return lambda answers: len(found.ids) == answers.n_samples and bool(np.isfinite(found.scores).all())


def _resolve(turn: Round, path: Path) -> See:
    turn.model.resolve()
    turn.model.resolve(3)
    return lambda answers: turn.model.is_usable


def _read_properties(turn: Round, path: Path) -> See:
    model = turn.model
    model.check_is_fitted()
    found = (model.nbytes_, model.n_lazy_tags_, model.holds("1"), len(model.feature_importances_), model.samples_.ids())
    return lambda answers: found is not None


READS: dict[str, Callable[[Round, Path], See]] = {
    "predict_proba": _plain(_numbers_of, lambda answers: answers.numbers),
    "predict": _plain(lambda model, rows: model.predict(rows).tolist(), lambda answers: answers.labels),
    "frozen": _plain(lambda model, rows: model.query(rows, frozen=True).labels.tolist(), lambda a: a.labels),
    "predict one row": _plain(lambda model, rows: model.predict(rows[:1]).tolist(), lambda a: a.labels[:1]),
    "unseen": _plain(
        lambda model, rows: model.unchanged(lambda: unseen_answers(model, rows)),
        lambda answers: answers.unseen,
    ),
    "explained": _plain(
        lambda model, rows: model.unchanged(lambda: explained_answers(model, rows)),
        lambda answers: answers.explained,
    ),
    "n_samples_": _plain(lambda model, rows: model.n_samples_, lambda answers: answers.n_samples),
    "digest": _read_digest, "save": _read_file, "pickle": _read_pickle, "copy": _read_copy, "verify": _read_verdict,
    "influence": _read_influence, "resolve": _resolve, "properties": _read_properties,
}  # fmt: skip


def crowds(n_jobs: int | None) -> list[Crowd]:
    """Models of all kinds and tasks."""
    few: dict[str, Any] = {"n_estimators": 4, "random_state": 1, "n_jobs": n_jobs}
    six = {**few, "n_estimators": 6}
    online: dict[str, Any] = {"n_writers": 1, "is_exact": False}
    regression: dict[str, Any] = {"is_regression": True}
    return [
        Crowd("forest", lambda: oubli.DynamicForestClassifier(**six)),
        Crowd("eager forest", lambda: oubli.DynamicForestClassifier(lazy=False, **six)),
        Crowd("forest for numbers", lambda: oubli.DynamicForestRegressor(**six), **regression),
        Crowd("tree", lambda: oubli.DynamicTreeClassifier(n_jobs=n_jobs), **online),
        Crowd(
            "lazy tree", lambda: oubli.DynamicTreeClassifier(lazy=True, n_jobs=n_jobs), is_exact=False, is_history=False
        ),
        Crowd("online", lambda: oubli.OnlineBoostingClassifier(**few), **online),
        Crowd("online for numbers", lambda: oubli.OnlineBoostingRegressor(**few), **online, **regression),
        Crowd("quantised", lambda: oubli.IncrementalBoostingClassifier(**few)),
        Crowd("quantised for numbers", lambda: oubli.IncrementalBoostingRegressor(**few), **regression),
        Crowd("presorted", lambda: oubli.IncrementalBoostingClassifier(quantization=None, **few)),
        Crowd(
            "presorted for numbers", lambda: oubli.IncrementalBoostingRegressor(quantization=None, **few), **regression
        ),
    ]


def run_round(crowd: Crowd, seed: object, n_readers: int, n_changes: int, folder: Path) -> int:
    """Run one round; returns how many reads there were."""
    rng = random.Random(f"{crowd.name} {seed}")
    with patch.object(Changeable, "can_be_sliced", lambda *_: False):  # the oracle makes all changes at once
        turn = Round.prepared(crowd, rng, n_changes)
    with (
        patch.object(ForestEngine, "_slice_size", lambda *_: 1),
        patch.object(QuantisedTrees, "_slice_size", lambda *_: 1),
    ):
        turn.run(rng, n_readers, folder)
    return turn.n_reads


def main() -> None:
    """Run rounds of all kinds until the time is over; prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a kind")
    parser.add_argument("--patience", type=float, default=patience[0])
    wanted = parser.parse_args()
    patience[:] = [wanted.patience]
    faulthandler.enable()
    end, n_rounds, n_reads = time.monotonic() + 60 * wanted.minutes, 0, 0
    with tempfile.TemporaryDirectory() as folder, many_threads():
        for seed in itertools.count(wanted.seed):
            for crowd in crowds((1, 2)[seed % 2]):
                if wanted.only and crowd.name != wanted.only:
                    continue
                sys.setswitchinterval(random.Random(seed).choice([5e-3, 5e-4, 1e-5]))
                n_reads += run_round(crowd, seed, n_readers=(2, 8)[seed // 2 % 2], n_changes=5, folder=Path(folder))
                n_rounds += 1
                if time.monotonic() > end:
                    sys.stdout.write(f"{n_rounds} rounds, {n_reads} reads: nothing was wrong\n")
                    return


if __name__ == "__main__":
    main()
