"""The service: one model behind HTTP, a command line, and a directory that keeps it.

Data flows one way: HTTP -> `routes` -> `service` -> estimator, and back. `service` knows no HTTP, `core` knows
nothing of `app`.
"""
