"""The lines that `oubli serve` prints to try the server with.

The rows are made up from the schema, or are those of the example that ships with Oubli: a terminal is often a log
file, and what people train on has no place in one.
"""

import json
import shlex
from pathlib import Path
from typing import Any

from oubli.core.data.schema import Schema

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


def tour(url: str, schema: Schema, key_file: Path | None = None) -> list[str]:
    """Return curl lines that work against a server of this schema.

    For the shipped example: predict, add and delete. For other data only a prediction for a row whose values are all
    missing, because whatever is added would be learned.
    """
    key = f' -H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})"' if key_file is not None else ""
    if schema.names != tuple(EXAMPLE_ROW) or schema.label_name != EXAMPLE_TARGET:
        return [_post(f"{url}/predict", {"instances": [[None] * schema.n_features]}, key)]
    row = list(EXAMPLE_ROW.values())
    sample = {"id": "try-1", "features": row, "label": ">50K"}
    return [
        _post(f"{url}/predict", {"instances": [row]}, key),
        _post(f"{url}/samples", {"samples": [sample]}, key),
        f"curl -X DELETE{key} {url}/samples/try-1",
    ]


def _post(url: str, body: dict[str, Any], key: str) -> str:
    text = json.dumps(body, separators=(",", ":"))
    return f"curl {url} -H 'Content-Type: application/json'{key} -d {shlex.quote(text)}"
