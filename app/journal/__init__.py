"""What makes a mutation durable before it is answered: `journal` is the contract, `sqlite_journal` the default.

    oubli-data/
      journal-000000000001.sqlite   a segment: records 1 to 412, closed; goes when a snapshot has them and it may go
      journal-000000000413.sqlite   the newest segment: records from 413 on are added to it
      journal-000000000413.sqlite-wal
      journal-mark                  how far records were acknowledged; not flushed, so it may lag, never lead
      journal-reserve               room on the disk that is given up so that erasures still fit

    append   BEGIN, one row each, COMMIT: one flush of the -wal for as many requests as wait
    rotate   a new segment is made whole under another name, renamed, and only then used; the old one is closed
    drop     segments that only hold what the snapshots have are removed, oldest first

A record is the number of a change, the model's version after it, its `body` (what to do again, with the samples) and
its `notes` (for the ledger, without personal data). Its checksum covers all of that. What is read back is every record
that was acknowledged, in order and unchanged, or an error that says what is damaged; nothing is skipped.
"""
