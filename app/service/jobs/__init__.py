"""Jobs: long work that callers look up by its id, among it fits, scores and exports."""
