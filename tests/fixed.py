"""Servers with other values of constants of `Settings`, for tests that cannot wait: `python -m tests.fixed serve ...`.

The values are JSON in a variable: `serving(..., TEST_FIXED='{"head_timeout": 2}')`. What `tests.serving` forks has them
too.
"""

import json
import os

from oubli.app.settings import Settings
from tests.serving import VARIABLE


def change_constants() -> None:
    """Set the values that the variable has."""
    for name, value in json.loads(os.environ.get(VARIABLE, "{}")).items():
        setattr(Settings, name, value)


if __name__ == "__main__":
    from oubli.app.cli.main import main

    change_constants()
    main()
