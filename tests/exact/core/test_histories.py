"""After every operation of any history a model is what goes along with it says (`tests/histories`)."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from tests.histories.kinds import ASKED, BY_NAME, RESTRICTING, Kind, asking, histories
from tests.histories.player import TALLIES, play
from tests.histories.worlds import Chooser, History
from tests.tiers import ordinary


class Share(NamedTuple):
    """How much of a kind is tried."""

    parts: int  # all but the first are long
    n: int  # histories a part
    interpreted: int  # the same where kernels are not compiled
    max_operations: int
    max_rows: int
    shrunk: int  # of Hypothesis
    first: int = 0  # seed


SHARES = {
    "forest": Share(14, 15, 15, 30, 60, 100), "tree": Share(8, 13, 3, 25, 60, 40),
    "feasible": Share(8, 4, 2, 25, 150, 30), "quantised": Share(3, 13, 2, 12, 60, 20),
    "regions": Share(6, 4, 2, 12, 40, 0), "quantised oracle": Share(8, 5, 2, 5, 50, 0, 10_000),
    "presorted": Share(4, 15, 2, 12, 60, 20), "presorted oracle": Share(3, 7, 2, 6, 40, 0, 10_000),
    "online": Share(4, 15, 2, 12, 60, 20), "online oracle": Share(3, 8, 2, 8, 40, 10, 10_000),
}  # fmt: skip


def play_all(kind: Kind, numbers: range, max_operations: int, max_rows: int) -> None:
    """Play the histories of some seeds to their ends; among their updates there must be some of each kind."""
    before = TALLIES[kind.name].outcomes.copy()
    for number in numbers:
        play(kind, kind.random_history(number, max_operations, max_rows))
    found = TALLIES[kind.name].outcomes - before
    if len(numbers) > 12 and "oracle" not in kind.name:
        assert kind.outcomes <= set(found), "not all kinds of updates were tested"
    if kind.name == "feasible":
        assert found["feasible"] > 20 * len(numbers)


@pytest.mark.parametrize(("name", "part"), [
    pytest.param(name, part, marks=() if part == 0 else pytest.mark.long)
    for name, share in SHARES.items()
    for part in range(share.parts)
])  # fmt: skip
def test_random_histories(name: str, part: int) -> None:
    share = SHARES[name]
    n = share.interpreted if config.DISABLE_JIT else share.n
    play_all(BY_NAME[name], range(share.first + n * part, share.first + n * part + n), *share[3:5])


@pytest.mark.parametrize("part", ordinary(range(2), 0))
@pytest.mark.parametrize(("name", "max_rows"), [("presorted oracle", 40), ("quantised oracle", 120)])
def test_fits(name: str, max_rows: int, part: int) -> None:
    """One fit each: more samples than histories have, so that edges and candidates are drawn."""
    n = SHARES[name].interpreted if config.DISABLE_JIT else 8
    for number in range(n * part, n * part + n):
        world = BY_NAME[name].choose_world(Chooser.of_seed(number), max_rows)
        world = replace(world, parameters={**world.parameters, "max_bins": [2, 9, 40, 255][number % 4]})
        play(BY_NAME[name], History(world, (("fit", len(world.rows)),), number))


@pytest.mark.parametrize("part", ordinary(range(5), 0))
def test_long_lives(part: int) -> None:
    """Many single mutations, nearly all of which leave the trees as they are: are they right to?"""
    for number in range(4 * part, 4 * part + 4):
        play(BY_NAME["forest"], BY_NAME["forest"].long_life(number, n_operations=60))


@pytest.mark.parametrize(
    ("name", "n"), [("forest", 12), ("tree", 8), ("quantised", 4), ("presorted", 4), ("online", 4)]
)
def test_histories_with_restriction(name: str, n: int) -> None:
    """Restricted samples are in no tree and in every copy and file."""
    kind = replace(BY_NAME[name], mixtures=(RESTRICTING,))
    before = TALLIES[name].operations.copy()
    play_all(kind, range(30_000, 30_000 + n), 20, 40)
    operations = TALLIES[name].operations - before
    assert operations["restrict"] >= n
    assert operations["release"] > n / 2


# Kinds of boosting, and what their histories ask for; the oracle of online boosting knows no constraints.
ASKING = [(name, asked) for name in SHARES for asked in ASKED if BY_NAME[name].kind.endswith("boosting")]
ASKING.remove(("online oracle", "monotone constraints"))


@pytest.mark.parametrize(("name", "asked"), ASKING)
def test_histories_of_each_loss(name: str, asked: str) -> None:
    """And with constraints: few and small ones; the others have some of them, and those of `tests/long` many."""
    play_all(asking(BY_NAME[name], asked), range(50_000, 50_000 + (1 if config.DISABLE_JIT else 2)), 8, 30)


@pytest.mark.parametrize("share", [0.3, pytest.param(2.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [name for name, share in SHARES.items() if share.shrunk])
def test_histories_that_shrink(name: str, share: float) -> None:
    """Fewer and simpler than the random ones; what fails here comes as its smallest example."""

    @settings(max_examples=int(share * SHARES[name].shrunk))
    @given(st.data())
    def one(data: st.DataObject) -> None:
        play(BY_NAME[name], data.draw(histories(BY_NAME[name], 10, 30)))

    one()
