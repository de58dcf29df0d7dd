"""The values of samples as answers show them, and as hashes of samples are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oubli.core.data.schema import LabelType
from oubli.core.data.values import shortest

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema
    from oubli.core.samples.store import HeldSample


def values_as_held(sample: HeldSample, schema: Schema) -> tuple[list[Any], Any]:
    """Return features and label with every number in the shortest form that reads back as the one held."""
    columns = zip(sample.features, schema.columns, strict=True)
    features = [shortest(cell, column.dtype) if type(cell) is float else cell for cell, column in columns]
    return features, label_as_held(sample.label, schema)


def label_as_held(label: Any, schema: Schema) -> Any:
    """Return a label in the shortest form that reads back as the one held."""
    # Among scalars 1, 1.0 and true are three labels: there a float stays one.
    if schema.label_type is LabelType.NUMBER and type(label) is float:
        return shortest(label, "float64")
    return label
