"""Where in its source's log a change was made, as text that sorts as the changes of one row were made.

Source of the fields: "source" in the documentation of Debezium's connectors, and "output_binlog_position" and
"output_xoffset" in Maxwell's. Changes of one row are ordered by the source's own locks: the later one is behind the
earlier one in its log. Positions of different servers do not compare.

A row of a snapshot was not changed: it must be behind what was committed before, and before what is committed later.
Where the position is that of a commit, it is. PostgreSQL's `lsn` is that of the change itself: a transaction that was
open during the snapshot may have written it earlier. So the commit before the change counts first, which `sequence` has
(["last commit", "lsn"], each may be null): by it, messages sort as they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Struct

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class _Part:
    """A field of a position, as ``width`` digits (decimal, or hexadecimal in lower case). ``is_first``: where it is
    missing, the change is before those that have it. ``instead``: where it is missing, the field that counts.
    ``is_of_change``: a snapshot's rows have none, and are before the changes that have the same other fields."""

    field: str
    width: int
    is_first: bool = False
    instead: str = ""
    is_of_change: bool = False


#: Behind every other row of a transaction.
_LAST_ROW = 10**10 - 1
_BINLOG = (_Part("file", 10), _Part("pos", 20), _Part("row", 10))
#: By the name of Debezium's connector, what orders its changes. A snapshot has the position at which it was taken.
_DEBEZIUM: Mapping[str, Sequence[_Part]] = {
    "postgresql": (_Part("sequence", 20, instead="lsn"), _Part("lsn", 20, is_of_change=True)),
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "sqlserver": (
        _Part("commit_lsn", 20),
        _Part("change_lsn", 20, is_first=True),
        _Part("event_serial_no", 10, is_first=True),
    ),
    "db2": (_Part("commit_lsn", 32), _Part("change_lsn", 32, is_first=True)),
    "oracle": (_Part("scn", 20), _Part("rs_id", 20, is_first=True), _Part("ssn", 10, is_first=True)),
}
_FIELDS: tuple[tuple[str, DataType], ...] = (
    *((name, types.STRING) for name in ("connector", "sequence", "file", "commit_lsn", "change_lsn", "scn", "rs_id")),
    *((name, types.INT64) for name in ("lsn", "pos", "row", "event_serial_no", "ssn")),
)
#: What is decoded of Debezium's `source`, and of Maxwell's messages.
DEBEZIUM_SOURCE = Struct(_FIELDS)
MAXWELL_FIELDS = (
    Column("position", types.STRING),
    Column("xoffset", types.INT64),
    Column("commit", types.BOOL),
)


def order_of_debezium(source: pa.Array, operation: pa.Array) -> pa.Array:
    """``source`` is of :data:`DEBEZIUM_SOURCE`, ``operation`` its letter; null where it does not tell the order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    connector = pc.struct_field(source, "connector")
    order, is_read = pa.nulls(len(source), pa.string()), pc.equal(operation, "r")
    for name in connector.unique().to_pylist():
        if parts := _DEBEZIUM.get(name):
            made = [_digits(_field(source, part), part, is_read) for part in parts]
            order = pc.if_else(pc.equal(connector, name), _joined(made), order)
    return order


def order_of_maxwell(position: pa.Array, xoffset: pa.Array, commit: pa.Array, operation: pa.Array) -> pa.Array:
    """The arrays are the fields of :data:`MAXWELL_FIELDS`, and the type of each message. The last row of a transaction
    has no `xoffset`, but `commit`. The rows of a bootstrap have no position: they are before all changes, which follow
    or have come already."""
    import pyarrow.compute as pc

    is_bootstrap = pc.equal(operation, "bootstrap-insert")
    split = pc.extract_regex(pc.if_else(is_bootstrap, ".0:0", position), r"^(?P<file>.*):(?P<pos>[0-9]+)$")
    within = pc.if_else(pc.fill_null(commit, False), _LAST_ROW, pc.if_else(is_bootstrap, 0, xoffset))
    values = (pc.struct_field(split, "file"), pc.struct_field(split, "pos"), within)
    return _joined([_digits(value, part) for value, part in zip(values, _BINLOG, strict=True)])


def _field(source: pa.Array, part: _Part) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.struct_field(source, part.field).cast(pa.string())
    if part.field == "sequence":
        values = pc.struct_field(pc.extract_regex(values, r'^\[\s*"?(?P<commit>[0-9]+)'), "commit")
    return pc.coalesce(values, pc.struct_field(source, part.instead).cast(pa.string())) if part.instead else values


def _digits(values: pa.Array, part: _Part, is_read: pa.Array | None = None) -> pa.Array:
    """Null for what is no number of so many digits. ``is_read``: which are of a snapshot's rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_lower(values.cast(pa.string()))
    if part.field == "file":  # mysql-bin.000003
        texts = pc.struct_field(pc.extract_regex(texts, r"\.(?P<number>[0-9]+)$"), "number")
    texts = pc.replace_substring_regex(texts, r"^\s*0x|[:.\s]", "")
    if part.is_first:
        texts = pc.fill_null(texts, "")
    fits = pc.match_substring_regex(texts, f"^[0-9a-f]{{{0 if part.is_first else 1},{part.width}}}$")
    if part.is_of_change and is_read is not None:
        texts = pc.if_else(is_read, "0", texts)
    return pc.utf8_lpad(pc.if_else(fits, texts, pa.scalar(None, pa.string())), part.width, "0")


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*parts, ".")
