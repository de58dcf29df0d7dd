"""Membership inference before a deletion, after it, and after adding back (Table 9, Appendix K of Online GBDT).

Deviations from the paper:

a) The attacker also sees the probability of the sample's own class, because an attacker who asks about a sample knows
   its label. From the probabilities of the classes alone the attack is weaker.
b) The share deleted and added back, 0.1 % of the data, is a few samples only. So there are several rounds.
c) The model that has unlearned them is compared with one that has never seen them.
d) With the paper's parameters the attack on ours is hardly better than guessing. So it is also made on models that
   overfit as much as they can.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.boosting.datasets import Indices, Load, Split
from benchmarks.boosting.kinds import INCREMENTAL, ONLINE, Kind, names
from benchmarks.results import Row, at_most
from benchmarks.timing import rounds_of

NAME = "membership"
TITLE = "membership inference"
TEXT = (
    "Five iterations at rate 1. The data are divided into a base (49.9 %), samples that come and go (0.1 %), and "
    "others (50 %). A classifier (gradient boosting) learns to tell members from others by the model's "
    "probabilities of the classes and of the sample's own class, on half of the base and half of the others; the "
    "table has the mean probability of membership that it gives the remaining ones. *Paper*: 20 leaves, or depth 5. "
    "*Overfitting*: 256 leaves, or depth 8, and nothing against overfitting. *Fitted*: on base and samples. "
    "*Deleted*, *added back*: the samples. *Never*: fitted on the base alone. Mean over the rounds, each with its "
    "own partition. *Left* is the probability of the deleted samples minus that given by the attack on the model "
    "that has never seen them, in points, either way; for `incremental-boosting` one more row counts the digests "
    "that differ from that model's."
)
STAGES = ("fitted", "deleted", "never", "added back")
HEAD = (
    "data:",
    "kind:",
    "parameters:",
    "rounds",
    "fitted: base %",
    *(f"{stage}: samples %" for stage in STAGES),
    "deleted: others %",
    "what:",
    "figure",
)
SETS = ("optdigits", "pendigits", "letter", "covtype")
PAPER: dict[str, Any] = {"n_estimators": 5, "learning_rate": 1.0}
_UNBOUND: dict[str, Any] = {**PAPER, "l2_regularization": 0.0, "min_child_weight": 0.0}
OVERFITTING = {ONLINE: {**_UNBOUND, "max_leaf_nodes": 256}, INCREMENTAL: {**_UNBOUND, "max_depth": 8}}
SHARE = 0.001
MOST_LEFT = 5.0


@dataclass
class Found:
    """Mean probabilities of being a member, by stage and part, one a round."""

    split: Split
    kind: Kind
    setting: str
    parameters: dict[str, Any]
    chances: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    different: int = 0  # digests after the deletion

    def chance(self, stage: str, part: str) -> float:
        """The mean over the rounds, in percent."""
        return 100 * float(np.mean(self.chances[stage, part]))

    def left(self) -> float:
        """How far the deleted samples are from those never seen, in points."""
        return abs(self.chance("deleted", "samples") - self.chance("never", "samples"))


@dataclass(frozen=True)
class Parts:
    """Rows of the base and of the others, half for the attacker each, and the samples that come and go."""

    base: Indices
    others: Indices
    samples: Indices

    def known(self) -> tuple[Indices, Indices]:
        """The rows that the attacker learns from."""
        return self.base[: len(self.base) // 2], self.others[: len(self.others) // 2]

    def asked(self) -> dict[str, Indices]:
        """The rows that the attack is tried on."""
        base, others = self.base[len(self.base) // 2 :], self.others[len(self.others) // 2 :]
        return {"base": base, "samples": self.samples, "others": others}


def measure(load: Load, sets: Sequence[str], kinds: Sequence[Kind], rounds: int, budget: float) -> list[Found]:
    """Attack at each stage; no further round of a kind on a set when `budget` CPU seconds are used up."""
    found = []
    for name in sets:
        started = time.perf_counter()
        split = whole(load(name, 0))
        for kind in kinds:
            for setting, parameters in (("paper", PAPER), ("overfitting", OVERFITTING[kind])):
                one = Found(split, kind, setting, parameters)
                rounds_of(lambda seed, one=one: _one_round(one, seed), rounds, budget)
                found.append(one)
        print(f"{name}: membership, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def whole(split: Split) -> Split:
    """Training and test part in one."""
    known = split.y_test >= 0
    X, y = np.concatenate([split.X, split.X_test[known]]), np.concatenate([split.y, split.y_test[known]])
    return replace(split, X=X, y=y)


def _partition(n: int, rng: np.random.Generator) -> Parts:
    order = rng.permutation(n)
    n_samples = max(1, round(SHARE * n))
    return Parts(order[n_samples : n // 2], order[n // 2 :], order[:n_samples])


def _one_round(found: Found, seed: int) -> None:
    split, kind = found.split, found.kind
    parts = _partition(len(split), np.random.default_rng(seed))
    samples = parts.samples
    model = kind.fit(split, np.concatenate([parts.base, samples]), seed, **found.parameters)
    _attack(found, "fitted", model, parts, seed)
    model.delete(names(samples))
    _attack(found, "deleted", model, parts, seed)
    never = kind.fit(split, parts.base, seed, **found.parameters)
    _attack(found, "never", never, parts, seed)
    found.different += model.digest() != never.digest()
    model.add(split.X[samples], split.y[samples], ids=names(samples))
    _attack(found, "added back", model, parts, seed)


def _attack(found: Found, stage: str, model: Any, parts: Parts, seed: int) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    split = found.split
    members, others = parts.known()
    attacker = HistGradientBoostingClassifier(max_iter=50, random_state=seed)
    is_member = np.repeat([1, 0], [len(members), len(others)])
    attacker.fit(_seen(model, split, np.concatenate([members, others])), is_member)
    for part, rows in parts.asked().items():
        found.chances[stage, part].append(float(attacker.predict_proba(_seen(model, split, rows))[:, 1].mean()))


def _seen(model: Any, split: Split, rows: Indices) -> npt.NDArray[np.float64]:
    """What the attacker sees of samples: the probabilities of the classes, and of their own one."""
    chances = model.predict_proba(split.X[rows])
    columns = {label: column for column, label in enumerate(model.classes_.tolist())}
    places = [columns.get(label) for label in split.y[rows].tolist()]
    own = [0.0 if place is None else float(row[place]) for row, place in zip(chances, places, strict=True)]
    return np.column_stack([chances, own])


def rows(found: Sequence[Found]) -> list[Row]:
    """One row a set and kind; two where the guarantee is exactness."""
    listed = []
    for one in found:
        cells = (
            one.split.name,
            one.kind.name,
            one.setting,
            str(len(one.chances["fitted", "base"])),
            f"{one.chance('fitted', 'base'):.1f}",
            *(f"{one.chance(stage, 'samples'):.1f}" for stage in STAGES),
            f"{one.chance('deleted', 'others'):.1f}",
        )
        listed.append(Row((*cells, "attack left, points"), one.left(), at_most(MOST_LEFT)))
        if one.kind.is_exact:
            listed.append(Row((*cells, "digests different"), one.different, at_most(0)))
    return listed
