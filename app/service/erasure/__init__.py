"""Erasures: checkpoints that rewrite files, everything that holds a sample, and samples that expire."""
