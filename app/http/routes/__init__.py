"""The routes: parse, call the service, answer. `oubli.api` describes every body, `responses` makes the answers."""
