"""A kind of model that lives outside of the project: what it takes to add one.

It answers each query with the shares of the classes held. Run as a program, it registers itself, and is fitted,
changed, saved, loaded, verified and set by settings.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Arrays, Slots
from oubli.core.data.schema import Schema, Task
from oubli.core.engine import Counterpart, Engine, Progress, Shape
from oubli.core.estimators import Classifier
from oubli.core.parameters import Parameter, check_parameters, random_state
from oubli.core.registry import PLACES, Kind
from oubli.core.samples.arrays import Problem

PARAMETERS = (
    Parameter("smoothing", float, 0.0, "Samples that each class has more than it has.", low=0, high=100),
    random_state("Draws nothing; every kind has it."),
)


@dataclass(frozen=True)
class Settings:
    """The parameters in force."""

    smoothing: float
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class MajorityEngine(Engine):
    """Samples by class code."""

    prefix = "majority."
    format = 1

    def __init__(self, settings: Settings, *columns: Any) -> None:
        super().__init__(settings, *columns)
        self.counts = np.zeros(2, np.int64)

    @staticmethod
    def check_capacity(settings: Settings, n_samples: int, n_slots: int = 0) -> None:
        """There is always room."""

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        self.counts = np.bincount(problem.data.targets[slots], minlength=len(problem.ranks))

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        counts = np.zeros(len(problem.ranks), np.int64)
        counts[: len(self.counts)] = self.counts
        np.add.at(counts, problem.data.targets[slots], 1)
        self.changes.undo = None
        self.counts = counts

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        self.changes.undo = None
        np.subtract.at(self.counts, problem.data.targets[slots], 1)

    def predict(
        self,
        cells: npt.NDArray[Any],
        category_hashes: npt.NDArray[np.uint64],
        class_order: npt.NDArray[np.int64],
        problem: Callable[[], Problem],
        frozen: bool,
    ) -> npt.NDArray[np.float64]:
        counts = self.counts[class_order] + self.settings.smoothing
        return np.tile(counts / counts.sum(), (len(cells), 1))

    def importances(self) -> npt.NDArray[np.float64]:
        return np.zeros(self.n_features)

    def header(self) -> dict[str, Any]:
        return {"smoothing": self.settings.smoothing}

    def digests(self, class_order: npt.NDArray[np.int64]) -> list[str]:
        return [hashlib.sha256(self.counts[class_order].astype("<i8").tobytes()).hexdigest()]

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes

    def seconds_to_verify(self, problem: Problem) -> float:
        return problem.n_samples * 1e-5

    def copy(self) -> Self:
        other = self.counterpart()
        other.counts = self.counts.copy()
        return other

    def wipe(self) -> None:
        """There is no working space."""

    def shred(self) -> None:
        self.counts.fill(0)

    def arrays(self) -> Arrays:
        return {"counts": self.counts}

    def notes(self) -> dict[str, Any]:
        return {}

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        self.fit(problem, slots)
        if not np.array_equal(np.trim_zeros(arrays["counts"], "b"), np.trim_zeros(self.counts, "b")):
            raise ValueError("the classes are counted wrong")

    @staticmethod
    def bytes_asked(settings: Settings, shape: Shape, arrays: Arrays) -> int:
        return 8 * shape.n_class_codes

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        counts = np.bincount(problem.data.targets[slots], minlength=len(self.counts))
        return [] if np.array_equal(counts, self.counts) else ["the classes are counted wrong"]

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        assert self.recount(problem, slots) == []


class MajorityClassifier(Classifier):
    """The shares of the classes held."""

    kind = "majority"
    guarantee = "exact"

    def __init__(self, smoothing: float = 0.0, *, random_state: Any = None) -> None:
        self._keep(locals())

    @staticmethod
    def engine_type(settings: Settings) -> type[MajorityEngine]:
        return MajorityEngine

    @classmethod
    def read_settings(cls, parameters: Mapping[str, Any], schema: Schema) -> Settings:
        values = check_parameters(PARAMETERS, parameters)
        return Settings(float(values["smoothing"]), values["seed"])


def register() -> None:
    """Make the kind known: all that a kind outside of its folder needs."""
    PLACES["majority"] = Kind(__name__, {Task.CLASSIFICATION: (__name__, "MajorityClassifier")})


def use_as_a_library(directory: Path) -> None:
    """Fit, change, save, load and verify."""
    import oubli

    model = MajorityClassifier(random_state=0).fit([[1.0], [2.0], [3.0]], ["a", "b", "b"])
    assert model.predict_proba([[9.0]]).tolist() == [[1 / 3, 2 / 3]]
    before = model.digest()
    assert model.add([[4.0]], ["c"]) == ["3"]
    assert model.classes_.tolist() == ["a", "b", "c"]
    model.save(directory / "model")
    loaded = oubli.load(directory / "model", verify=True)
    assert type(loaded) is MajorityClassifier
    assert loaded.digest() == model.digest()
    loaded.delete("3")
    assert loaded.digest() == before
    assert loaded.verify().ok
    loaded.engine_.counts[0] += 1
    assert not loaded.verify().ok
    copy = model.copy()
    copy.scrub()
    copy.check_invariants()
    assert copy.digest() == model.digest()


def use_its_settings() -> None:
    """Ask for the kind by settings of the server."""
    import pytest

    from oubli.app.service.jobs.fits import new_estimator
    from oubli.app.settings import SettingsError, load_settings

    settings = load_settings(model="majority", smoothing=2)
    assert new_estimator(settings, Task.CLASSIFICATION).get_params() == {"smoothing": 2.0, "random_state": None}
    for wrong in ({"model": "forest", "smoothing": 2}, {"model": "majority", "smoothing": 200}):
        with pytest.raises(SettingsError, match="--smoothing"):
            load_settings(**wrong).model_parameters()


if __name__ == "__main__":
    # Under its own name: the registry imports it by that.
    from tests import toy_kind

    toy_kind.register()
    toy_kind.use_as_a_library(Path(sys.argv[1]))
    toy_kind.use_its_settings()
