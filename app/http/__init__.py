"""HTTP: the server, what each request passes, the routes, and a fast path for the requests that are sent most."""
