"""Recovery: the start from files, restores, and what they must not bring back."""
