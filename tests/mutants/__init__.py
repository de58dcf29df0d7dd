"""Small faults that the tests must find.

python -m tests.mutants make            draw 200 faults into faults.json, 20 of them for every release
python -m tests.mutants run             try the 20 drawn ones, each in a copy of a commit
python -m tests.mutants run --all       try all of them; survivors are printed
python -m tests.mutants run --mends     try the mends of earlier faults, each undone
python -m tests.mutants matrix          write matrix.md: which test files catch which fault
"""
