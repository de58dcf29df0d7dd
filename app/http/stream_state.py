"""What the connection and the answer in pieces on it tell each other, by the scope of the request."""

from dataclasses import dataclass

STREAM = "oubli.stream"
"""Key of a `Stream`; requests that are answered in pieces while their body comes in have one."""
UNSENT = "oubli.unsent"
"""Key of a function that returns how many bytes were written and not taken in by the client."""
PUSH = "oubli.push"
"""Key of a function that writes a chunk, its length before it, of an answer that has begun; false when it cannot."""


@dataclass(slots=True)
class Stream:
    """How far an answer in pieces is.

    Attributes
    ----------
    n_blocks
        Blocks of the body that were begun; the answer to the one before was taken in by the client.
    keeps_all
        Whether something of the first block is kept until the end.
    """

    n_blocks: int = 0
    keeps_all: bool = False

    def begin_block(self, *, keeps: bool) -> None:
        """Note that a block is begun; whether something of it is kept for later ones."""
        self.n_blocks += 1
        self.keeps_all = self.keeps_all or keeps
