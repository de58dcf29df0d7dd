"""The examples in the reference of the client run against a server, in any order: each names samples of its own."""

from pathlib import Path

import pytest

from oubli.client import Client, ProblemError
from oubli.client.errors import problem_of
from tests.process.client.test_client import with_data
from tests.servers import module_server
from tests.serving import Running
from tests.unit.project.test_examples import SHOWN, run_example

server = module_server(with_data)


@pytest.mark.parametrize("name", [name for name in SHOWN if name.startswith("oubli.client.")])
def test_the_examples_run(name: str, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Client(server.url) as client:
        run_example(name, client=client, url=server.url, ProblemError=ProblemError, problem_of=problem_of)
