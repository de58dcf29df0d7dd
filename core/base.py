"""What every estimator shares with scikit-learn, without needing it.

scikit-learn's own classes (its NotFittedError, its Tags) are only used once somebody else has
imported it.
"""

import inspect
import warnings
from typing import TYPE_CHECKING, Any, Self

from oubli.core.errors import InputError, NotFittedError, for_scikit_learn

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema
    from oubli.core.samples.store import SampleStore


class Estimator:
    """Parameters and tags by scikit-learn's conventions."""

    schema_: "Schema"
    samples_: "SampleStore"
    _estimator_type: str

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Keep the constructor's arguments, as they are, in attributes of their names."""
        self.__dict__.update((name, value) for name, value in arguments.items() if name != "self")

    @classmethod
    def _parameter_names(cls) -> list[str]:
        signature = inspect.signature(cls.__init__)
        return sorted(name for name in signature.parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters; they take effect with the next `fit`.

        Raises
        ------
        InputError
            When there is no parameter of this name.
        """
        known = self._parameter_names()
        for name in params:
            if name not in known:
                raise InputError(
                    f"Invalid parameter {name!r} for estimator {type(self).__name__}. Valid parameters are: {known}"
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Name the class and the parameters that are not at their defaults."""
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not _is_default(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit`, `start` or `load` has been called."""
        return hasattr(self, "schema_")

    def check_is_fitted(self) -> None:
        """Check that there is a model, and that no change of it was broken off.

        Raises
        ------
        NotFittedError, UnusableModelError
        """
        try:
            changes = self.samples_.changes
        except AttributeError:
            raise for_scikit_learn(NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet: call 'fit' with samples, or "
                "'start' with a schema, before using it"
            ) from None
        if changes.depth:
            changes.refuse()

    @property
    def is_usable(self) -> bool:
        """Whether there is a model that can be used: fitted, and no change of it was broken off halfway."""
        return self.__sklearn_is_fitted__() and not self.samples_.changes.depth

    def _check_names(self, X: Any) -> None:
        """Warn, as scikit-learn does, when only one of X and the schema has names for its columns.

        Lists are left alone: rows in the order of the features are what they are for.
        """
        self.check_is_fitted()
        named = self.schema_.named
        if isinstance(X, (list, tuple)) or _has_names(X) is named:
            return
        model = type(self).__name__
        if named:
            text = f"X does not have valid feature names, but {model} was fitted with feature names"
        else:
            text = f"X has feature names, but {model} was fitted without feature names"
        warnings.warn(f"{text}: its columns are taken by position", UserWarning, stacklevel=3)

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags; called by scikit-learn only."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier = self._estimator_type == "classifier"
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if is_classifier else None,
            regressor_tags=None if is_classifier else RegressorTags(),
            input_tags=InputTags(allow_nan=True, categorical=True, string=True),
        )


def _is_default(value: Any, default: Any) -> bool:
    # By type as well: max_features=1 is one feature, 1.0 all of them.
    return value is default or (type(value) is type(default) and bool(value == default))


def _has_names(X: Any) -> bool:
    """Whether X is a DataFrame with column names; numbers mean positions."""
    labels = getattr(X, "columns", None)
    return labels is not None and len(labels) > 0 and isinstance(labels[0], str)
