"""Requests that the server sends by itself: allowed addresses, connections, and signatures."""
