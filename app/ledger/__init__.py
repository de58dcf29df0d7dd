"""The audit ledger: what was unlearned and erased, when, and a receipt for it that anybody can check.

    event loop          journal              ledger's thread
    ledger   --notes--> (made durable) ----> database: ledger.sqlite  made from the notes, may lag behind
       |                                        |
    receipt, signed: `unlearned`             receipts, signed again when `erased`; entries by page
       |                                        |
       +--------- keys: sign receipts, hash ids; files outside of ledger and snapshots

    1 <-- 2 <-- 3 <-- 4      entries: each holds the hash of the one before

`entries` says what an entry is and which bytes are hashed and signed; `verify` checks a download offline.

What it proves. With one hash, and each receipt holds one, anybody can check that no entry up to it was altered,
removed, moved or put in between since. A receipt is signed: its server cannot deny it later. What it does not prove:
that every erasure was entered, that entries after the last known hash were not cut off or written again by anyone who
has the server, that the clock was right, or that the server did what it wrote; for the last, `POST /model/verify`
compares the model with a fresh fit.

There is no personal data in it: ids and subjects are keyed hashes (HMAC), case numbers are UUIDs, everything else is
numbers and words of this program. With the hashing key a known id can be found again; once it is
destroyed it cannot.
"""
