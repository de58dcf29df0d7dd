"""Models that can be copied, pickled, written to a file and read again."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from oubli.core import persistence
from oubli.core.base import Estimator
from oubli.core.bounds import is_same_json
from oubli.core.data.schema import Schema, Task
from oubli.core.errors import FileError, InputError
from oubli.core.samples.serialise import canonical_parts, store_bytes
from oubli.core.samples.store import SampleStore

Arrays = dict[str, npt.NDArray[Any]]


class Keepable(Estimator, ABC):
    """A model as its files know it; `Model` says the rest.

    Attributes
    ----------
    kind : name of the kind, in model files and settings.
    task : classification or regression.
    schema_ : types of columns and label.
    samples_ : the samples held.
    seed_ : what the trees draw from, if they draw anything.
    """

    kind: ClassVar[str]
    task: ClassVar[Task]

    schema_: Schema
    samples_: SampleStore
    seed_: int

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """What the trees are, compared with a fresh fit: "exact", "epsilon-feasible" or "approximate"."""

    @property
    @abstractmethod
    def _settings(self) -> Any:
        """The parameters in force, as numbers; `seed` is one of them."""

    @abstractmethod
    def begin(self, schema: Schema, settings: Any, store: SampleStore | None = None) -> None:
        """Hold the samples of a store (none when left out), over trees yet to be grown.

        settings : what `_read_settings` returned, of this model or of another one of its kind.
        """

    @abstractmethod
    def resolve(self, max_tags: int | None = None) -> int:
        """Rebuild what has been put off and return how many tags there were; or work on `max_tags` at most.

        Queries do this by themselves, for their own paths. Resolving ahead keeps them fast.
        """

    @abstractmethod
    def digest(self) -> str:
        """Hash of everything that can influence a prediction; resolves all tags."""

    # -- what a kind says -----------------------------------------------------------------------

    @abstractmethod
    def _copy_trees_to(self, other: Self) -> None:
        """Give the trees to a copy, which holds a copy of the samples."""

    @abstractmethod
    def _take_apart(self) -> tuple[dict[str, Any], Arrays]:
        """Describe the trees by JSON-able values and arrays, without tags."""

    @staticmethod
    @abstractmethod
    def _describe_settings(settings: Any) -> dict[str, Any]:
        """Return settings as JSON-able values, as a file has them."""

    @classmethod
    @abstractmethod
    def _check_description(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        """Check what a file says before anything is made of it; FileError says what is wrong.

        The settings are those of the parameters.
        """

    @classmethod
    @abstractmethod
    def _tree_bytes(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> int:
        """Bytes of the trees that are made of a file, roughly; asked after `_check_description`."""

    @abstractmethod
    def _checked_settings(self, schema: Schema) -> Any:
        """Check the parameters and return the settings; InputError names the one that does not fit."""

    @classmethod
    def bytes_asked(
        cls, schema: Schema, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool = True
    ) -> int:
        """Bytes of what is made of a file, roughly."""
        return store_bytes(schema, arrays) + cls._tree_bytes(document, arrays, with_trees=with_trees)

    @abstractmethod
    def seconds_to_verify(self) -> float:
        """How long `verify` takes, roughly."""

    @abstractmethod
    def _put_together(
        self, document: Mapping[str, Any], arrays: Arrays, store: SampleStore, *, with_trees: bool
    ) -> None:
        """Begin with the samples of a store, and take the trees over that `_take_apart` gave; or grow them anew."""

    @abstractmethod
    def _check_trees(self) -> None:
        """Check that trees from a file can be trusted; FileError says what is wrong."""

    # -- all or nothing --------------------------------------------------------------------------

    def _check_is_fitted(self) -> None:
        """Check that there is a model, and that no change of it was broken off.

        Raises
        ------
        NotFittedError, UnusableModelError
        """
        try:
            changes = self.samples_.changes
        except AttributeError:
            self._refuse_unfitted()
        if changes.depth:
            changes.refuse()

    @property
    def is_usable(self) -> bool:
        """Whether there is a model that can be used: fitted, and no change of it was broken off halfway."""
        return self.__sklearn_is_fitted__() and not self.samples_.changes.depth

    def _beside(self) -> Self:
        """An unfitted estimator with the same parameters, to be fitted and then taken over (`_become`)."""
        other: Self = object.__new__(type(self))
        other.__dict__.update((name, getattr(self, name)) for name in self._parameter_names())
        return other

    def _become(self, other: Self) -> None:
        """Take over what another estimator was fitted to, in one step; parameters stay."""
        parameters = self._parameter_names()
        fitted = {name: value for name, value in vars(other).items() if name not in parameters}
        state = {**vars(self), **fitted}
        if "feature_names_in_" not in fitted:
            state.pop("feature_names_in_", None)
        self.__dict__ = state

    # -- copies ---------------------------------------------------------------------------------

    def copy(self) -> Self:
        """An independent copy; O(size), without resolving anything.

        Other threads may read the model meanwhile, and are not kept waiting.
        """
        self._check_is_fitted()
        other = self._unfitted()
        other.begin(self.schema_, self._settings, self.samples_.copy())
        self._copy_trees_to(other)
        return other

    def _unfitted(self) -> Self:
        # A RandomState is copied as well: drawing from one model's must not move the other's.
        return type(self)(**deepcopy(self.get_params()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy() if self.__sklearn_is_fitted__() else self._unfitted()

    # -- files and pickles ----------------------------------------------------------------------

    def to_parts(self) -> tuple[dict[str, Any], Arrays]:
        """Describe a fitted model by JSON-able values and arrays, for files and pickles; resolves all tags."""
        self._check_is_fitted()
        self.resolve()
        kind_document, arrays = self._take_apart()
        parameters = {**self.get_params(), "random_state": self.seed_}
        document = {
            "kind": self.kind,
            "task": self.task.value,
            "guarantee": self.guarantee,
            # A search over np.arange(...) sets NumPy's numbers, which JSON does not know.
            "parameters": {name: v.item() if isinstance(v, np.generic) else v for name, v in parameters.items()},
            "schema": self.schema_.to_dict(),
            "n_samples": len(self.samples_),
            **kind_document,
        }
        return document, {**arrays, **self.samples_.state()}

    def _restore(self, document: Mapping[str, Any], arrays: Arrays) -> None:
        """Take over the fitted state that `to_parts` gave; FileError when the parts do not fit together."""
        schema = Schema.from_dict(document["schema"])
        store = SampleStore.from_state(schema, arrays, owner=type(self).__name__)
        self._put_together(document, arrays, store, with_trees=True)

    def save(self, path: str | PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write the model to one file; resolves all tags.

        The file is complete or not there: it is written beside the place and moved there. It holds
        nothing of deleted samples. Other threads may read the model meanwhile, if it has no tags, and are not
        kept waiting.

        Parameters
        ----------
        path : where to.
        extra : text to keep with the model, for the caller.

        Raises
        ------
        InputError
            When the parameters are not those any more that the model was fitted with, or `extra` holds other things
            than texts.
        """
        self._check_is_fitted()
        if not all(type(name) is type(text) is str for name, text in (extra or {}).items()):
            raise InputError("extra must hold texts by their names")
        digest = self.digest()
        document, arrays = self.to_parts()
        described = self._describe_settings(type(self)(**document["parameters"])._checked_settings(self.schema_))
        if not is_same_json(described, document["settings"]):
            raise InputError("the parameters were changed after `fit`: set them back, or fit again, before saving")
        document |= {"digest": digest, "extra": dict(extra or {})}
        arrays = persistence.fill_up(arrays, self.bytes_asked(self.schema_, document, arrays))
        persistence.write(path, arrays, document)

    @classmethod
    def load(cls, path: str | PathLike[str], *, verify: bool | None = None) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : the file.
        verify : whether to compare with a fresh fit, see `oubli.load`.

        Raises
        ------
        FileError
            When the file is unreadable, truncated, altered, foreign or of a newer format, or holds
            another kind of model.
        """
        model = persistence.load(path, verify=verify)
        if not isinstance(model, cls):
            raise FileError(f"the file holds a {type(model).__name__}: use its `load`, or `oubli.load`")
        return model

    @classmethod
    def from_parts(cls, document: dict[str, Any], arrays: Arrays, *, with_trees: bool = True) -> Self:
        """Put a model together from what `to_parts` returned, checked; without `with_trees` they are grown anew."""
        return cls.read_parts(document, arrays, regrow="" if with_trees else persistence.ASKED_FOR)[0]

    @classmethod
    def read_parts(
        cls, document: dict[str, Any], arrays: Arrays, *, regrow: str = "", limit: int | None = None
    ) -> tuple[Self, str]:
        """Put a model together from what a model file holds, checked; for `oubli.core.persistence`.

        Parameters
        ----------
        document, arrays
            As `to_parts` returns them.
        regrow
            Why the trees are to be grown anew from the samples; empty: take over those of the file.
        limit
            Bytes that may be asked for; None: as many as it takes.

        Returns
        -------
        model, and why its trees were grown anew.
        """
        schema = Schema.from_dict(document["schema"])
        model = cls(**document["parameters"])
        described = model._describe_settings(model._checked_settings(schema))
        if not is_same_json(described, document.get("settings")):
            raise FileError("the file is not sound (its parameters and its settings differ): restore another file")
        if document.get("guarantee", model.guarantee) != model.guarantee:
            raise FileError("the file is not sound (its guarantee is another): restore another file")
        arrays, is_canonical = canonical_parts(schema, arrays)
        # Trees that are not taken over still say how much the file may ask for.
        checks_trees = not regrow and (is_canonical or limit is not None)
        if not is_canonical:
            regrow = regrow or persistence.NOT_CANONICAL
        cls._check_description(document, arrays, with_trees=checks_trees)
        persistence.require_room(cls.bytes_asked(schema, document, arrays, with_trees=checks_trees), limit)
        store = SampleStore.from_state(schema, arrays, owner=cls.__name__)
        model._put_together(document, arrays, store, with_trees=not regrow)
        if not regrow:
            model._check_trees()
        return model, regrow

    def __getstate__(self) -> dict[str, Any]:
        """Pickled by scikit-learn's tools (never by `save`): the fitted state as plain arrays."""
        if not self.__sklearn_is_fitted__():
            return {"parameters": self.get_params()}
        document, arrays = self.to_parts()
        return {"parameters": self.get_params(), "document": document, "arrays": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`."""
        for name, value in state["parameters"].items():
            setattr(self, name, value)
        if "document" in state:
            self._restore(state["document"], state["arrays"])
