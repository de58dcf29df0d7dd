"""The estimator: its parameters, what it promises, its window, and how people read it."""

import re
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from oubli.core import DynamicTreeClassifier
from oubli.core.errors import CapacityError, InputError
from oubli.core.tree import engine as module


def table(n: int = 200, seed: int = 0) -> tuple[list[list[Any]], list[str]]:
    """Numbers, some missing, and a category; three classes."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 2)).round(2).tolist()
    colours = rng.choice(["red", "green", "blue"], n).tolist()
    rows = [[a if a < 1.5 else None, b, c] for (a, b), c in zip(numbers, colours, strict=True)]
    labels = ["x" if c == "red" else "y" if b > 0 else "z" for _, b, c in rows]
    return rows, np.where(rng.random(n) < 0.1, "x", labels).tolist()


def fitted(n: int = 200, **parameters: Any) -> Any:
    return DynamicTreeClassifier(**parameters).fit(*table(n))


# Parameters


def test_epsilon_is_derived_from_both() -> None:
    for given_ in ({"alpha": 0.1}, {"beta": 0.1}):
        with pytest.raises(InputError, match="make both greater than 0"):
            fitted(epsilon=None, **given_)
    model = fitted(epsilon=None, alpha=0.1, beta=0.2, pruning_size=3)
    assert model.settings_.tree.epsilon == np.nextafter(0.2 / 12.5, 0)
    assert model.guarantee == "epsilon-feasible"
    assert DynamicTreeClassifier(epsilon=None, alpha=0.1, beta=0.2).guarantee == "epsilon-feasible"  # not yet fitted
    assert DynamicTreeClassifier().guarantee == "approximate"


def test_too_many_samples_are_refused_before_anything_changes() -> None:
    model = fitted(100)
    digest = model.digest()
    rows, labels = table(3)
    with patch.object(module, "MAX_SAMPLES", 101), pytest.raises(CapacityError, match="at most 101 samples"):
        model.add(rows, labels)
    assert (model.digest(), model.n_samples_) == (digest, 100)


# Batches


def test_mutations_are_counted_since_the_last_scrub() -> None:
    model = fitted(100)
    rows, labels = table(5, seed=3)
    assert model.n_mutations_since_scrub_ == 0
    model.add(rows, labels)
    model.delete(["1", "2"])
    assert model.n_mutations_since_scrub_ == 7
    model.replace("3", rows[0], labels[0])
    assert model.n_mutations_since_scrub_ == 9 == model.copy().n_mutations_since_scrub_
    model.resolve()
    model.wipe()
    assert model.n_mutations_since_scrub_ == 9
    model.scrub()
    assert model.n_mutations_since_scrub_ == 0


# Verification


def test_verify_finds_that_a_promise_is_broken() -> None:
    """A tree that was grown with an epsilon that promises nothing, and says that it had another."""
    rng = np.random.default_rng(1)
    X = rng.random((200, 2)).astype(np.float32)
    for depth, finding in ((1, "the split of a node at depth 0"), (10, "is split and must be a leaf")):
        parameters: dict[str, Any] = {"alpha": 0.2, "beta": 0.05, "max_depth": depth}
        model = DynamicTreeClassifier(epsilon=2.0, **parameters).fit(X[:80], X[:80, 0] > 0.5)
        for some in (slice(80, 140), slice(140, 200)):  # all at once would have the tree rebuilt
            model.add(X[some], X[some, 1] > 0.5)
        model.delete([str(i) for i in range(30)])
        assert model.verify().ok  # it promises nothing
        model.engine_.settings = DynamicTreeClassifier(epsilon=None, **parameters).fit(X, X[:, 0] > 0.5).settings_
        result = model.verify()
        assert not result.ok
        assert any(finding in text for text in result.broken_promises), result.broken_promises
        assert all("rebuilt" in text for text in result.wrong_counters)
        model.scrub()
        assert model.verify().ok


def test_verify_finds_a_tree_that_no_fit_gives() -> None:
    rows, labels = table(200)
    fresh = DynamicTreeClassifier(epsilon=2.0).fit(rows, labels)
    other = DynamicTreeClassifier(epsilon=2.0).fit(rows[:100], labels[:100])
    other.add(rows[100:], labels[100:])
    assert other.verify().ok  # its history may be the reason
    other.engine_.n_mutations = 0
    assert fresh.digest() != other.digest()
    result = other.verify()
    assert (result.ok, result.wrong_counters) == (False, [])
    assert (result.live_digest, result.fresh_digest) == (other.digest(), fresh.digest())


# For people


def test_the_text_of_a_leaf_has_the_shares_of_all_its_classes() -> None:
    model = DynamicTreeClassifier().fit([[0.0]] * 20, ["low", "low", "high", "unknown"] * 5)
    assert model.export_text(decimals=3) == "low (20 samples): high 25.0%, low 50.0%, unknown 25.0%"


@pytest.mark.parametrize(("values", "labels", "question"), [
    ([1.0, None], "ab", "f is known"), ([True, False], "ab", "f is false"), (["u", None, "v"], "aba", "f is missing"),
    (["u", 'say "w"'], "ab", r'f is ("u"|"say \\"w\\"")'),
])  # fmt: skip
def test_questions_are_in_words(values: list[Any], labels: str, question: str) -> None:
    """One feature at a time, so that each kind of split is needed."""
    model = DynamicTreeClassifier().fit([[value] for value in values] * 3, list(labels) * 3)
    assert re.fullmatch(question, model.export_text(["f"]).splitlines()[0])


def test_a_category_that_has_gone_is_not_named() -> None:
    model = DynamicTreeClassifier(epsilon=2.0).fit([["u"]] * 3 + [["v"]] * 3 + [["w"]] * 3, ["a"] * 3 + ["b"] * 6)
    assert '"u"' in model.export_text()
    model.delete(["0", "1", "2"])
    assert "is a category that no sample has" in model.export_text()
    assert '"u"' not in model.export_text()
    assert "b (0 samples)" in model.export_text()  # the answer of the node above
