"""Boosted trees that learn and unlearn."""
