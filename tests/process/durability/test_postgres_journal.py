"""A server whose journal is in PostgreSQL: killed, cut off and started again, and searched for what was erased."""

from pathlib import Path

import pytest

from tests.postgres import Server, needs_postgres, temporary_server
from tests.process.durability.canaries import Canary, canary
from tests.process.durability.people import flags, people
from tests.process.durability.reading import check_exact, live_digest, read_held
from tests.serving import APP, Running, environment, forked, free_port, serving, wait_for

pytestmark = pytest.mark.long
FLAGS = flags("--erasure-deadline", "2")


def learn(server: Running, canaries: list[Canary]) -> None:
    assert server.ask("POST", "/samples", {"samples": [one.as_json() for one in canaries]})[0] == 201


def flock(first: int, n: int) -> list[Canary]:
    return [canary(first + i, people()[f"p{i}"].features) for i in range(n)]


def forget(server: Running, ids: list[str]) -> str:
    status, receipt = server.ask("POST", "/samples/batch-delete", {"ids": ids})
    assert status == 200, receipt
    return str(receipt["id"])


def test_a_server_lives_on_its_journal(folder: Path) -> None:
    needs_postgres()
    with temporary_server() as postgres:
        url = postgres.url(postgres.new_database())
        with serving(*FLAGS, cwd=folder, OUBLI_JOURNAL=url) as server:
            learn(server, flock(1, 3))
            assert server.ask("POST", "/snapshot", {})[0] == 201
            learn(server, flock(4, 2))
            receipt = forget(server, ["p1", "p2"])
            before, held = live_digest(server, by_snapshot=False), read_held(server)
            require_refused_beside(folder, url)
            server.process.kill()
        assert not list((folder / "oubli-data").glob("journal*")), "what belongs to the journal in SQLite"

        with serving(*FLAGS, cwd=folder, OUBLI_JOURNAL=url) as server:
            assert read_held(server) == held
            assert check_exact(server, held[0], by_snapshot=False) == before
            server.wait_until_erased(receipt)
            cut_off(server, postgres)
            receipt = forget(server, ["p3"])
            assert server.stop() == 0
        with serving(*FLAGS, cwd=folder, OUBLI_JOURNAL=url) as server:
            server.wait_until_erased(receipt)
            check_exact(server, read_held(server)[0], by_snapshot=False)
            assert server.stop() == 0
    text = "".join(path.read_text("utf-8", "replace") for path in folder.glob("*.txt"))
    assert "not-a-secret" not in text


def require_refused_beside(folder: Path, url: str) -> None:
    """Start a second server on the same database, which must say why it does not."""
    other = folder / "other"
    other.mkdir()
    (other / "people.csv").write_bytes((folder / "people.csv").read_bytes())
    command = (*APP, "serve", "--port", str(free_port()), *FLAGS)
    process = forked(command, other, environment(OUBLI_JOURNAL=url), other / "output.txt")
    assert process.wait(timeout=120) not in (0, None)
    assert "another server writes the journal in this database" in (other / "output.txt").read_text()


def cut_off(server: Running, postgres: Server) -> None:
    """Stop PostgreSQL and start it again: changes are refused meanwhile, nothing else, and continue by themselves."""
    postgres.stop()
    before = read_held(server)
    for _ in range(2):
        status, problem = server.ask("POST", "/samples", {"samples": [flock(20, 1)[0].as_json()]})
        assert (status, problem["type"]) == (503, "urn:oubli:problem:journal-unreachable")
        assert "the network" in problem["detail"]
        assert server.ask("DELETE", "/samples/p9")[0] == 503
    status, problem = server.ask("GET", "/readyz?for=changes")
    assert (status, problem["type"]) == (503, "urn:oubli:problem:changes-stopped")
    assert "PostgreSQL" in problem["detail"]
    assert server.get("/model")[1]["changes_stopped"] == "journal-unreachable"
    assert server.get("/readyz")[0] == 200
    assert server.ask("POST", "/predict", {"instances": [list(people()["p0"].features)]})[0] == 200
    assert read_held(server) == before
    postgres.start()
    wait_for(lambda: server.get("/readyz?for=changes")[0] == 200, "changes to be taken again")
    learn(server, flock(20, 1))
    check_exact(server, read_held(server)[0], by_snapshot=False)
