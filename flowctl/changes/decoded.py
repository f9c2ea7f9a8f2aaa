"""Changes of one table with typed values, as a source's decoder returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Flags = npt.NDArray[np.bool_]

#: Columns of decoded rows beside the table's own, as in a segment.
OP, LSN, ORDINAL, COMMITTED_AT, EVENT_AT, XID = (
    "_flowctl_op",
    "_flowctl_lsn",
    "_flowctl_ordinal",
    "_flowctl_committed_at",
    "_flowctl_event_at",
    "_flowctl_xid",
)
OWN_COLUMNS = (OP, LSN, ORDINAL, COMMITTED_AT, EVENT_AT, XID)


@dataclass(frozen=True)
class Changes:
    """``rows`` has :data:`OWN_COLUMNS`, then the table's columns: the row after the change, or for a deletion what is
    known of the row before. They are in the order of the source.

    ``unsent`` flags, by column, the rows of which the source did not send the value because it is unchanged; columns
    that were always sent are left out. ``old`` has the key columns of the row before an update, for the rows that
    ``has_old`` flags; None if there are none."""

    rows: pa.Table
    unsent: Mapping[str, Flags]
    old: pa.Table | None = None
    has_old: Flags | None = None


def concatenated(parts: Sequence[Changes]) -> Changes:
    """``parts`` of the same columns, one after the other."""
    import numpy as np
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    names = sorted({name for part in parts for name in part.unsent})
    unsent = {
        name: np.concatenate([part.unsent.get(name, np.zeros(part.rows.num_rows, bool)) for part in parts])
        for name in names
    }
    rows = pa.concat_tables([part.rows for part in parts])
    like = next((part.old for part in parts if part.old is not None), None)
    if like is None:
        return Changes(rows, unsent)
    olds = [part.old if part.old is not None else _nulls(like.schema, part.rows.num_rows) for part in parts]
    flags = [part.has_old if part.has_old is not None else np.zeros(part.rows.num_rows, bool) for part in parts]
    return Changes(rows, unsent, pa.concat_tables(olds), np.concatenate(flags))


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    import pyarrow as pa

    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)
