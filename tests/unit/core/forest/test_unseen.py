"""Bands of class probabilities against the plain definition in the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from oubli.core.forest.unseen import banded
from tests.oracles import forest as oracle


@pytest.mark.parametrize("n_classes", [1, 2, 3, 4, 5, 9])
def test_bands_are_those_of_the_oracle_to_the_bit(n_classes: int) -> None:
    drawn = np.random.default_rng(0).dirichlet(np.full(n_classes, 0.5), size=500)
    ends = np.round(4 * drawn) / 4
    same, none = np.full((1, n_classes), 1 / n_classes), np.zeros((1, n_classes))
    for rows in (drawn, ends, np.nextafter(ends, 2), np.nextafter(ends, 0), np.eye(n_classes), same, none):
        assert banded(rows).tolist() == [oracle.banded(row.tolist()) for row in rows]
