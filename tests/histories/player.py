"""Plays a history on a model of any kind, and compares it with what goes along (`comparisons.py`).

`Player` keeps the one truth a test needs: which samples are held, in the order of their arrival. Every method below
"operations" is one operation of a history; it applies the operation to the model, to that truth, and to the comparison.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from oubli.core import load
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import DuplicateIdError, EmptyModelError, InputError, UnknownIdError
from oubli.core.estimators import KINDS
from oubli.core.planning import Plan
from oubli.core.samples.owners import Mark
from oubli.core.samples.records import Rows
from tests.histories.worlds import FLOAT32_MAX, FLOAT64_MAX, N_PHASES, History, World

if TYPE_CHECKING:
    from tests.histories.kinds import Kind

Row = tuple[Sequence[Any], Any]  # features and label
_VERIFIED_EVERY = 10  # steps


@dataclass
class Tally:
    """What has been checked so far; printed at the end of the run."""

    histories: int = 0
    operations: Counter[str] = field(default_factory=Counter)  # by name
    checks: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)  # what updates came to, and other things found


TALLIES: defaultdict[str, Tally] = defaultdict(Tally)  # by kind


def schema_of(world: World) -> Schema:
    """The world's column and label types in the words of `core`."""
    columns = tuple(Column(f"x{i}", ColumnType(c.type), c.dtype) for i, c in enumerate(world.columns))  # type: ignore[arg-type]
    return Schema(columns, Task(world.task), LabelType(world.label_type))


def fresh_fit(kind: Kind, world: World, rows: Iterable[tuple[str, Sequence[Any], Any]]) -> Any:
    """Fit a new model to these samples (start an empty one when there are none)."""
    model, rows = KINDS[kind.kind, Task(world.task)](**world.parameters), list(rows)
    if not rows:
        return model.start(schema_of(world))
    X, y, ids = [list(f) for _, f, _ in rows], [y for _, _, y in rows], [i for i, _, _ in rows]
    weights = world.weights_of((f, y) for _, f, y in rows)
    return model.fit(X, y, ids=ids, schema=schema_of(world), sample_weight=weights)


class Player:
    """A model under test, and what it should hold."""

    def __init__(self, kind: Kind, world: World, seed: int = 0) -> None:
        self.kind = kind
        self.world = world
        self.rng = random.Random(seed)
        self.held: dict[str, Row] = {}  # in the order of their arrival
        self.gone: list[str] = []
        self.restricted: dict[str, list[tuple[str, Row]]] = {}  # by subject
        self.next_id = 0
        self.phase = 0
        self.steps = 0
        self.tally = TALLIES[kind.name]
        self.model: Any = fresh_fit(kind, world, [])
        self.beside = kind.comparison(self)

    def play(self, operation: str, n: int) -> None:
        """Do one operation and check everything afterwards."""
        self.tally.operations[operation] += 1
        getattr(self, operation.replace(" ", "_"))(n)
        self.check()
        self.count_step()

    def between(self) -> None:
        """Compare between two single changes of an operation."""
        self.beside.between()
        self.count_step()

    def count_step(self) -> None:
        """Count an operation, or a single change of one; after some of them the model must find no wrong counter."""
        self.steps += 1
        if self.steps % _VERIFIED_EVERY == 0:
            self.verify(1)

    def check(self) -> None:
        """Check the model's own invariants and its counts, and compare."""
        self.model.check_invariants()
        assert self.model.n_samples_ == len(self.held)
        assert set(self.model.samples_.ids()) == set(self.held)
        kept = self.model.samples_.restricted
        assert {name: sorted(kept.ids_of_subject(name)) for name in kept.marks} == {
            name: sorted(i for i, _ in samples) for name, samples in self.restricted.items()
        }
        if not self.world.parameters.get("lazy", False):
            assert self.model.n_lazy_tags_ == 0
        self.tally.checks += 1
        self.beside.check()

    def finish(self) -> None:
        """Compare everything; then forget the history: what is left is a fresh fit."""
        self.beside.finish()
        self.verify(1)
        self.scrub(1)
        self.check()
        self.tally.histories += 1

    def fresh(self, *, shuffled: bool = True) -> Any:
        """A model fitted to what is held, in another order."""
        rows = [(i, f, y) for i, (f, y) in self.held.items()]
        if shuffled:
            self.rng.shuffle(rows)
        return fresh_fit(self.kind, self.world, rows)

    # --- choosing ---------------------------------------------------------------------------------

    def new_id(self) -> str | int:
        """An id that is not held: text, or an int that stands for its decimal text."""
        if self.rng.random() < 0.7:
            self.next_id += 1
            return f"id {self.next_id}"
        number = self.rng.randrange(200)  # where the model's own counter is, too
        restricted = {i for samples in self.restricted.values() for i, _ in samples}
        while str(number) in self.held or str(number) in restricted:
            number += 1
        return number

    def new_ids(self, n: int) -> list[str | int]:
        """Distinct new ids."""
        ids: dict[str, str | int] = {}
        while len(ids) < n:
            name = self.new_id()
            ids[str(name)] = name
        return list(ids.values())

    def draw_rows(self, n: int) -> list[Row]:
        """Draw rows from the pool, with the labels of the phase."""
        return [self.world.row(self.rng.randrange(len(self.world.rows)), self.phase) for _ in range(n)]

    def draw_held(self, n: int) -> list[str]:
        """Draw distinct ids that are held, as many as there are."""
        return self.rng.sample(sorted(self.held), min(n, len(self.held)))

    # --- changing ---------------------------------------------------------------------------------

    def add_rows(self, ids: Sequence[Any] | None, rows: Sequence[Row]) -> None:
        """Add these rows in one call; ids None: let the model name them."""
        X, y, names = [list(f) for f, _ in rows], [y for _, y in rows], ids and [str(i) for i in ids]
        weights = self.world.weights_of(rows)
        if names and self.is_sliced(lambda: self.model.plan_add(Rows(X, names, weights=weights), y)):
            got = names
        else:
            got = self.model.add(X, y, ids=ids, sample_weight=weights)
        assert len(got) == len(rows)
        assert all(isinstance(i, str) for i in got)
        assert ids is None or got == [str(i) for i in ids]
        assert not set(got) & set(self.held)
        assert ids is not None or not set(got) & set(self.gone), "a generated id was issued again"
        self.held.update(zip(got, rows, strict=True))
        self.gone = [i for i in self.gone if i not in self.held]
        self.beside.added(got)
        self.leave_the_window()

    def is_sliced(self, make_plan: Callable[[], Plan]) -> bool:
        """Make a change in slices as short as can be, at every other step, if the model can; whether it was made.

        Readers between two slices have the model before.
        """
        if self.steps % 2 or not self.held or self.model.n_lazy_tags_:
            return False
        plan = make_plan()
        if not self.model.can_be_sliced(plan):
            return False
        queries = [list(query) for query in self.world.queries[:2]]
        before = [repr(part) for part in self.model.query(queries)]
        with patch.object(type(self.model.engine_), "_slice_size", lambda *_: 1):
            for reader in self.model.change_in_slices(plan):
                assert [repr(part) for part in reader.query(queries)] == before
        self.tally.outcomes["in slices"] += 1
        return True

    def leave_the_window(self) -> None:
        """The oldest leave a sliding window that is too full."""
        window = self.world.parameters.get("window")
        while window is not None and len(self.held) > window:
            oldest = next(iter(self.held))
            del self.held[oldest]
            self.gone.append(oldest)

    def add_each(self, rows: Iterable[Row]) -> None:
        """Add rows one by one."""
        for row in rows:
            self.add_rows([self.new_id()] if self.rng.random() < 0.7 else None, [row])
            self.between()

    def delete_ids(self, ids: Sequence[str]) -> None:
        """Delete these ids in one call."""
        if ids:
            if not self.is_sliced(lambda: self.model.plan_delete(list(ids))):
                self.model.delete(list(ids))
            for i in ids:
                del self.held[i]
            self.gone += ids
            self.beside.deleted(ids)

    def delete_each(self, ids: Iterable[str]) -> None:
        """Delete samples one by one."""
        for i in ids:
            self.delete_ids([i])
            self.between()

    # --- operations: samples come -----------------------------------------------------------------

    def fit(self, n: int) -> None:
        """Fit on the first n rows of the pool, which replaces what was held."""
        rows = [self.world.row(i, self.phase) for i in range(min(n, len(self.world.rows)))]
        self.held = {}
        self.hold(dict(zip(map(str, self.new_ids(len(rows))), rows, strict=True)))

    def hold(self, samples: dict[str, Row]) -> None:
        """Fit to these samples."""
        self.held, self.gone, self.restricted = samples, [], {}
        self.model = self.fresh(shuffled=False)
        self.leave_the_window()
        self.gone = []
        self.beside.fitted()

    def add(self, n: int) -> None:
        """Add samples one at a time."""
        self.add_each(self.draw_rows(n))

    def add_batch(self, n: int) -> None:
        """Add samples in one call: a few, or up to 37 of them, which is a large share of all."""
        n = n if self.rng.random() < 0.6 else 1 + n * n // 4
        self.add_rows(self.new_ids(n) if self.rng.random() < 0.7 else None, self.draw_rows(n))

    def add_again(self, n: int) -> None:
        """Bring deleted ids back, with other content."""
        ids = self.rng.sample(self.gone, min(n, len(self.gone)))
        if ids:
            self.add_rows(list(ids), self.draw_rows(len(ids)))

    def add_sorted(self, n: int) -> None:
        """Rows in the order of a column: each update goes to the same end of the tree."""
        column = self.rng.randrange(len(self.world.columns))
        self.add_each(sorted(self.draw_rows(n), key=lambda row: _order(row[0][column])))

    def add_one_class(self, n: int) -> None:
        """Rows that have one label."""
        _, label = self.draw_rows(1)[0]
        self.add_each([row for row in self.draw_rows(3 * n) if row[1] == label][:n])

    def add_one_row(self, n: int) -> None:
        """The same row again and again."""
        self.add_each(self.draw_rows(1) * n)

    def add_extremes(self, n: int) -> None:
        """Cells beyond all that are held, at both ends of each column; new categories; none where all have one."""
        rows = []
        for number, column in enumerate(self.world.columns):
            cells: list[Any] = [None]
            if column.type == "categorical":
                cells.append(f"new {self.steps} {number}")
            elif column.type == "numeric":
                seen = [f[number] for f, _ in self.held.values() if f[number] is not None and f[number] == f[number]]
                beyond = 9e5 + 2.0 * max(map(abs, seen), default=0)
                most = FLOAT64_MAX if column.dtype == "float64" else FLOAT32_MAX
                cells += [min(beyond, most), max(-beyond, -most)]
            for cell in cells:
                features, label = self.draw_rows(1)[0]
                rows.append(((*features[:number], cell, *features[number + 1 :]), label))
        self.add_each(self.rng.sample(rows, min(n, len(rows))))

    # --- operations: samples go -------------------------------------------------------------------

    def delete(self, n: int) -> None:
        """Delete samples one at a time."""
        self.delete_each(self.draw_held(n))

    def delete_batch(self, n: int) -> None:
        """Delete samples in one call: few of them, or most."""
        self.delete_ids(self.draw_held(n if self.rng.random() < 0.85 else max(1, (len(self.held) * 9) // 10)))

    def delete_everything(self, n: int) -> None:
        """Delete all, at once or one by one, the last ones with checks in between."""
        ids = self.draw_held(len(self.held))
        step = 1 if n % 2 else max(1, len(ids))
        for start in range(n, len(ids), step):
            self.delete_ids(ids[start : start + step])
        self.delete_each(ids[:n])

    def delete_one_class(self, n: int) -> None:
        """Samples that have one label."""
        self.delete_each(self.of_one_label()[:n])

    def of_one_label(self) -> list[str]:
        """The ids of all samples with a label that is held."""
        label = self.held[self.draw_held(1)[0]][1] if self.held else None
        return [i for i, (_, y) in self.held.items() if type(y) is type(label) and y == label]

    def delete_one_leaf(self, n: int) -> None:
        """Samples that lie together."""
        self.delete_each(sorted(self.beside.together(self.draw_held(1)[0]))[:n] if self.held else [])

    def delete_oldest(self, n: int) -> None:
        """Samples that came first."""
        self.delete_each(list(self.held)[:n])

    def delete_newest(self, n: int) -> None:
        """Samples that came last."""
        self.delete_each(list(self.held)[::-1][:n])

    def delete_sorted(self, n: int) -> None:
        """The samples that are smallest in a column."""
        column = self.rng.randrange(len(self.world.columns))
        self.delete_each(sorted(self.held, key=lambda i: _order(self.held[i][0][column]))[:n])

    # --- operations: both -------------------------------------------------------------------------

    def replace(self, n: int) -> None:
        """New content under ids that are held."""
        for i in self.draw_held(1 + n // 2):
            features, label = self.draw_rows(1)[0]
            self.model.replace(i, list(features), label, sample_weight=self.world.weight((features, label)))
            del self.held[i]
            self.held[i] = (features, label)
            self.beside.replaced(i)

    def slide(self, n: int) -> None:
        """A window moves on."""
        for row in self.draw_rows(n):
            if self.world.parameters.get("window") is None:
                self.delete_each(list(self.held)[:1])
            self.add_each([row])

    def drift(self, n: int) -> None:
        """From now on labels are others."""
        self.phase = (self.phase + n) % N_PHASES

    def add_and_delete(self, n: int) -> None:
        """The same row comes and goes."""
        (row,) = self.draw_rows(1)
        for _ in range(n):
            self.add_each([row])
            self.delete_each([list(self.held)[-1]])

    def a_class_comes_and_goes(self, n: int) -> None:
        """All samples of one label go, in one call or one by one, and some of them come back."""
        same = self.of_one_label()
        back = {i: self.held[i] for i in same[:n]}
        step = len(same) if n % 2 else 2
        for start in range(0, len(same), step or 1):
            self.delete_ids(same[start : start + step])
            self.between()
        if back:
            self.add_rows(list(back), list(back.values()))

    # --- operations: restriction ------------------------------------------------------------------

    def restrict(self, n: int) -> None:
        """Somebody's samples are kept and not learned from."""
        ids = self.draw_held(n)
        if ids:
            self.next_id += 1
            subject = f"subject {self.next_id}"
            for i in ids:
                self.model.samples_.set_subject(i, subject)
            self.model.restrict(ids, {subject: Mark(self.next_id, self.rng.random() < 0.5)})
            self.restricted[subject] = [(i, self.held.pop(i)) for i in ids]
            self.beside.deleted(ids)

    def release(self, n: int) -> None:
        """Restricted samples are learned from again; some of them are rectified first, and some are deleted."""
        kept = self.model.samples_.restricted
        for subject in self.rng.sample(sorted(self.restricted), min(len(self.restricted), 1 + n // 4)):
            samples = dict(self.restricted.pop(subject))
            for i in self.rng.sample(sorted(samples), len(samples) // 4):
                samples[i] = self.draw_rows(1)[0]
                features, label = samples[i]
                weight = self.world.weight(samples[i])
                self.model.apply(self.model.plan_replace(i, [list(features)], label, weight=weight))
            gone = self.rng.sample(sorted(samples), len(samples) // 3)
            self.model.apply(self.model.plan_delete(gone))
            self.gone += gone
            back = [i for i in samples if i not in set(gone)]
            for i in back:
                held = kept.get(i)
                assert held.subject == subject
                assert not self.model.holds(i)
            self.model.release(back)
            self.held.update((i, samples[i]) for i in back)
            if back:
                self.beside.added(back)
                self.leave_the_window()

    # --- operations: the rest ---------------------------------------------------------------------

    def predict(self, n: int) -> None:
        """Ask for a few predictions, which resolves what they meet."""
        self._ask(n, frozen=False)

    def predict_frozen(self, n: int) -> None:
        """Predict without writing: the tags stay, the answers are the same."""
        tags = self.model.n_lazy_tags_
        self._ask(n, frozen=True)
        assert self.model.n_lazy_tags_ == tags

    def _ask(self, n: int, *, frozen: bool) -> None:
        chosen = [self.rng.choice(self.world.queries) for _ in range(n)]
        queries = [list(q) for q in (*chosen, *(self.held[i][0] for i in self.draw_held(n // 2)))]
        if self.held:
            self.beside.ask(queries, frozen=frozen)
            return
        for ask in (self.model.predict, lambda rows: self.model.query(rows, frozen=frozen)):
            with pytest.raises(EmptyModelError):
                ask(queries)

    def resolve(self, n: int) -> None:
        """Resolve some tags, or all."""
        before = self.model.n_lazy_tags_
        some = n if self.beside.resolves_in_part and n % 4 else None
        cleared = self.model.resolve(some)
        assert (cleared > 0) == (before > 0)
        if some is None:
            assert self.model.n_lazy_tags_ == self.model.resolve() == 0
            self.beside.resolved()

    def verify(self, n: int) -> None:
        """The model's own recount finds nothing; a copy is the same. Both resolve."""
        report = self.model.verify()
        assert report.ok, report
        assert self.model.digest() == self.model.copy().digest()
        assert self.model.n_lazy_tags_ == 0
        self.beside.resolved()

    def scrub(self, n: int) -> None:
        """Forget the history: what is left is a fresh fit."""
        self.model.scrub()
        self.beside.fitted()
        assert self.model.digest() == self.fresh().digest(), "the digest differs from a fresh fit's"

    def wipe(self, n: int) -> None:
        """Overwrite working space; nothing else."""
        before = self.model.digest()
        self.model.wipe()
        assert self.model.digest() == before
        self.beside.resolved()

    def save_and_load(self, n: int) -> None:
        """Continue with what a file gives back; saving resolves."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            self.model.save(path)
            self.model = type(self.model).load(path) if n % 2 == 1 else load(path)
        self.beside.resolved()

    def recover(self, n: int) -> None:
        """Continue with what a file or a pickle gives back, or with a copy."""
        if n % 3 == 0:
            self.model = pickle.loads(pickle.dumps(self.model))  # noqa: S301 - our own
            self.beside.resolved()
        else:
            (self.copy if n % 3 == 1 else self.save_and_load)(n)

    def copy(self, n: int) -> None:
        """Continue with a copy, or with the original; a change of the other must not show."""
        other = self.model.copy()
        if n % 2:
            self.model, other = other, self.model
        other.delete(sorted(self.held))
        other.apply(other.plan_delete([i for samples in self.restricted.values() for i, _ in samples]))
        other.add([list(self.world.rows[0][0])], [self.world.rows[0][1]])

    def refuse(self, n: int) -> None:
        """Ask for what must be refused as a whole, and see that nothing has changed."""
        held = self.draw_held(n)
        features, label = self.draw_rows(1)[0]
        row = list(features)
        attempts: list[tuple[type[Exception], Callable[[], object]]] = [
            (KeyError, lambda: self.model.delete([*held, "never held"])),
            (UnknownIdError, lambda: self.model.delete(["never held"])),
            (InputError, lambda: self.model.add([row, [*row, 1.0]], [label, label], ids=["new a", "new b"])),
            (DuplicateIdError, lambda: self.model.add([row, row], [label, label], ids=["new a", "new a"])),
        ]
        if held:
            attempts += [
                (DuplicateIdError, lambda: self.model.add([row, row], [label, label], ids=["new a", held[0]])),
                (InputError, lambda: self.model.replace(held[0], [*row, 1.0], label)),
            ]
        for error, attempt in attempts:
            with pytest.raises(error):
                attempt()


def _order(value: Any) -> tuple[bool, str, float]:
    """A key that sorts the cells of any column, missing ones last."""
    missing = value is None or value != value
    number = float(value) if not missing and isinstance(value, int | float) else 0.0
    return missing, value if isinstance(value, str) else "", number


def play(kind: Kind, history: History) -> Player:
    """Play a history to its end; a failure shows it."""
    try:
        with kind.tuned(**history.world.tuning):
            player = Player(kind, history.world, history.seed)
            for operation, n in history.operations:
                player.play(operation, n)
            player.finish()
    except BaseException as error:
        error.add_note(f"the history: {history}")
        raise
    return player
