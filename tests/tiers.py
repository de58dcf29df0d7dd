"""The tiers: what `make test` runs, and what is left to `make test-long`.

A test is long when its file or folder is in `LONG`, when it or one of its cases is in `slow.txt`, when it asks for
PostgreSQL, or when it has the mark `long`, which `covering` and `ordinary` give to the cases that they leave out.
`pytest -m long PATH` runs the long tests of a path, `pytest -m "" PATH` all.

`slow.txt` names tests that take more than a second and look for what quicker ordinary tests look for as well, in other
cases or at another place.
"""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

# They need other programs (a browser, Prometheus, the schemas of Kubernetes), take minutes, or are about the tests.
LONG = (
    "tests/long/",
    "tests/process/app/http/test_generated_client.py",
    "tests/process/client/test_cluster.py",
    "tests/process/console/",
    "tests/process/project/test_budget.py",
    "tests/process/project/test_deployment.py",
    "tests/process/project/test_docker.py",
    "tests/process/project/test_gallery.py",
    "tests/process/project/test_monitoring.py",
    "tests/process/project/test_packaging.py",
    "tests/process/replication/",
    "tests/unit/app/storage/postgres/",
    "tests/unit/benchmarks/",
)
SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines())
POSTGRES = {"postgres"}  # fixtures that start it


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is long as a whole where ordinary tests are asked for: reading it takes seconds."""
    name = collection_path.relative_to(config.rootpath).as_posix() + "/" * collection_path.is_dir()
    return True if config.option.markexpr == "not long" and name.startswith(LONG) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of the long tier; called for each test before any is chosen by its mark."""
    is_slow = not SLOW.isdisjoint((item.nodeid, item.nodeid.partition("[")[0]))
    if is_slow or item.nodeid.startswith(LONG) or POSTGRES.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.long)


def covering(*lists: Iterable[Any]) -> list[Any]:
    """All combinations of some lists, for `parametrize`; ordinary are so few that each value still comes.

    The values of the longest list come once each, those of the others take turns.
    """
    values = [list(one) for one in lists]
    longest = max(range(len(values)), key=lambda number: len(values[number]))
    return [
        pytest.param(
            *(one[place] for one, place in zip(values, places, strict=True)),
            marks=()
            if all(place == places[longest] % len(one) for one, place in zip(values, places, strict=True))
            else pytest.mark.long,
        )
        for places in product(*(range(len(one)) for one in values))
    ]


def ordinary(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """Values for `parametrize`, all of which are long but the chosen ones."""
    return [pytest.param(value, marks=() if value in chosen else pytest.mark.long) for value in values]
