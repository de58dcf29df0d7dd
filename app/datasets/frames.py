"""Columns of one length, as an estimator takes them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.data.schema import ColumnType, Schema

Array = npt.NDArray[Any]


class Frame:
    """Named columns of one length: the little of a DataFrame that the sample store asks for."""

    def __init__(self, columns: dict[str, Array]) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.dtypes = [values.dtype for values in columns.values()]
        self.shape = (len(next(iter(columns.values()))) if columns else 0, len(columns))

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def __len__(self) -> int:
        return self.shape[0]


def as_input(columns: dict[str, Array], schema: Schema) -> Any:
    """Return what an estimator takes: one matrix where all columns are numbers, a frame of columns otherwise."""
    if any(column.type is not ColumnType.NUMERIC for column in schema.columns):
        return Frame({name: columns[name] for name in schema.names})
    matrix = np.empty((len(next(iter(columns.values()))), len(columns)), dtype=schema.cell_dtype)
    for index, name in enumerate(schema.names):
        matrix[:, index] = columns.pop(name)
    return matrix
