"""Columns of somebody else's table that hold a value in another way than flowctl's own would. A ``TIMESTAMP_S`` rounds
without an error. Texts become a ``UUID`` or a ``TIME``, of which a key must have one text only, as flowctl tells keys
apart by their texts; DuckDB compares such values, and takes them together, only in one type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flowctl.connectors.duckdb.columns import quoted
from flowctl.connectors.duckdb.session import DuckdbSession
from flowctl.connectors.duckdb.types import children, data_type, ddl, parsed
from flowctl.connectors.sql import limits
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.target import WriteJob
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Array, Struct

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

#: Types that every text of them belongs to as it is, and with which DuckDB takes texts together.
_TEXTS = ("varchar", "enum", "variant")
_ROUNDED = ("timestamp_s", "timestamp_ms")
_FINER = "[.][0-9]{{{0}}}[0-9]*[1-9]"
#: By type, what a text has that its value would lack: digits, or an offset.
_LOST = {
    "time": f"{_FINER.format(6)}|[-+zZ]",
    "time_ns": f"{_FINER.format(9)}|[-+zZ]",
    "time with time zone": _FINER.format(6),
    "timestamp_ns": _FINER.format(9),
    "interval": _FINER.format(6),
    "bignum": "[.]0*[1-9]",
}


def is_limited(column: Column) -> bool:
    return _converts(parsed(column.native)) or _rounds(parsed(column.native))


def limited(there: TableInfo | None, columns: Iterable[Column]) -> dict[str, Column]:
    """Those of ``columns`` that are limited in the table, which keeps their types, as it has them."""
    found = [(column, there.column(column.name)) for column in columns] if there else []
    return {now.name: now for one, now in found if now is not None and now.type == one.type and is_limited(now)}


def require_kept(session: DuckdbSession, job: WriteJob, staged: StagedRows, there: Iterable[Column]) -> None:
    """Raises :class:`TableError` for a staged value that a column of ``there`` would change."""
    for column in there:
        if test := _test(column, is_key=column.name in job.key):
            hint = f"Change the column in the target to {ddl(column.type)}, or the value in the source"
            limits.require_kept(session, job, staged, column, test, hint)


def converted(column: Column) -> str:
    """The staged value of a column in the table's own type, where the two cannot be compared."""
    name = quoted(column.name)
    return f"CAST({name} AS {column.native}) AS {name}" if _converts(parsed(column.native)) else name


def _test(column: Column, *, is_key: bool) -> str | None:
    """Whether a value, which is not null, stays as it is; None if every value does, or is refused by DuckDB."""
    native, name = parsed(column.native), quoted(column.name)
    if _rounds(native) or (is_key and _converts(native)):
        return f"CAST(CAST({name} AS {column.native}) AS {ddl(column.type)}) = {name}"
    lost = _loses(name, native)
    return f"NOT ({lost})" if lost else None


def _loses(value: str, native: DuckDBPyType, depth: int = 0) -> str | None:
    """Whether any text in ``value``, an expression, has more than its place in ``native`` holds; None if none can."""
    match data_type(native):
        case Array():
            element = f"e{depth}"
            lost = _loses(element, children(native)["child"], depth + 1)
            return f"len(list_filter({value}, lambda {element}: {lost})) > 0" if lost else None
        case Struct():
            fields = (_loses(f"{value}.{quoted(name)}", kind, depth) for name, kind in children(native).items())
            return " OR ".join(f"({lost})" for lost in fields if lost) or None
        case _:
            lost = _LOST.get(native.id)
            return f"regexp_matches({value}, '{lost}')" if lost else None


def _rounds(native: DuckDBPyType) -> bool:
    return native.id in _ROUNDED or any(map(_rounds, _parts(native)))


def _converts(native: DuckDBPyType) -> bool:
    """Whether values that flowctl has as texts are of another type there."""
    if data_type(native) == types.STRING:
        return native.id not in _TEXTS
    return any(map(_converts, _parts(native)))


def _parts(native: DuckDBPyType) -> Iterable[DuckDBPyType]:
    return children(native).values() if isinstance(data_type(native), Array | Struct) else ()
