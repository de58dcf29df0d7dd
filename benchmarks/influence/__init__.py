"""The questions of `bench_influence`, one a file: what is measured, the rows it gives, and its plot."""
