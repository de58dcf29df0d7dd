"""Views of fitted models: of our boosted kinds, and of other libraries' with the samples that they were trained on.

A library is only used once its model is here, so that none of them is needed.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from oubli.core.errors import InputError
from oubli.core.influence.views import View

_READERS = {"lightgbm": "from_lightgbm", "xgboost": "from_xgboost", "sklearn": "from_scikit_learn"}  # by library
_KNOWN = "LightGBM's, XGBoost's, and scikit-learn's GradientBoosting and HistGradientBoosting models"


def view(
    model: Any, X: Any = None, y: Any = None, *, sample_weight: Any = None, ids: Iterable[Any] | None = None
) -> View:
    """Make the read-only view of a fitted boosted model that `influence` asks.

    Parameters
    ----------
    model
        One of our boosted kinds, which holds its samples; or a boosted model of LightGBM, XGBoost or scikit-learn.
    X, y, sample_weight
        What a model of another library was fitted on, in the order of `ids`.
    ids
        Names of the samples; "0", "1", ... when left out.

    Raises
    ------
    InputError
        When the model is of no such kind, was trained in a way that influence is not defined for, or on other samples.

    Examples
    --------
    >>> from oubli import IncrementalBoostingRegressor
    >>> model = IncrementalBoostingRegressor(n_estimators=5, random_state=0).fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0])
    >>> seen = view(model)
    >>> seen.n_samples, seen.n_trees
    (3, 5)
    """
    # Imported here, not above: these modules are only needed for the models that they read.
    if getattr(model, "is_boosted", False):
        from oubli.core.influence.readers.ours import read

        if X is not None or y is not None or sample_weight is not None or ids is not None:
            raise InputError(f"a {type(model).__name__} holds its samples: leave X, y, sample_weight and ids out")
        found: View = model.unchanged(lambda: read(model.engine_, model.samples_, model.schema_))
        return found
    library = type(model).__module__.partition(".")[0]
    if library not in _READERS:
        raise InputError(
            f"{type(model).__name__} is not a boosted model that can be read: there are readers for our kinds, {_KNOWN}"
        )
    if X is None or y is None:
        raise InputError(f"a {type(model).__name__} does not hold its samples: pass the X and y that it was fitted on")
    from oubli.core.influence.readers.rows import Given

    read_other = import_module(f"{__name__}.{_READERS[library]}").read
    seen: View = read_other(model, Given(X, y, sample_weight, ids))
    return seen
