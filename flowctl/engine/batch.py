"""The rows of one batch: held by this process, or computed by an engine.

Which it is follows from what was read (:data:`flowctl.engine.cost.IN_MEMORY_BYTES`) and is decided once. An engine
computes both: projection, operations, checks. What it computes of rows in memory comes back, in one trip, so that a
target which needs no engine for its own part starts no further query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class InMemory:
    """``rows`` in the types that the engine gives them."""

    rows: pa.Table

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.rows.schema.names)


@dataclass(frozen=True)
class OnEngine:
    """``frame`` is computed with each use, unless it reads the buffer. ``folder`` has all of its rows, and maybe
    others; None where no folder has."""

    frame: DataFrame
    folder: BufferFolder | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.frame.columns)


Batch = InMemory | OnEngine
