"""The shapes of requests and answers, for the OpenAPI page and for the routes that need no speed.

`/predict`, `POST /samples` and the deletions do not build these objects: they parse and answer raw JSON of the same
shape; a test compares the two.
"""
