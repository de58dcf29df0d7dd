"""Work that takes minutes: it is asked for, goes on by itself, and tells where it is."""
