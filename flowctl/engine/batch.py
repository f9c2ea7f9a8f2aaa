"""The rows of one batch: held by this process, or computed by an engine.

Which of the two depends on how much was read (:data:`flowctl.engine.cost.IN_MEMORY_BYTES`) and is decided once. In
both cases, an engine computes projection, operations and checks. If the rows are in memory, its result is fetched
once, so that a target that does not need an engine starts no further query.
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
    """``rows`` have the types that the engine produces."""

    rows: pa.Table

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.rows.schema.names)


@dataclass(frozen=True)
class OnEngine:
    """``frame`` is recomputed at each use, unless it reads the buffer. ``folder`` contains all of its rows, and maybe
    others; None if no folder does."""

    frame: DataFrame
    folder: BufferFolder | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.frame.columns)


Batch = InMemory | OnEngine
