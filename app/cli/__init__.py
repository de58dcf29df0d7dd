"""The command line: `main` has the commands."""
