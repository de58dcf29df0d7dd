"""Exact boosting whose updates equal training anew; see `core/boosting`."""
