"""The questions of `bench_paper`, one a file: what is measured, the rows it gives, and its plot."""
