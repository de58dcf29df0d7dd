"""Files from their content, read with some settings."""

from pathlib import Path
from typing import Any

import pytest

from oubli.app.datasets.loading import LoadError, Table, load_table
from oubli.app.settings import load_settings


def load(content: str | bytes, name: str = "data.csv", **flags: Any) -> Table:
    """Load a text, or the bytes of a file; what is predicted is `y` unless `target` says otherwise."""
    path = Path(name)
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return load_table(load_settings(data=path, **{"target": "y", **flags}))


def refusal(content: str | bytes, **flags: Any) -> str:
    """Return why a file is refused."""
    with pytest.raises(LoadError) as caught:
        load(content, **flags)
    return str(caught.value)
