"""Nodes in order make the same model, and a path goes through few pages."""

from unittest.mock import patch

import numpy as np

from oubli.core import DynamicForestClassifier
from oubli.core.forest.layout import pages

N = 3000


def test_nodes_in_order_are_the_same_trees_and_the_first_levels_share_a_page() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3)), rng.integers(0, 2, N)
    plain = DynamicForestClassifier(n_estimators=3, random_state=0).fit(X, y)
    with patch.object(pages, "_LEAST", 0):
        model = DynamicForestClassifier(n_estimators=3, random_state=0).fit(X, y)
    child = model.engine_.trees.nodes["child"]
    assert model.engine_.rows_taken().tolist() == plain.engine_.rows_taken().tolist()
    assert child.tolist() != plain.engine_.trees.nodes["child"].tolist()
    for tree in range(3):
        children = child[child[tree] : child[tree] + 2]
        assert (children - child[tree]).tolist() == [2, 4]
    for one in (plain, model):
        one.delete([str(i) for i in range(50)])
        one.add(X[:9], y[:9])
    assert model.digest() == plain.digest()
    assert model.predict_proba(X).tobytes() == plain.predict_proba(X).tobytes()
    assert model.verify().ok
