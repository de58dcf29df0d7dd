"""One operation with one fault, and whether the model is what it may be afterwards."""

from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

from oubli.core.errors import EmptyModelError, UnusableModelError
from tests.exact.core.interruptions.cases import OPERATIONS, Case
from tests.lines import Count

_GENERATING = ("add one", "partial_fit")  # operations that generate ids, which are never issued again


class Outcome(Enum):
    """What a fault led to."""

    NOTHING = "it did not come, or was made up for"
    BEFORE = "the model is as before"
    AFTER = "the change is made, and the error came"
    REFUSES = "the model says that it is unusable"


class Trials:
    """Operations on copies of one model, with faults; whatever is wrong afterwards is an AssertionError."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = case.fitted()
        self.before = _contents(self.model)
        self.digest = self.model.copy().digest()
        self._after: dict[str, tuple[Any, str]] = {}
        self._copies = 0

    def fresh(self) -> Any:
        model = self.model.copy()
        self._copies += 1
        if self._copies % 2:
            model.samples_.build_index()
        return model

    def after(self, name: str) -> tuple[Any, str]:
        """Contents and digest after an operation without a fault."""
        if name not in self._after:
            model = self.fresh()
            OPERATIONS[name](model, self.case)
            self._after[name] = _contents(model), model.digest()
        return self._after[name]

    def chances(self, name: str, fault: AbstractContextManager[Count]) -> int:
        """How many faults there can be in an operation."""
        model = self.fresh()
        with fault as count:
            OPERATIONS[name](model, self.case)
        return count.n

    def run(self, name: str, fault: AbstractContextManager[Any]) -> Outcome:
        after, digest_after = self.after(name)
        model = self.fresh()
        was_raised = False
        try:
            with fault:
                OPERATIONS[name](model, self.case)
        except (MemoryError, KeyboardInterrupt):
            was_raised = True
        if self._refuses(model):
            return Outcome.REFUSES
        found = _contents(model)
        is_made = found == after
        assert is_made or found == self.before, "the samples are neither those of before nor those of after"
        if not was_raised:
            assert is_made, "there was no error, and the change is not made"
        self._is_sound(model)
        if self.case.kind in ("forest", "incremental-boosting"):
            assert model.digest() == (digest_after if is_made else self.digest)
        if not is_made:
            if self.case.kind == "tree":  # whatever has been resolved
                assert model.digest() == self.digest
            OPERATIONS[name](model, self.case)
            assert _named(_contents(model)) == _named(after), "the operation repeated gives something else"
            self._is_sound(model)
            if self.case.kind in ("forest", "incremental-boosting") and name not in _GENERATING:
                assert model.digest() == digest_after, "the operation repeated gives another model"
        return Outcome.NOTHING if not was_raised else Outcome.AFTER if is_made else Outcome.BEFORE

    def _is_sound(self, model: Any) -> None:
        model.check_invariants()
        verdict = model.verify()
        assert verdict.ok, f"the model does not verify: {verdict}"

    def _refuses(self, model: Any) -> bool:
        """Whether the model says that it is unusable; then everything must, until it is fitted."""
        rows = self.case.samples(2)[0]
        try:
            model.predict(rows)
        except UnusableModelError:
            pass
        except EmptyModelError:  # `start` got to its end
            return False
        else:
            return False
        assert not model.is_usable
        for name, operation in OPERATIONS.items():
            if name in ("fit", "start"):
                continue
            try:
                operation(model, self.case)
            except UnusableModelError:
                continue
            raise AssertionError(f"{name} does not refuse")
        OPERATIONS["fit"](model, self.case)
        assert model.is_usable
        self._is_sound(model)
        return True


def _contents(model: Any) -> list[Any]:
    """Everything that is held of every sample."""
    store, restricted = model.samples_, model.samples_.restricted
    held = [
        repr((store.get(name), store.origin(name), store.addition(name), store.nonce(name))) for name in store.ids()
    ]
    held += [repr((restricted.get(name), restricted.belongings(name), restricted.marks)) for name in restricted.ids()]
    return sorted(held)


def _named(contents: list[str]) -> list[str]:
    """The same without ids, for those that are generated."""
    return sorted(text.split(",", 1)[1] for text in contents)
