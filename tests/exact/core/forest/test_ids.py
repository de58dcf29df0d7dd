"""Ids decide which trees learn a sample and nothing else."""

import pytest

from oubli.core import DynamicForestClassifier

X = [[float(i * 7 % 5), "abc"[i % 3], i % 2 == 0] for i in range(24)]
Y = [i * i % 4 for i in range(24)]


@pytest.mark.parametrize(("occurrence", "n_digests"), [(1.0, 1), (0.34, 2)])
def test_ids_decide_the_trees_and_nothing_else(occurrence: float, n_digests: int) -> None:
    """With q = 1 all samples are in all trees: then the digest must not know the ids.

    A digest that hashed the sample store would pass every other test, and prove nothing.
    """
    make = DynamicForestClassifier(3, occurrence=occurrence, random_state=0)
    names = ([f"{name} {i}" for i in range(24)] for name in ("one", "other"))
    assert len({make.fit(X, Y, ids=ids).digest() for ids in names}) == n_digests
