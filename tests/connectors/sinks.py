"""Where a source's record batches go in tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class Rows:
    """A sink in memory."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]
