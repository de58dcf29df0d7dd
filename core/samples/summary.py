"""What the columns of the samples held look like, for whoever has to fill in a row."""

from typing import Any

import numpy as np

from oubli.core.data.schema import ColumnType
from oubli.core.samples.store import SampleStore

_MOST_LISTED = 200  # categories of a column


def summarise(store: SampleStore) -> list[dict[str, Any]]:
    """Describe each column; only reads.

    Returns
    -------
    list of dict
        In feature order, JSON-able: `name`, `type`, `missing` (samples without a value); of numbers `dtype`, `least`
        and `greatest`, None without any; of categories those held, the most frequent first, and how many there are.
    """
    slots, schema, table = store.slots(), store.schema, store.categories
    described = []
    for column, declared in enumerate(schema.columns):
        cells = store.cells[slots, column]
        known = cells[~np.isnan(cells)]
        one: dict[str, Any] = {"name": declared.name, "type": declared.type.value, "missing": len(cells) - len(known)}
        if declared.type is ColumnType.NUMERIC:
            one["dtype"] = str(declared.dtype)
            one["least"] = float(known.min()) if len(known) else None
            one["greatest"] = float(known.max()) if len(known) else None
        elif declared.type is ColumnType.CATEGORICAL:
            held = table.codes[column]
            one["categories"] = sorted(held, key=lambda text: (-int(table.counts[held[text]]), text))[:_MOST_LISTED]
            one["n_categories"] = len(held)
        described.append(one)
    return described
