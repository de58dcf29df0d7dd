"""How long samples are kept: times as they are written, a clock that can be trusted, and how many may go at once."""
