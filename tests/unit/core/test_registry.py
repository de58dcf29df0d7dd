"""Kinds are imported when they are asked for, and are all there."""

import subprocess
import sys
from pathlib import Path

import pytest

import oubli.core
from oubli.core.estimators import KINDS
from oubli.core.registry import ESTIMATORS

ROOT = Path(__file__).resolve().parents[3]


def test_each_kind_is_what_it_is_called() -> None:
    assert len(KINDS) == 7
    for (kind, task), estimator in KINDS.items():
        assert (estimator.kind, estimator.task) == (kind, task)
        assert getattr(oubli.core, estimator.__name__) is estimator
    assert set(oubli.core.__all__) == {*ESTIMATORS, "load", "warm_up"} <= set(dir(oubli.core))


def test_what_is_not_there_is_refused() -> None:
    assert ("forest", "clustering") not in KINDS
    with pytest.raises(KeyError):
        KINDS["shrub", next(iter(KINDS))[1]]
    with pytest.raises(AttributeError, match="no attribute 'Shrub'"):
        _ = oubli.core.Shrub


def test_a_forest_does_not_bring_the_other_kinds_along() -> None:
    """Only the tables of what can be set of them."""
    script = (
        "import sys; from oubli.core import DynamicForestClassifier; import oubli.app.service.build; "
        "others = ('oubli.core.tree.grow', 'oubli.core.boosting.state', 'oubli.core.influence.methods'); "
        "print([name for name in others if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
