"""Bulk requests: bodies and answers in CSV, NDJSON and Arrow streams."""
