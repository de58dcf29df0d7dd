"""Incremental boosting: what users see of the quantised and the presorted engine."""
