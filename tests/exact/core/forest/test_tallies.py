"""Many classes: nodes number those that they have, and leaves have a tally for each; their memory, and wrong ones.

What such leaves say is compared with the oracle in histories, by `most_counters` of `tests/histories/kinds.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, load, persistence
from oubli.core.errors import FileError
from oubli.core.forest.engine import ForestEngine
from oubli.core.forest.layout import blocks

N, MANY = 600, ForestEngine.most_counters + 4
RNG = np.random.default_rng(0)
X = RNG.integers(0, 12, (N, 4)).astype(np.float32)  # equal rows of several classes make leaves that are not pure
Y = RNG.integers(0, MANY, N)


def fitted() -> DynamicForestClassifier:
    return DynamicForestClassifier(n_estimators=6, random_state=3).fit(X, Y)


def test_classes_that_come_make_tallies_of_counters() -> None:
    few = np.less(Y, ForestEngine.most_counters)
    model = DynamicForestClassifier(n_estimators=6, random_state=3).fit(X[few], Y[few], ids=np.flatnonzero(few))
    assert not len(model.engine_.trees.tallies)
    for i in np.flatnonzero(~few).tolist():
        model.add(X[i : i + 1], Y[i : i + 1], ids=[i])
    assert len(model.engine_.trees.tallies)
    assert model.digest() == DynamicForestClassifier(n_estimators=6, random_state=3).fit(X, Y).digest()
    assert model.verify().ok


@pytest.mark.parametrize("parameters", [{}, {"criterion": "entropy"}, {"lazy": False, "n_jobs": 2}], ids=str)
def test_nodes_counting_few_classes_split_the_same(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples have weights, categories and missing values."""
    rows = [[None if x == 11 else f"v{x}" if i % 2 else x for i, x in enumerate(row)] for row in X.tolist()]
    weights = RNG.choice([1, 1, 2, 0.5], N)

    def lived() -> str:
        model = DynamicForestClassifier(n_estimators=6, random_state=3, **parameters)
        model.fit(rows, Y, ids=range(N), sample_weight=weights)
        widths = model.engine_.parameters["width"].tolist()
        assert widths == [MANY, 2, 8] if blocks._FEW_CLASSES == 2 else widths == [MANY]
        model.delete(range(0, N, 9))
        return model.digest()

    narrow = lived()
    monkeypatch.setattr(blocks, "_FEW_CLASSES", MANY)
    assert narrow == lived()


def test_no_memory_is_taken_for_counters_that_no_node_keeps_and_classes_that_a_leaf_has_never_seen() -> None:
    model = DynamicForestClassifier(n_estimators=6, random_state=3).fit(X, np.arange(N))
    assert model.engine_.blocks.longs.nbytes < 5 * 2**20
    assert model.verify().ok
    trees = fitted().engine_.trees
    assert (trees.statistics.nbytes, trees.tallies.nbytes) == (0, 2 * trees.members.nbytes)


def refuse_file(path: Path, damage: Callable[[Any], None]) -> None:
    """Damage the tallies of a file, under a checksum that is right: it is refused."""
    document, arrays = persistence.read(path)
    damage(arrays["forest.tallies"])
    persistence.write(path, arrays, document)
    with pytest.raises(FileError, match="restore another file"):
        load(path)


def _another_class(tallies: Any) -> None:
    used = np.flatnonzero(tallies[:, 1])[0]
    tallies[used, 0] = (tallies[used, 0] + 1) % MANY


def _one_more(tallies: Any) -> None:
    tallies[np.flatnonzero(tallies[:, 1])[0], 1] += 1


def _left_over(tallies: Any) -> None:
    tallies[np.flatnonzero(tallies[:, 1] == 0)[0]] = 1


@pytest.mark.parametrize("damage", [_another_class, _one_more, _left_over])
def test_wrong_tallies_are_found(tmp_path: Path, damage: Callable[[Any], None]) -> None:
    model = fitted()
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").digest() == model.digest()
    refuse_file(tmp_path / "model", damage)
    damage(model.engine_.trees.tallies)
    assert not model.verify().ok


@pytest.mark.parametrize("value", [MANY, -1, 2**31 - 1])
@pytest.mark.parametrize("column", [0, 1])
def test_tallies_that_kernels_could_not_follow_are_refused(tmp_path: Path, column: int, value: int) -> None:
    fitted().save(tmp_path / "model")
    refuse_file(tmp_path / "model", lambda tallies: tallies[:, column].fill(value))
