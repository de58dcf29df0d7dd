"""The libraries of two commits beside each other, in processes that are asked in turn."""
