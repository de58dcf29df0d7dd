"""The data directory: the journal makes a mutation durable before it is answered, snapshots keep the model.

    oubli-data/
      lock                             held by the running server, with its process id
      journal-000000000001.sqlite      a segment: records 1 to 412, closed; removed when the snapshots have its records
      journal-000000000413.sqlite      the newest segment: records from 413 on are added to it
      journal-000000000413.sqlite-wal
      journal-mark                     the last acknowledged record; not flushed, so it may lag, never lead
      journal-reserve                  room on the disk that is given up so that erasures still fit
      snapshot-00000007.safetensors    two generations
      snapshot-00000008.safetensors
      ledger.sqlite                    the audit ledger: keyed hashes, no personal data (`oubli.app.ledger`)
      keys/                            signing and hashing keys of the ledger, for the owner only
      access-keys.json                 hashes of the keys that callers send (`oubli.app.access`)
      access-keys-mark                 says that there are such keys, should the file be lost

    append   BEGIN, one row each, COMMIT: one flush of the -wal for as many requests as wait
    rotate   a new segment is made whole under another name, renamed, and only then used; the old one is closed
    drop     segments whose records are all in the snapshots are removed, oldest first

A record is the number of a change, the model's version after it, its `body` (what to do again, with the samples) and
its `notes` (for the ledger, without personal data). Its checksum covers all of that. What is read back is every record
that was acknowledged, in order and unchanged, or an error that says what is damaged; nothing is skipped.

`journal` has the interface and the default. Names that begin with a dot and end in .tmp are unfinished
files; they are removed at start.
"""
