"""The questions of `bench_boosting`: what is measured, the rows it gives, and its plot."""
