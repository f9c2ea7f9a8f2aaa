"""The rows of a captured segment, as documented for everybody who reads the files (docs/streams.md).

A row is one change of one row of a table, or one of a whole table: its TRUNCATE, its replacement by rows that the
source's log does not have, or the end of some of its columns. ``shape`` numbers the tables' descriptions within a
batch; its manifest resolves the numbers. ``lsn`` orders transactions and ``ordinal`` the changes within one.
``committed_at`` is the source's clock at the commit. ``event_at`` is the same, or a microsecond after the transaction
before, if it would not be later: clocks are set back, and some are coarse. ``data`` is the change as the source sent
it: only the connector that captured it reads it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Op(IntEnum):
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4
    REPLACED = 5
    ALTERED = 6
    UNKEYED = 7


#: Changes of a whole table that concern its rows: they have none themselves. After `UNKEYED` several rows may have had
#: what was its primary key.
OF_TABLES = (Op.TRUNCATE, Op.REPLACED, Op.UNKEYED)
#: The letter of each operation in a target's ``_op``.
LETTERS = {
    Op.INSERT: "I", Op.UPDATE: "U", Op.DELETE: "D", Op.TRUNCATE: "T", Op.REPLACED: "X", Op.ALTERED: "A",
    Op.UNKEYED: "K",
}  # fmt: skip


def segment_schema() -> pa.Schema:
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            pa.field("shape", pa.int32(), nullable=False),
            pa.field("op", pa.int8(), nullable=False),
            pa.field("lsn", pa.int64(), nullable=False),
            pa.field("ordinal", pa.int64(), nullable=False),
            pa.field("committed_at", moment, nullable=False),
            pa.field("event_at", moment, nullable=False),
            pa.field("xid", pa.int64(), nullable=False),
            pa.field("data", pa.binary(), nullable=False),
        ]
    )
