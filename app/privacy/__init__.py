"""What leaves the server by itself: to which addresses, over which connections, and signed by what."""
