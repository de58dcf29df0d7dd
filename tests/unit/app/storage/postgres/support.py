"""Journals in a schema or a database of their own, and ways to look at what it holds."""

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oubli.app.storage.postgres.database import Cluster
from oubli.app.storage.postgres.journal import PostgresJournal, SoleJournal
from oubli.app.storage.segment_keys import SegmentKeys
from tests.closing import closed_at_the_end
from tests.postgres import Server
from tests.unit.app.storage.support import batch

TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
    "AND relname ~ '^oubli_records_[0-9]+$' ORDER BY oid"
)
END_BACKENDS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@dataclass
class Place:
    """A database and the keys of its segments; what is opened on it is closed at the end of the test."""

    server: Server
    database: str  # its name, or what stands for it
    folder: Path
    port: int  # where journals connect to: that of the server, or of a proxy

    @property
    def url(self) -> str:
        return self.server.url(self.database, port=self.port)

    @property
    def keys(self) -> SegmentKeys:
        return SegmentKeys(self.folder / "segments")

    def cluster(self) -> Cluster:
        return closed_at_the_end(Cluster(self.server.url(self.database)))

    def journal(self, **options: Any) -> PostgresJournal:
        """Return a journal that only reads."""
        return closed_at_the_end(PostgresJournal(self.url, self.keys, **options))

    def led(self, name: str = "a", n: int = 0, **options: Any) -> PostgresJournal:
        """Return a journal that leads in an epoch of its own, and append so many first records."""
        journal = self.journal(**options)
        journal.lead(self.take_over(name))
        journal.append(batch(1, n))
        return journal

    def sole(self, name: str = "a", **options: Any) -> SoleJournal:
        """Return the journal of a server that is no node."""
        return closed_at_the_end(SoleJournal(self.url, self.keys, name=name, **options))

    def contents(self, after: int = 0) -> list[Any]:
        """Return records as a node that only reads sees them."""
        with closing(self.journal()) as journal:
            return list(journal.records(after))

    def refuse_inserts(self) -> None:
        """Have the database say that its disk is full, until `take_inserts`."""
        self.execute("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE disk_full; END'")
        self.execute("CREATE TRIGGER no BEFORE INSERT ON oubli_records FOR EACH ROW EXECUTE FUNCTION no()")

    def take_inserts(self) -> None:
        self.execute("DROP TRIGGER no ON oubli_records")

    def set_back(self, last_seq: int) -> None:
        """Put the database to where it was after a record."""
        self.execute("DELETE FROM oubli_records WHERE seq > %s", (last_seq,))
        self.execute("UPDATE oubli_leader SET last_seq = %s", (last_seq,))

    def take_over(self, name: str = "a") -> int:
        """End the lease of anyone who has it, and take it."""
        cluster, epoch = self.cluster(), None
        while epoch is None:  # anyone who has it may renew it meanwhile
            self.execute("UPDATE oubli_leader SET until = now() - interval '1 second'")
            epoch = cluster.take_over(name, f"http://{name}", 3.0)
        return epoch

    def execute(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, values, self.database)

    def end_backends(self) -> None:
        """End all connections, so that anyone who has one can know of it."""
        self.execute(END_BACKENDS)
        time.sleep(0.05)

    def tables(self) -> list[str]:
        """Return the partitions, attached or not."""
        return [name for (name,) in self.execute(TABLES)]


def new_place(server: Server, folder: Path, *, port: int | None = None, own_database: bool = False) -> Place:
    database = server.new_database() if own_database else server.new_schema()
    return Place(server, database, folder, server.port if port is None else port)
