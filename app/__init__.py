"""The service: one model behind HTTP, a command line, and a directory that keeps it.

    cli          commands and their output
    http         requests and responses; nothing else knows HTTP
    service      one model, and all that changes it or reads it
    ledger       the audit ledger: entries, receipts, keys
    datasets     data files
    storage      the data directory: journal and snapshots

A folder imports from those below it only, and from what all share: `access` (keys and origins), `settings`, `errors`,
`times`, `clock`, `progress`. `core` knows nothing of `app`.
"""

if __name__ != "oubli.app":
    raise ImportError(
        f"the package is oubli: write `import oubli.app`; {__name__!r} would be a second one of every class"
    )
