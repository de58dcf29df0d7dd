"""After `erased` nothing of a sample can be read anywhere: nodes, primary, standby, base backup, a copy of the log."""

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from oubli.app.errors import JournalDamagedError
from oubli.app.storage.postgres.database import connect
from oubli.app.storage.postgres.records import Positioned, Reader
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys
from tests.postgres import Server, needs_postgres, temporary_server
from tests.process.durability.canaries import Canary, canary, files_with, files_with_secrets, search, traces
from tests.process.durability.people import people
from tests.process.replication.nodes import Nodes

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

FLAGS = ("--erasure-deadline", "2", "--member-timeout", "20")
ERASED = [canary(i, people(i + 1)[f"p{i}"].features) for i in range(1, 4)]
KEPT, NEVER, CONTROL = (canary(number, people(1)["p0"].features) for number in (500, 600, 700))


Cluster = tuple[Nodes, Server, Server]
"""Two nodes over a primary with a standby, and these."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    needs_postgres()
    with ExitStack() as opened:
        primary = opened.enter_context(temporary_server())
        standby = primary.standby(primary.folder / "standby")
        opened.callback(standby.close)
        nodes = Nodes(tmp_path, primary, 2, *FLAGS)
        opened.callback(nodes.close)
        nodes.start()
        yield nodes, primary, standby


def segment_keys(nodes: Nodes) -> dict[str, bytes]:
    return {name: secret for one in nodes.all for name, secret in one.segment_keys().items()}


def holds(content: bytes, place: Path) -> bool:
    """Whether something of some bytes is in files; pages of the log begin with heads that may cut one piece in two."""
    pieces = [content[start : start + 32] for start in range(0, 320, 64)]
    return bool(search(lambda found: ["it"] if any(piece in found for piece in pieces) else [], place))


def records(
    url: str, keys: Path, fetch_key: Callable[[str], bytes | None] = lambda _: None, after: int | None = None
) -> list[Positioned]:
    """Read records of a backup, all or those after one, with the keys of a folder and those of somebody else."""
    with connect(url) as connection:
        if after is None:
            ((after,),) = connection.execute("SELECT min(seq) - 1 FROM oubli_records").fetchall()
        return list(Reader(lambda: connection, SegmentKeys(keys), fetch_key).positioned_records(after))


def first_with(url: str, canaries: list[Canary], keys: dict[str, bytes], folder: Path) -> int:
    """Open all records of a backup with keys; return the first that has something of canaries, which all are there."""
    own = SegmentKeys(folder)
    for name, secret in keys.items():
        own.add(SegmentKey(name, secret))
    found = [record for *_, record in records(url, folder)]
    content = b"".join(record.body for record in found)
    assert all({"id", "subject", "word"} <= set(traces(one, content)) for one in canaries)
    return min(record.seq for record in found if any(traces(one, record.body) for one in canaries))


def test_nothing_of_an_erased_sample_can_be_read_anywhere(cluster: Cluster, tmp_path: Path) -> None:
    nodes, primary, standby = cluster

    def checkpoint() -> None:
        """Have files hold what was in the memory of primary and standby."""
        for one in (primary, standby):
            one.execute("CHECKPOINT")

    assert nodes.leader().ask("POST", "/samples", {"samples": [one.as_json() for one in (*ERASED, KEPT)]}).status == 201
    late = nodes.new("late", *FLAGS)  # it joins with what the others have, keys included
    nodes.all.append(late)
    late.start()
    nodes.wait(late.is_ready, "the late node is ready")
    nodes.wait_in_step()

    # What is copied while the samples are in the journal: sealed, beside a text that is not.
    primary.execute("CREATE TABLE control (content text)")
    primary.execute("INSERT INTO control VALUES (%s)", (CONTROL.id,))
    rows = primary.execute("SELECT sealed FROM oubli_records", database=nodes.database)
    sealed = max((one for (one,) in rows), key=len)
    log = shutil.copytree(primary.data / "pg_wal", primary.folder / "wal")
    backup = primary.backup(primary.folder / "backup")
    databases = [primary.data, standby.data, backup.data, log]
    checkpoint()
    assert [bool(files_with([CONTROL], place, lone_numbers=False)) for place in databases] == [True] * 4
    assert [holds(sealed, place) for place in databases] == [True] * 4
    assert files_with([*ERASED, KEPT], *databases, lone_numbers=False) == []  # at no time
    keys = segment_keys(nodes)
    assert files_with_secrets(keys, *databases) == []
    for one in nodes.all:
        assert len(files_with_secrets(one.segment_keys(), one.data)) == len(one.segment_keys()) > 0
    leader = nodes.leader()
    assert leader.ask("POST", "/snapshot").status == 201
    for one in nodes.all:
        nodes.wait(lambda one=one: files_with(ERASED, one.data), f"{one.name} has written them")

    receipts = [nodes.delete(one) for one in ERASED[:2]]
    receipts.append(leader.ask("DELETE", f"/samples?subject={quote(ERASED[2].subject, safe='')}").content["id"])
    nodes.wait_until_erased(*receipts)
    for one in nodes.all:
        one.send(signal.SIGSTOP)
    left = segment_keys(nodes)

    gone = {name: secret for name, secret in keys.items() if name not in left}
    for _ in range(2):
        assert files_with(ERASED, nodes.folder) == []
        assert files_with([*ERASED, KEPT], *databases, lone_numbers=False) == []
        assert files_with_secrets(gone, nodes.folder, *databases) == []
        checkpoint()
    assert files_with([NEVER], nodes.folder) == []
    assert all(files_with([KEPT], one.data) for one in nodes.all), "the search is blind"

    # The copies hold the records. Nobody opens them but with a key from before.
    backup.start()
    try:
        restored = backup.url(nodes.database)
        first = first_with(restored, [*ERASED, KEPT], keys, tmp_path / "kept")
        for one in nodes.all:
            with pytest.raises(JournalDamagedError, match="not in the key directory"):
                records(restored, one.key_folder, after=first - 1)
        for name, secret in left.items():
            with pytest.raises(JournalDamagedError, match=f"record {first} of the journal is damaged"):
                records(restored, tmp_path / "tried" / name, lambda _, secret=secret: secret, first - 1)
    finally:
        backup.close()
