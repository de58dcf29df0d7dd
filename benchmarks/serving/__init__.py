"""What the benchmark of HTTP is made of: servers and baselines as processes, and two clients."""
