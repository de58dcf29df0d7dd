"""Threads that resolve tags while others ask and change: every answer is that of the oracle."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from oubli.app.service.model.tag_thread import TagThread
from oubli.core import DynamicForestClassifier
from tests.oracles import forest as oracle
from tests.oracles.common import Column

N_THREADS = 4
N_SAMPLES = 500
N_TURNS = 40
PARAMETERS = {"n_estimators": 5, "occurrence": 0.6, "max_depth": 9, "n_thresholds": 5}
COLUMNS = (Column(), Column(), Column("categorical"))


def sample(rng: random.Random) -> tuple[list[Any], str]:
    row = [rng.gauss(0, 1), rng.random(), rng.choice(["red", "green", "blue"])]
    return row, "yes" if row[0] + rng.gauss(0, 1) > (row[2] == "red") else "no"


@dataclass
class World:
    """A model, the thread that it is lent to, and what it holds."""

    seed: int
    thread: TagThread = field(default_factory=TagThread)
    held: dict[str, tuple[list[Any], str]] = field(default_factory=dict)
    n_asked: int = 0
    n_stopped: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.held = {f"s{i}": sample(self.rng) for i in range(N_SAMPLES)}
        self.model: Any = DynamicForestClassifier(
            random_state=self.seed, max_features=2, min_samples_split=2, **PARAMETERS
        )
        rows, labels = zip(*self.held.values(), strict=True)
        self.model.fit(list(rows), list(labels), ids=list(self.held), categorical_features=[2])

    async def live(self) -> None:
        for turn in range(N_TURNS):
            self.thread.lend(self.model)
            if self.rng.random() < 0.8:
                self.be_busy()
            else:
                await asyncio.sleep(1e-3)
            self.thread.take_back()
            assert self.thread.error is None
            self.n_stopped += self.model.n_lazy_tags_ > 0
            self.change(turn)
            if turn % 20 == 10:
                self.compare()
                self.model.check_invariants()
            await asyncio.sleep(0)
        self.thread.close()
        self.compare()
        assert self.model.verify().ok

    def be_busy(self) -> None:
        """Be a loop that does something else, without the interpreter."""
        time.sleep(self.rng.random() * 5e-4)

    def change(self, turn: int) -> None:
        """Delete some, or add some, so that the next loan has something to do; or only ask."""
        names = self.rng.sample(sorted(self.held), 40)
        if turn % 3 == 0:
            self.model.delete(names)
            for name in names:
                del self.held[name]
        elif turn % 3 == 1:
            new = {f"t{turn}-{i}": sample(self.rng) for i in range(40)}
            rows, labels = zip(*new.values(), strict=True)
            self.model.add(list(rows), list(labels), ids=list(new))
            self.held |= new
        else:
            self.model.predict([sample(self.rng)[0]])

    def compare(self) -> None:
        """The answers, whether the tags are looked through or resolved, are those of a forest grown in plain Python."""
        rows = [oracle.Row(name, tuple(row), label) for name, (row, label) in self.held.items()]
        parameters = oracle.Parameters(seed=self.seed, n_attributes=2, min_samples_split=2, **PARAMETERS)  # type: ignore[arg-type]
        forest = oracle.fit(rows, parameters, COLUMNS, "classification")
        queries = [sample(self.rng)[0] for _ in range(8)]
        expected = oracle.predict_proba(forest, queries)
        for frozen in (True, False):
            assert self.model.query(queries, frozen=frozen).probabilities.tolist() == expected
        self.n_asked += 1


def test_four_threads_at_four_forests() -> None:
    async def main() -> list[World]:
        worlds = [World(seed) for seed in range(N_THREADS)]
        await asyncio.gather(*(world.live() for world in worlds))
        return worlds

    worlds = asyncio.run(main())
    assert all(world.n_asked == 3 for world in worlds)
    assert sum(world.n_stopped for world in worlds) > 20, "threads were stopped in the middle of their work"
