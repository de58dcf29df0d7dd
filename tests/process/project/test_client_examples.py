"""The examples in the reference of the client run against a server, in any order: each names samples of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.client import Client, ProblemError
from oubli.client.errors import problem_of
from tests.process.client.test_client import FLAGS, folder_with_data
from tests.serving import Running, serving
from tests.unit.project.test_examples import SHOWN, run_example


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(*FLAGS, cwd=folder_with_data(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest.mark.parametrize("name", [name for name in SHOWN if name.startswith("oubli.client.")])
def test_the_examples_run(name: str, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Client(server.url) as client:
        run_example(name, client=client, url=server.url, ProblemError=ProblemError, problem_of=problem_of)
