"""The lines that `oubli serve` prints to try the server with.

A terminal is often a log file, and what identifies a person has no place in one. So the row is either that of the
example that ships with Oubli, or made up of what many people share:

    number      the median, rounded to at least a tenth of the distance between the quartiles; 0 of fewer than 20 people
    boolean     the more frequent value; false of fewer than 20 people
    category    the most frequent one, if at least 10 people and 5 % of all have it; else null

Samples of one subject count as one person. In place of a row of nulls alone there is a row of made-up categories.
"""

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from oubli.core.array_types import Array
from oubli.core.data.schema import ColumnType
from oubli.core.data.values import FLOAT32_EXACT
from oubli.core.samples.store import SampleStore

EXAMPLE_TARGET = "income"
EXAMPLE_ROW: dict[str, Any] = {
    "age": 39,
    "workclass": "State-gov",
    "fnlwgt": 77516,
    "education": "Bachelors",
    "education_num": 13,
    "marital_status": "Never-married",
    "occupation": "Adm-clerical",
    "relationship": "Not-in-family",
    "race": "White",
    "sex": "Male",
    "capital_gain": 2174,
    "capital_loss": 0,
    "hours_per_week": 40,
    "native_country": "United-States",
}
"""The first row of ``examples/adult.csv.gz``."""


_LEAST_PEOPLE, _LEAST_SHARE = 10, 0.05  # that must share a value
_MOST_READ = 10_000  # samples


def tour(url: str, samples: SampleStore, key_file: Path | None = None, certificate: Path | None = None) -> list[str]:
    """Return curl lines that work against a server that holds these samples.

    For the shipped example: predict, add and delete. For other data only a prediction, because whatever is added would
    be learned.
    """
    schema = samples.schema
    curl = "curl" if certificate is None else f"curl --cacert {_quoted(certificate)}"
    key = f' -H "Authorization: Bearer $(cat {_quoted(key_file)})"' if key_file is not None else ""
    if schema.names != tuple(EXAMPLE_ROW) or schema.label_name != EXAMPLE_TARGET:
        return [_post(curl, f"{url}/predict", {"instances": [plausible_row(samples)]}, key)]
    row = list(EXAMPLE_ROW.values())
    sample = {"id": "try-1", "features": row, "label": ">50K"}
    return [
        _post(curl, f"{url}/predict", {"instances": [row]}, key),
        _post(curl, f"{url}/samples", {"samples": [sample]}, key),
        f"{curl} -X DELETE{key} {url}/samples/try-1",
    ]


def plausible_row(samples: SampleStore) -> list[Any]:
    """Return a row that the model accepts and that identifies no person; see the top of this file."""
    slots = samples.slots()
    read = slots[:: len(slots) // _MOST_READ + 1].tolist()
    people = list({samples.subjects.get(slot) or slot: slot for slot in read}.values())
    cells = samples.cells[people].astype(np.float64)
    row: list[Any] = []
    for j, column in enumerate(samples.schema.columns):
        known = cells[~np.isnan(cells[:, j]), j]
        if column.type is ColumnType.CATEGORICAL:
            row.append(_frequent_category(samples, known, len(people)))
        elif len(known) < 2 * _LEAST_PEOPLE:  # a value that the quartiles share is then held by enough
            row.append(False if column.type is ColumnType.BOOLEAN else 0)
        else:
            row.append(bool(known.mean() > 0.5) if column.type is ColumnType.BOOLEAN else _round_median(known))
    return row if any(value is not None for value in row) else ["other"] * len(row)


def _frequent_category(samples: SampleStore, codes: Array, n_people: int) -> str | None:
    counts = np.bincount(codes.astype(np.int64))
    most = int(counts.max(initial=0))
    is_frequent = most >= max(_LEAST_PEOPLE, _LEAST_SHARE * n_people)
    return samples.categories.value(int(counts.argmax())) if is_frequent else None


def _round_median(values: Array) -> float:
    """Round the median to the power of ten below the distance between the quartiles; 0 when that is no number."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75], method="nearest").tolist()
    spread = high - low
    if spread > 1e300:  # rounding could leave the range of floats
        return 0
    rounded = round(median, -math.floor(math.log10(spread))) if spread else median
    # Larger integers have to be exact, other numbers need not.
    return int(rounded) if rounded == int(rounded) and abs(rounded) <= FLOAT32_EXACT else rounded


def _quoted(path: Path) -> str:
    return shlex.quote(str(path.absolute()))


def _post(curl: str, url: str, body: dict[str, Any], key: str) -> str:
    text = json.dumps(body, separators=(",", ":"))
    return f"{curl} {url} -H 'Content-Type: application/json'{key} -d {shlex.quote(text)}"
