"""The routes: parse, call the service, answer. `schemas` describes every body, `responses` makes the answers."""
