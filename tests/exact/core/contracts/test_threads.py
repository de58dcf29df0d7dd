"""Any number of threads gives the same bits, and nothing but the estimator knows how many there are."""

import copy
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from oubli.core import load, persistence
from oubli.core.boosting.quantised import split
from oubli.core.boosting.rows import without_grain
from oubli.core.errors import InputError
from oubli.core.model import Model
from tests.exact.core.contracts.test_contract import CASES, TWO_CLASSES, answers, history, same
from tests.histories.cases import Case, small
from tests.threads import NUMBERS, many_threads
from tests.tiers import ordinary

# With 3 classes and 7 threads the samples are cut, with 5 classes and 2 threads the trees grow side by side.
_QUANTISED, _ONLINE = small("incremental-boosting"), small("online-boosting")
LONG: tuple[tuple[Case, dict[str, Any]], ...] = (
    (_QUANTISED, {"max_depth": 1}), (TWO_CLASSES[1], {"max_depth": 7, "split_sampling": 0.5}),
    (_QUANTISED, {"early_stopping": 2, "validation_fraction": 0.3, "n_estimators": 30}),
    (_QUANTISED, {"quantization": None, "early_stopping": 2, "validation_fraction": 0.3}),
    (_ONLINE, {"max_leaf_nodes": 2}), (_ONLINE, {"split_sampling": 1.0, "robustness": 0.0}),
)  # fmt: skip
MORE = [
    *(replace(one, n_classes=5) for one in (_QUANTISED, _ONLINE)),
    *(pytest.param(replace(one, parameters={**one.parameters, **more}), marks=pytest.mark.long) for one, more in LONG),
]


@pytest.fixture(autouse=True)
def _many() -> Iterator[None]:
    """Work is cut, and sets have regions, however small they are."""
    with many_threads(), without_grain(), patch.object(split, "LEAST_SIZE", 5):
        yield


each = pytest.mark.parametrize("case", ordinary(CASES, *{one.kind: one for one in CASES}.values()), ids=str)


def with_jobs(case: Case, n_jobs: int | None) -> Case:
    return replace(case, parameters={**case.parameters, "n_jobs": n_jobs})


def life(case: Case) -> tuple[Model, list[Any]]:
    """A model after a history, large and small; and digests and answers on the way."""
    model = case.fitted()
    seen: list[Any] = [model.digest(), answers(model, case)]
    history(model, case)
    seen += [model.copy().resolve() > 0, answers(model, case), model.digest()]
    X, y = case.samples(90, 12)
    model.add(X, y)
    model.delete(model.samples_.ids()[10:70])
    verdict = model.verify()
    model.wipe()
    seen += [verdict.ok, verdict.live_digest, verdict.fresh_digest, answers(model, case)]
    model.delete(model.samples_.ids()[:2])
    seen += [model.digest(), model.verify().ok]
    model.scrub()
    model.check_invariants()
    return model, [*seen, model.digest(), model.feature_importances_.tolist()]


@pytest.mark.parametrize("case", [*CASES, *TWO_CLASSES, *MORE], ids=str)
def test_the_same_bits_with_any_number_of_threads(case: Case) -> None:
    expected = life(case)[1]
    for n_jobs in NUMBERS[2:]:
        model, seen = life(with_jobs(case, n_jobs))
        assert seen == expected
        assert model.engine_.n_threads == n_jobs


@each
def test_the_number_can_change_at_any_time(case: Case) -> None:
    one, other = case.fitted(), case.fitted()
    for step, n_jobs in enumerate((7, None, 3)):
        assert other.set_params(n_jobs=n_jobs) is other
        history(one, case, step)
        history(other, case, step)
        same(one, other, case)
        other.check_invariants()
    with pytest.raises(InputError, match="n_jobs=0 must be None"):
        other.set_params(n_jobs=0)
    assert other.engine_.n_threads == 3
    with pytest.raises(InputError, match="n_jobs='all' must be None"):
        with_jobs(case, "all").fitted()  # type: ignore[arg-type]


@each
def test_copies_keep_it_and_files_do_not_know_it(case: Case, tmp_path: Path) -> None:
    model, plain = with_jobs(case, 3).fitted(), case.fitted()
    assert model.get_params()["n_jobs"] == 3
    for other in (model.copy(), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 - ours
        assert other.get_params() == {**model.get_params(), "random_state": other.random_state}
        assert other.engine_.n_threads == 3
        same(other, plain, case)
    model.save(tmp_path / "model")
    plain.save(tmp_path / "plain")
    assert persistence.read_metadata(tmp_path / "model") == persistence.read_metadata(tmp_path / "plain")
    loaded = load(tmp_path / "model")
    assert loaded.n_jobs is None
    assert loaded.engine_.n_threads == 1
    assert "n_jobs" not in model.parameters_of_model()
    assert b"n_jobs" not in (tmp_path / "model").read_bytes()
