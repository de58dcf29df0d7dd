"""The questions of `bench_tree`, one a file: what is measured, the rows it gives, and its plot."""
