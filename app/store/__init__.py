"""The data directory: `directory` has the lock, `snapshots` the model, `opening` and `recovery` put it all together.

    oubli-data/
      lock                             held by the running server, with its process id
      journal-000000000042.sqlite      what came after a snapshot, from record 42 on (`app.journal`)
      journal-mark, journal-reserve    the last acknowledged record; room that is kept for erasures
      snapshot-00000007.safetensors    two generations
      snapshot-00000008.safetensors
      ledger.sqlite                    the audit ledger: keyed hashes, no personal data (`app.audit`)
      keys/                            signing and hashing keys of the ledger, for the owner only
      access-keys.json                 hashes of the keys that callers send (`app.access`)

Names that begin with a dot and end in .tmp are unfinished; they are removed at start.
"""
