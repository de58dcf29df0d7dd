"""What a model says of samples that its trees have not learned: scores, sets and intervals, the worth of samples."""
