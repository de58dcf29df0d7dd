"""Incremental boosting: the parameters and estimators over the quantised and the presorted engine."""
