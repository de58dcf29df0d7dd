"""Mutation testing of the suite: small faults, put into the code one at a time; the tests must find each.

    python -m tests.mutants make            draw 200 faults from a seed into faults.json, 20 of them for every release
    python -m tests.mutants run             the 20 drawn ones: each in a worktree of its own commit
    python -m tests.mutants run --all       all of them; survivors are printed

A fault is one changed expression in a kernel, the sample store, the journal, recovery or the ledger. It is found again
by its function and its line, not by its line number: a list outlives edits elsewhere in a file, and functions that move
to another file.
"""
