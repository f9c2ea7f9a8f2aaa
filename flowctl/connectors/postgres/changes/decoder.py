"""Captured rows of one table as typed changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.changes import decoded
from flowctl.changes.decoded import Changes
from flowctl.changes.segment import Op
from flowctl.changes.shape import Shape
from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.postgres.changes.tuples import UNSENT, Rows, read_rows, texts
from flowctl.connectors.postgres.changes.typed import typed
from flowctl.connectors.stream import Decoder
from flowctl.errors import TableError
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True)
class PostgresDecoder(Decoder):
    """Decodes rows of ``shape``. Columns that it does not have are null: a later shape has added them."""

    shape: Shape

    def decode(self, rows: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str]) -> Changes:
        import numpy as np
        import pyarrow as pa

        found = read_rows(rows["data"], len(self.shape.columns))
        ops = np.asarray(rows["op"])
        made: dict[str, Any] = {
            decoded.OP: rows["op"],
            decoded.LSN: rows["lsn"],
            decoded.ORDINAL: rows["ordinal"],
            decoded.COMMITTED_AT: rows["committed_at"],
            decoded.EVENT_AT: rows["event_at"],
            decoded.XID: rows["xid"],
        }
        unsent = {}
        old: dict[str, Any] = {}
        for column in columns:
            place = self.shape.at(column.name)
            if place is None:
                made[column.name] = pa.nulls(found.count, arrow_type(column.type))
                continue
            values, is_unsent = self._values(found, ops, column, place)
            made[column.name] = values
            if is_unsent.any():
                if column.name in key:
                    raise TableError(
                        f"{self.shape.object} sent an update without its key {column.name}",
                        hint=f"ALTER TABLE {self.shape.object} REPLICA IDENTITY FULL, then resnapshot the table",
                    )
                unsent[column.name] = is_unsent
            if column.name in key:
                old[column.name] = self._old_values(found, column, place)
        has_old = np.zeros(found.count, bool)
        has_old[found.old.rows] = True
        has_old &= ops == Op.UPDATE
        if not has_old.any():
            return Changes(pa.table(made), unsent)
        return Changes(pa.table(made), unsent, pa.table(old), has_old)

    def _values(self, found: Rows, ops: Any, column: Column, place: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """The values after each change (for a deletion: before it), and which are unknown because unchanged."""
        import numpy as np
        import pyarrow as pa

        new, old = found.new.columns[place], found.old.columns[place]
        now = texts(found.data, new)
        is_unsent = np.zeros(found.count, bool)
        is_unsent[found.new.rows[new.kinds == UNSENT]] = True
        if not len(found.old.rows) and len(found.new.rows) == found.count:
            return self._typed(now, column, place), is_unsent
        source = np.full(found.count, -1, np.int64)
        source[found.new.rows] = np.arange(len(found.new.rows))
        # A deletion has only the old row. A row is marked as whole by the identity of the table, also if that of its
        # partition has logged less: what it does not have is null.
        is_known = self.shape.columns[place].name in self.shape.old_columns
        from_old = (ops[found.old.rows] == Op.DELETE) | (is_unsent[found.old.rows] & is_known)
        source[found.old.rows[from_old]] = len(now) + np.flatnonzero(from_old)
        is_unsent[found.old.rows[from_old]] = False
        both = pa.concat_arrays([now, texts(found.data, old)])
        return self._typed(both.take(pa.array(source, mask=source < 0)), column, place), is_unsent

    def _old_values(self, found: Rows, column: Column, place: int) -> pa.Array:
        """The values before each update or deletion; null where they are not known."""
        import numpy as np
        import pyarrow as pa

        source = np.full(found.count, -1, np.int64)
        source[found.old.rows] = np.arange(len(found.old.rows))
        before = texts(found.data, found.old.columns[place])
        return self._typed(before.take(pa.array(source, mask=source < 0)), column, place)

    def _typed(self, found: pa.Array, column: Column, place: int) -> pa.Array:
        return typed(found, column, self.shape.columns[place].native, self.shape.private[place])
