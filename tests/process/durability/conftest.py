"""What the tests of durability share: small servers on people."""

import shutil
from pathlib import Path

import pytest

from tests.process.durability.model_of_truth import Truth
from tests.process.durability.people import flags, people, write_csv
from tests.serving import serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of people to serve."""
    write_csv(tmp_path / "people.csv")
    return tmp_path


@pytest.fixture(scope="session")
def _begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    begun = tmp_path_factory.mktemp("begun")
    write_csv(begun / "people.csv")
    with serving(*flags(), cwd=begun) as server:
        version = server.get("/model")[1]["model_version"]
        server.stop()
    return begun, version


@pytest.fixture
def truth(_begun: tuple[Path, int]) -> Truth:
    """What is true of `begun`."""
    return Truth(people(), _begun[1])


@pytest.fixture
def begun(_begun: tuple[Path, int], tmp_path: Path) -> Path:
    """A folder with a data directory that holds everybody, written by a server that was stopped in order."""
    target = tmp_path / "begun"
    shutil.copytree(_begun[0], target)
    return target
