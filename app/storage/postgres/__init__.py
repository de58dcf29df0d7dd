"""The journal in PostgreSQL, for machines that follow one another.

    oubli_cluster    the format
    oubli_leader     who leads: epoch, holder, lease, the last record's number, the backend that may append
    oubli_segments   first record's number, and which key its records are sealed with
    oubli_records    seq, epoch, version, time, sealed body and notes, checksum; a partition for each segment
    oubli_members    which nodes there are, and how far they are

    append   one statement, fenced by epoch, number and backend: it commits all records or none
    rotate   a key is made, flushed and handed over; then the partition and the segment's row, in one statement
    drop     segments' rows are deleted, fenced; their partitions detached and dropped; their keys destroyed

What a machine has written or applied last is also in a file of its data directory (`mark`): a database that was set
back does not have it.

Records are sealed before they leave this machine, so that tables, write-ahead logs, standbys and backups hold nothing
that can be read once a segment's key is destroyed (`oubli.app.storage.segment_keys`).

psycopg comes with the extra `postgres`; nothing outside of this package imports it.
"""
