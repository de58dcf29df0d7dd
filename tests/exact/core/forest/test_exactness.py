"""After any history the forest equals a fresh fit and the oracle, bit for bit.

The number of histories is printed at the end of the run (`conftest.py`).
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from numba import config

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from tests.exact.core.forest.player import Player, play, tuned
from tests.strategies import History, World, histories, long_life, random_history, worlds

sizes = st.integers(1, 12)


@pytest.mark.parametrize("part", range(4))
def test_random_histories(part: int) -> None:
    for number in range(50 * part, 50 * part + 50):
        replay(random_history(number, max_operations=30, max_rows=60))


@pytest.mark.parametrize("part", range(2))
def test_long_lives(part: int) -> None:
    """Many single mutations, nearly all of which leave the trees as they are: are they right to?"""
    for number in range(10 * part, 10 * part + 10):
        replay(long_life(number, n_operations=60))


def replay(history: History) -> None:
    """Play a history; a failure shows it."""
    try:
        play(history)
    except BaseException as error:
        error.add_note(f"the history: {history}")
        raise


@settings(max_examples=60)
@given(histories())
def test_histories_that_shrink(history: History) -> None:
    """Fewer and simpler than the random ones; what fails here comes as its smallest example."""
    play(history)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_larger_forest_at_the_default_settings(task: str) -> None:
    """Thousands of samples, counters where they are by default; compared with fresh fits."""
    rng = random.Random(7)

    def row() -> list[Any]:
        x = rng.gauss(0, 1)
        return [x, rng.choice([None, 1, 2, 3]), rng.choice("abcdefgh"), x * x + rng.random(), rng.random() < 0.2]

    def label(features: list[Any]) -> Any:
        return (
            int(features[0] > 0) + (features[2] in "ab") if task == "classification" else features[3] * 2 - features[0]
        )

    estimator = DynamicForestClassifier if task == "classification" else DynamicForestRegressor
    model = estimator(n_estimators=6, occurrence=0.5, random_state=3)
    n_samples = 300 if config.DISABLE_JIT else 3000
    X = [row() for _ in range(n_samples)]
    model.fit(X, [label(x) for x in X], categorical_features=[2])
    for step in range(12):
        model.delete(rng.sample(model.samples_.ids(), rng.choice([1, 7, 60])))
        new = [row() for _ in range(rng.choice([1, 5, 90]))]
        model.add(new, [label(x) for x in new])
        model.predict([row() for _ in range(3)])
        if step % 4 == 3:
            report = model.verify()
            assert report.ok, report
    model.delete(rng.sample(model.samples_.ids(), n_samples - 100))
    assert model.verify().ok
    model.check_invariants()


class Machine(RuleBasedStateMachine):
    """Hypothesis chooses the next operation; every step checks the invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = ExitStack()

    @initialize(world=worlds(), order=st.integers(0, 2**16), size=st.integers(0, 30))
    def begin(self, world: World, order: int, size: int) -> None:
        self.patches.enter_context(tuned(world.counters_from, world.replant_share))
        self.player = Player(world, order)
        self.player.play("fit", size)

    @rule(n=sizes)
    def add(self, n: int) -> None:
        self.player.play("add", n)

    @rule(n=sizes)
    def add_batch(self, n: int) -> None:
        self.player.play("add batch", n)

    @rule(n=sizes)
    def delete(self, n: int) -> None:
        self.player.play("delete", n)

    @rule(n=sizes)
    def delete_batch(self, n: int) -> None:
        self.player.play("delete batch", n)

    @rule(n=sizes)
    def delete_everything(self, n: int) -> None:
        self.player.play("delete everything", n)

    @rule(n=sizes)
    def add_again(self, n: int) -> None:
        self.player.play("add again", n)

    @rule(n=sizes)
    def replace(self, n: int) -> None:
        self.player.play("replace", n)

    @rule(n=sizes)
    def refuse(self, n: int) -> None:
        self.player.play("refuse", n)

    @rule(n=sizes)
    def predict(self, n: int) -> None:
        self.player.play("predict", n)

    @rule(n=sizes)
    def predict_frozen(self, n: int) -> None:
        self.player.play("predict frozen", n)

    @rule(n=sizes)
    def resolve(self, n: int) -> None:
        self.player.play("resolve", n)

    @rule(n=sizes)
    def digest(self, n: int) -> None:
        self.player.play("digest", n)

    @rule(n=sizes)
    def save_and_load(self, n: int) -> None:
        self.player.play("save and load", n)

    @rule(n=sizes)
    def copy(self, n: int) -> None:
        self.player.play("copy", n)

    def teardown(self) -> None:
        if hasattr(self, "player"):
            self.player.finish()
        self.patches.close()


def run_machine(part: int, n_runs: int, n_steps: int) -> None:
    machine: Any = seed(part)(Machine)
    run_state_machine_as_test(machine, settings=settings(max_examples=n_runs, stateful_step_count=n_steps))


def test_state_machine() -> None:
    run_machine(0, n_runs=40, n_steps=15)
