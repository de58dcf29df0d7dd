"""Connections: the sockets, the HTTP/1.1 protocol, and the fast path that answers the most frequent requests on it."""
