"""The messages that cross the wire, each declared once: requests, answers, receipts and problems.

The OpenAPI document, the reference and the results of `oubli.client` come from these classes. The server's hot routes
parse and write the same JSON by hand; tests compare it with the JSON schema of the message. Nothing here imports the
rest of the package.
"""
