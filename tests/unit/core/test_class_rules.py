"""Which classes a model may have: closed ones, and how many."""

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oubli.core import load
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import InputError
from oubli.core.estimators import KINDS
from oubli.core.samples.owners import Mark

ESTIMATORS = [KINDS[key] for key in KINDS if key[1] == Task.CLASSIFICATION]
ROWS = [[float(i)] for i in range(8)]
LABELS = ["low", "high"] * 4


def fitted(estimator: Any, **options: Any) -> Any:
    return estimator(random_state=0).fit(ROWS, LABELS, **options)


def refusal(change: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        change()
    return caught.value


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("option", "rule"), [({"classes": "closed"}, "closed"), ({"max_classes": 2}, "max_classes")])
def test_another_class_is_refused_however_it_comes(estimator: Any, option: dict[str, Any], rule: str) -> None:
    model = fitted(estimator, **option)
    digest = model.digest()
    for change, row in (
        (lambda: model.add([[1.0]], ["hgih"]), 0),
        (lambda: model.add([[1.0], [2.0], [3.0]], ["low", "high", "hgih"]), 2),
        (lambda: model.replace("0", [1.0], "hgih"), 0),
        (lambda: model.partial_fit([[1.0]], ["hgih"]), 0),
    ):
        error = refusal(change)
        assert (error.row, error.field, error.value) == (row, "label", "hgih")
        assert rule in error.rule
        assert "hgih" not in error.rule
    assert model.digest() == digest
    model.check_invariants()
    if rule == "max_classes":
        model.delete([str(i) for i in range(1, 8, 2)])
        model.add([[9.0]], ["other"])


def test_a_class_without_samples_stays_allowed(tmp_path: Path) -> None:
    model = fitted(KINDS["forest", "classification"], classes="closed")
    model.delete([str(i) for i in range(1, 8, 2)])
    assert model.classes_.tolist() == ["low"]
    model.save(tmp_path / "model")
    for again in (model, load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), model.copy(), model.fresh_fit()):  # noqa: S301
        again.add([[9.0]], ["high"])
        assert again.classes_.tolist() == ["high", "low"]
        refusal(lambda again=again: again.add([[9.0]], ["hgih"]))
        again.refit()
        refusal(lambda again=again: again.add([[9.0]], ["hgih"]))


def test_classes_are_open_unless_something_says_otherwise() -> None:
    forest = KINDS["forest", "classification"]
    model = fitted(forest)
    model.add([[9.0]], ["hgih"])
    assert model.classes_.tolist() == ["hgih", "high", "low"]
    assert fitted(forest, classes="closed").fit(ROWS, LABELS).schema_.classes is None
    columns = (Column("x", ColumnType.NUMERIC),)
    listed = Schema(columns, Task.CLASSIFICATION, LabelType.STRING, classes=("high", "low", "none"))
    model = fitted(forest, schema=listed)
    model.add([[9.0]], ["none"])
    refusal(lambda: model.add([[9.0]], ["hgih"]))
    fitted(forest, schema=listed, classes="open").add([[9.0]], ["hgih"])
    assert refusal(lambda: fitted(forest, classes=["low"])).row == 1
    for wrong in ("shut", 1, {"low"}):
        assert refusal(lambda wrong=wrong: fitted(forest, classes=wrong)).field == "classes"


def test_closing_and_opening_a_model_keeps_its_samples() -> None:
    model = fitted(KINDS["forest", "classification"])
    digest = model.digest()
    model.samples_.set_subject("1", "ada")
    model.add([[9.0]], ["rare"], ids=["r"])
    model.samples_.set_subject("r", "ada")
    model.restrict(["r"], {"ada": Mark(1, keeps=True)})
    model.set_classes("closed", None)
    refusal(lambda: model.add([[9.0]], ["hgih"]))
    model.release(["r"])
    assert model.classes_.tolist() == ["high", "low", "rare"]
    model.delete("r")
    assert model.digest() == digest
    model.set_classes("open", None)
    model.add([[9.0]], ["hgih"])


def test_a_thousand_classes_are_the_most_by_default() -> None:
    forest, X, labels = KINDS["forest", "classification"](1), np.arange(1001.0)[:, None], list(range(1001))
    assert refusal(lambda: forest.fit(X, labels)).row == 1000
    assert len(forest.fit(X, labels, max_classes=1001).classes_) == 1001


def test_rules_are_in_the_schema_and_only_where_there_are_some() -> None:
    plain = fitted(KINDS["forest", "classification"]).schema_
    assert plain.to_dict()["label"] == {"name": "label", "type": "string"}
    ruled = plain.with_classes("closed", 5, ["b", "a", "b"])
    assert ruled.to_dict()["label"] == {"name": "label", "type": "string", "classes": ["a", "b"], "max_classes": 5}
    assert Schema.from_dict(ruled.to_dict()) == ruled
    mixed = Schema(plain.columns, Task.CLASSIFICATION, LabelType.SCALAR, classes=(1, True, 1.5, "1"))
    assert [mixed.allows(label) for label in (1, True, 1.5, "1", 1.0, False)] == [True, True, True, True, False, False]
    assert Schema.from_dict(mixed.to_dict()) == mixed


def test_a_regression_has_no_classes() -> None:
    model = KINDS["forest", "regression"](random_state=0)
    refusal(lambda: model.fit(ROWS, list(range(8)), classes="closed"))
    model.fit(ROWS, list(range(8)), classes="open", max_classes=2)


CHANGE = st.tuples(st.sampled_from(["add", "replace", "delete"]), st.integers(0, 10**6), st.integers(1, 30))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=15)
@example(changes=[("add", 1, 1), ("add", 433, 18), ("replace", 1911, 1)], n_classes=22, most=12, is_closed=False)
@given(
    changes=st.lists(CHANGE, max_size=8), n_classes=st.integers(2, 300), most=st.integers(2, 40),
    is_closed=st.booleans(),
)  # fmt: skip
def test_any_changes_keep_to_the_rules_or_change_nothing(
    estimator: Any, changes: list[tuple[str, int, int]], n_classes: int, most: int, is_closed: bool
) -> None:
    """Many classes come and go, in batches: a change is refused if and only if it would break a rule."""
    model = fitted(estimator, max_classes=most, **({"classes": "closed"} if is_closed else {}))
    held = dict(zip(model.samples_.ids(), LABELS, strict=True))
    for number, (what, seed, n) in enumerate(changes):
        rng = random.Random(seed)
        labels = [rng.choice([*LABELS[:2], f"class {rng.randrange(n_classes)}"]) for _ in range(n)]
        names = rng.sample(sorted(held), min(n, len(held) - 1))
        if what == "delete":
            model.delete(names)
            held = {name: label for name, label in held.items() if name not in names}
            continue
        changed = dict(zip([f"{number}-{i}" for i in range(n)] if what == "add" else names[:1], labels, strict=False))
        new = set(changed.values()) - set(held.values())
        rest = {label for name, label in held.items() if name not in changed}
        is_refused = bool(is_closed and new - set(LABELS)) or (bool(new) and len(rest | new) > most)
        digest = model.digest()
        try:
            for name, label in changed.items() if what == "replace" else ():
                model.plan_replace(name, [[float(seed % 9)]], label)  # as a request is checked
                model.replace(name, [float(seed % 9)], label)
            if what == "add":
                model.add([[float(i)] for i in range(n)], labels, ids=list(changed))
        except InputError:
            assert is_refused
            assert model.digest() == digest
        else:
            assert not is_refused
            held |= changed
        assert model.classes_.tolist() == sorted(set(held.values()))
    model.check_invariants()
    assert model.verify().ok
