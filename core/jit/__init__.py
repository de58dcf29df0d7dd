"""Compiled code: the decorators of all kernels, their cache on the disk, and arrays laid out for them."""
