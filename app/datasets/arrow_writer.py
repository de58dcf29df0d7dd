"""Arrow IPC streams, written piece by piece."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


class ArrowWriter:
    """Writes record batches of one schema, and gives away the bytes.

    Parameters
    ----------
    schema
        Of all batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)

    def write(self, batch: pa.RecordBatch, metadata: Mapping[str, bytes] | None = None) -> bytes:
        """Write a batch, and return the bytes; before the first those of the schema."""
        self._writer.write_batch(batch, custom_metadata=metadata)
        return self._sink.take()

    def close(self) -> bytes:
        """Return the mark of the end."""
        self._writer.close()
        return self._sink.take()


class _Sink:
    """Keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._n = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._n += len(piece)
        return len(piece)

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    def tell(self) -> int:
        return self._n

    def writable(self) -> bool:
        return True

    def flush(self) -> None: ...

    def close(self) -> None: ...
