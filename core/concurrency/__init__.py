"""Threads: the lock of a model, changes that are all or nothing, and long work in pieces or in slices."""
