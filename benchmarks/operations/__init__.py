"""The questions of `bench_operations`, one a file: what is measured, the rows it gives, and the marks for them."""
