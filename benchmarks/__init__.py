"""One question a script; the answers are in RESULTS.md."""
