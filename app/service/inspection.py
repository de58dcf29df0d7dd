"""What people look at: a tree, what the trees look at most, what the columns hold. All of it only reads the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from oubli.app.errors import NoTreeError
from oubli.core.drawing import look_at_tree
from oubli.core.samples.summary import summarise

if TYPE_CHECKING:
    from oubli.app.service.reading import LongReader
    from oubli.app.threads import Threads
    from oubli.core.model import Model


@dataclass(eq=False, repr=False)
class Inspector:
    """Describes the live model to people.

    Parameters
    ----------
    reader
        Reads the model.
    threads
        Where that is done.
    """

    _reader: LongReader
    _threads: Threads

    async def importances(self) -> dict[str, Any]:
        """Return the share of each feature in what all splits gain; `ImportancesAnswer` documents the fields."""
        return await self._read(_importances)

    async def tree(self, number: int, path: str, levels: int) -> dict[str, Any]:
        """Return a node of a tree with some levels below it; `TreeAnswer` documents the fields.

        Raises
        ------
        NoTreeError
            When there is no such tree or node.
        """
        return await self._read(partial(_tree, number, path, levels))

    async def columns(self) -> dict[str, Any]:
        """Return what the columns of the samples hold; `ColumnsAnswer` documents the fields."""
        return await self._read(lambda model: {"columns": summarise(model.samples_)})

    async def _read(self, work: Callable[[Model], dict[str, Any]]) -> dict[str, Any]:
        content, version = await self._reader.read(work, self._threads.look)
        return {**content, "model_version": version}


def _importances(model: Model) -> dict[str, Any]:
    shares = model.engine_.importances().tolist()
    columns = zip(model.schema_.columns, shares, strict=True)
    return {
        "kind": model.kind,
        "n_samples": model.n_samples_,
        "measure": "gain" if model.is_boosted else "impurity",
        "features": [{"name": one.name, "type": str(one.type), "importance": share} for one, share in columns],
    }


def _tree(number: int, path: str, levels: int, model: Model) -> dict[str, Any]:
    found = look_at_tree(model, number, path, levels)
    if found is None:
        raise NoTreeError
    return {"kind": model.kind, **found}
