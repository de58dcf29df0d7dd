"""A journal against a plain list, through kills at any time."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from oubli.app.errors import JournalDamagedError, JournalFullError
from oubli.app.storage import journal as journal_module
from oubli.app.storage.journal import Record, SqliteJournal
from tests.unit.app.storage.support import journal_in, killed


class JournalHistory(stateful.RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.n_copies = 0
        self.kept: list[Record] = []
        self.starts = [1]  # numbers with which the segments begin
        self.since_rotation: list[Record] = []
        self.abandoned: list[SqliteJournal] = []

    @stateful.initialize()
    def begin(self) -> None:
        self.path = self.folder / "0"
        self.journal = journal_in(self.path)

    @property
    def last_seq(self) -> int:
        return self.kept[-1].seq if self.kept else self.starts[-1] - 1

    @stateful.rule(bodies=st.lists(st.binary(max_size=9000), min_size=1, max_size=12), reserve=st.booleans())
    def append(self, bodies: list[bytes], reserve: bool) -> None:
        first = self.last_seq + 1
        records = [Record(first + i, first + i, body, body[::-1][:50]) for i, body in enumerate(bodies)]
        self.journal.append(records, reserve=reserve)
        self.kept += records
        self.since_rotation += records

    @stateful.rule(bodies=st.lists(st.binary(min_size=5000, max_size=9000), min_size=3, max_size=6))
    def append_what_does_not_fit(self, bodies: list[bytes]) -> None:
        first = self.last_seq + 1
        records = [Record(first + i, 1, body, b"") for i, body in enumerate(bodies)]
        connection = self.journal._segment._connection
        (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={n_pages + 2}").fetchall()
        with pytest.raises(JournalFullError):
            self.journal.append(records)
        connection.execute(f"PRAGMA max_page_count={2**31 - 2}").fetchall()

    @stateful.rule()
    def rotate(self) -> None:
        first = self.last_seq + 1
        self.journal.rotate(first)
        self.since_rotation = []
        if first != self.starts[-1]:
            self.starts.append(first)

    @stateful.rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(self.starts[0], self.last_seq + 2), label="before")
        self.journal.drop_before(seq)
        while len(self.starts) > 1 and self.starts[1] <= seq:
            del self.starts[0]
        self.kept = [record for record in self.kept if record.seq >= self.starts[0]]

    @stateful.rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = journal_in(self.path)

    @stateful.rule()
    def kill(self) -> None:
        """Continue with the files as they are; what the abandoned process does later is not seen any more."""
        self.n_copies += 1
        self.abandoned.append(self.journal)
        self.path = killed(self.path, self.folder / str(self.n_copies))
        self.journal = journal_in(self.path)

    @stateful.precondition(lambda self: self.starts[0] > 1)
    @stateful.rule()
    def ask_for_what_was_dropped(self) -> None:
        if self.last_seq >= self.starts[0]:
            with pytest.raises(JournalDamagedError):
                list(self.journal.records(self.starts[0] - 2))

    @stateful.rule(data=st.data())
    def read_from(self, data: st.DataObject) -> None:
        after = data.draw(st.integers(self.starts[0] - 1, self.last_seq + 2), label="after")
        assert list(self.journal.records(after)) == [record for record in self.kept if record.seq > after]

    @stateful.invariant()
    def agrees(self) -> None:
        if not hasattr(self, "journal"):
            return
        journal = self.journal
        assert list(journal.records(self.starts[0] - 1)) == self.kept
        assert (journal.first_seq, journal.last_seq, journal.failed) == (self.starts[0], self.last_seq, False)
        assert journal.n_records == len(self.since_rotation)
        assert journal.n_bytes == sum(len(one.body) + len(one.notes) for one in self.since_rotation)
        assert (journal.oldest_at is None) == (not self.since_rotation)

    def teardown(self) -> None:
        for journal in (*self.abandoned, *([self.journal] if hasattr(self, "journal") else [])):
            journal.close()
        shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def _small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_LOG_BYTES", 60_000)


def run(n_examples: int) -> None:
    stateful.run_state_machine_as_test(
        JournalHistory,
        settings=settings(
            max_examples=n_examples, stateful_step_count=30, deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )  # fmt: skip


def test_histories() -> None:
    run(25)
