"""Questions about influence on the command line: the rows of a file, asked of a model file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oubli.app.datasets.loading import Queries
from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent, within
from oubli.app.service.influence_methods import UnfitError, method_for
from oubli.core.errors import InputError
from oubli.core.influence import Influence, influence


def read_update_set(text: str) -> str | int:
    """Read `all`, `single` or a number of leaves.

    Raises
    ------
    StartError
        For anything else.
    """
    if text in ("all", "single"):
        return text
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise StartError("--update-set must be all, single or a number of leaves of at least 1")
    return int(text)


def find_influence(
    estimator: Any,
    queries: Queries,
    *,
    path: Path,
    method: str | None = None,
    update_set: str | int = "all",
    progress: Progress = silent,
) -> Influence:
    """Score the samples of a model by what they do for the rows of a file, under their labels or the predicted ones.

    Raises
    ------
    StartError
        When the method does not go with the model, or the model or the file has nothing to ask about.
    """
    if estimator.n_samples_ == 0:
        raise StartError("the model holds no samples, so there is nothing that could have influence")
    if len(queries) == 0:
        raise StartError(f"{path} holds a header but no rows: there is nothing to ask about")
    try:
        chosen = method_for(estimator, method, update_set)
    except UnfitError as error:
        raise StartError(str(error)) from None
    labels = queries.labels
    if labels is None:
        labels = estimator.query(queries.X, frozen=True).labels
    report = within(progress, "ranking the samples")
    report(0, 0)
    try:
        return influence(estimator, queries.X, labels, method=chosen, update_set=update_set, progress=report)
    except InputError as error:
        if error.row is None:
            raise
        raise StartError(f"{path}, row {error.row + 1} of the data, label: {error.rule}") from None


def ranked_rows(found: Influence, top: int) -> Iterator[list[Any]]:
    """Yield a header, then a row for each of the samples that help most and of those that harm most."""
    yield ["effect", "id", "score"]
    for effect, ranked in (("helps", found.helpful(top)), ("harms", found.harmful(top))):
        for name, score in ranked:
            yield [effect, name, score]
