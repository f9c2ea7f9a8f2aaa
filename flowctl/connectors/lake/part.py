"""What a read of a table's versions delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Part(NamedTuple):
    """Some rows, all of them deleted or none. ``versions`` are those that wrote them (64-bit integers); None: not
    known, as of a whole table."""

    rows: pa.RecordBatch
    is_deleted: bool = False
    versions: pa.Array | None = None
