"""The routes: parse, delegate to the service, answer. `shapes` describes every body, `answers` makes the responses."""
