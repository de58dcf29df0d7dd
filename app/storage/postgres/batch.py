"""Records that are written together: one statement, which commits all of them or none."""

from collections.abc import Sequence

from oubli.app.storage.journal import Record
from oubli.app.storage.postgres.connection import Connection
from oubli.app.storage.postgres.sealing import Place, Sealer, checksum_of

_APPEND = """
WITH lead AS (
    UPDATE oubli_leader
    SET last_seq = %(last)s, until = greatest(until, clock_timestamp() + make_interval(secs => %(lease)s))
    WHERE epoch = %(epoch)s AND last_seq = %(before)s AND pid = pg_backend_pid() RETURNING 1
), written AS (
    INSERT INTO oubli_records (segment, seq, epoch, version, at, sealed, checksum)
    SELECT %(segment)s, r.seq, %(epoch)s, r.version, %(at)s, r.sealed, r.checksum
    FROM unnest(%(seqs)s::bigint[], %(versions)s::bigint[], %(sealed)s::bytea[], %(checksums)s::bytea[])
        AS r (seq, version, sealed, checksum) CROSS JOIN lead
    RETURNING 1
)
SELECT count(*), pg_notify('oubli_records', '') FROM written
"""
_IS_THERE = "SELECT 1 FROM oubli_records WHERE segment = %s AND seq = %s AND epoch = %s AND checksum = %s"


class Batch:
    """Sealed records.

    Parameters
    ----------
    records
        Numbered from `last_seq` + 1 on.
    segment
        Number of the first record of the segment that they go to.
    sealer
        Of the segment.
    epoch, last_seq
        With which this node leads; without both nothing is written.
    at_ms
        The time, in milliseconds since 1970.
    lease
        Seconds that the lease is extended to at least.

    Attributes
    ----------
    last_checksum
        Of the last record.
    """

    def __init__(
        self,
        records: Sequence[Record],
        segment: int,
        sealer: Sealer,
        *,
        epoch: int,
        last_seq: int,
        at_ms: int,
        lease: float,
    ) -> None:
        sealed, checksums = [], []
        for expected, record in enumerate(records, last_seq + 1):
            if record.seq != expected:
                raise ValueError(f"record {record.seq} was given where {expected} is next")
            place = Place(segment, record.seq, epoch, record.version, at_ms)
            sealed.append(sealer.seal(place, record.body, record.notes))
            checksums.append(checksum_of(place, sealed[-1]))
        self._known = segment, records[-1].seq, epoch, checksums[-1]
        self._n_records = len(records)
        self.last_checksum = checksums[-1]
        self._values = {
            "epoch": epoch,
            "before": last_seq,
            "last": records[-1].seq,
            "lease": lease,
            "segment": segment,
            "at": at_ms,
            "seqs": [record.seq for record in records],
            "versions": [record.version for record in records],
            "sealed": sealed,
            "checksums": checksums,
        }

    def write(self, connection: Connection) -> bool:
        """Write the records; false, and none is written, when this connection may not append.

        Raises
        ------
        psycopg.Error
            When the database refuses them, or the connection is lost.
        """
        row = connection.execute(_APPEND, self._values, prepare=True, binary=True).fetchone()
        return row is not None and row[0] == self._n_records

    def is_there(self, connection: Connection) -> bool:
        """Whether the records were committed.

        Raises
        ------
        psycopg.Error
            When that cannot be asked.
        """
        return connection.execute(_IS_THERE, self._known).fetchone() is not None
