"""What changed between two versions of a table, by their files: the rows of added files, less those of removed ones.

Files that both versions have are not read. A commit that only wrote rows into other files (``dataChange`` is false,
as OPTIMIZE writes it) is left out where it stands alone; mixed with others, its rows cancel each other out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.delta.log import commit_info, identity, read_entry
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of files whose rows this process holds to compare them.
MOST_BYTES = 256 << 20
_SIGN, _AT = "_flowctl_sign", "_flowctl_at"


@dataclass(frozen=True)
class ChangedFiles:
    """``removed`` and ``added`` are ``add`` actions of the older and of the newer version. ``rewrites`` names the first
    commit in between that removed rows; empty if all only added rows."""

    removed: tuple[Action, ...]
    added: tuple[Action, ...]
    rewrites: str

    @property
    def size(self) -> int:
        return sum(file["size"] for file in (*self.removed, *self.added))


def changed_files(lower: OpenTable, upper: OpenTable) -> ChangedFiles:
    """:class:`TableError` if a log entry in between no longer exists."""
    before = {identity(file): file for file in lower.files}
    after = {identity(file): file for file in upper.files}
    removed = {key: file for key, file in before.items() if key not in after}
    added = {key: file for key, file in after.items() if key not in before}
    rewrites = ""
    for version in range(lower.version + 1, upper.version + 1):
        actions = _entry(upper, version)
        gone = [action["remove"] for action in actions if "remove" in action]
        new = [action["add"] for action in actions if "add" in action]
        if any(file.get("dataChange", True) for file in gone):
            operation = commit_info(actions).get("operation", "")
            rewrites = rewrites or f"version {version}{f' ({operation})' if operation else ''}"
        if any(file.get("dataChange", True) for file in (*gone, *new)):
            continue
        old_keys, new_keys = [identity(file) for file in gone], [identity(file) for file in new]
        if all(key in removed for key in old_keys) and all(key in added for key in new_keys):
            removed = {key: file for key, file in removed.items() if key not in old_keys}
            added = {key: file for key, file in added.items() if key not in new_keys}
    return ChangedFiles(tuple(removed.values()), tuple(added.values()), rewrites)


def _entry(table: OpenTable, version: int) -> list[Action]:
    try:
        return read_entry(table.location, version)
    except FileNotFoundError as error:
        what = f"{table.location.url}: the log no longer has version {version}"
        raise TableError(what, hint="Read the table again with --full-refresh") from error


@dataclass(frozen=True)
class Difference:
    """``scan`` reads columns of the newer version, under whose columns the older one's files are read too."""

    scan: Scan
    files: ChangedFiles

    def added_rows(self) -> Iterator[pa.RecordBatch]:
        """All rows of added files, those that were only moved to them included."""
        return self.scan.rows(self.files.added)

    def net_rows(self, key: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """New rows, each as often as there are more of it than before; and, if there is a ``key``, one row of each key
        that has none any more, with True. Without one, :class:`StoppedByPolicy` if any row is gone."""
        if not self.files.removed:
            yield from ((batch, False) for batch in self.added_rows())
            return
        scan = self.scan
        missing = [name for name in key if name not in {column.name for column in scan.columns}]
        if missing:  # a deletion is found by the key
            scan = replace(scan, columns=(*scan.columns, *_columns(scan.table, missing)))
        rows, comparable = _table(scan, self.files)
        if not len(rows):
            return
        new, gone = _compare(comparable)
        names = [column.name for column in self.scan.columns]
        if len(new):
            yield from ((batch, False) for batch in rows.take(new).select(names).to_batches())
        if len(gone) and not key:
            raise StoppedByPolicy(
                f"rows of {self.scan.table.location.url} were removed or changed: they cannot be appended",
                hint="Read all again with --full-refresh",
            )
        if len(gone):
            deleted = _without_living(comparable, gone, [_name(scan.columns, name) for name in key])
            yield from ((batch, True) for batch in rows.take(deleted).select(names).to_batches())


def _columns(table: OpenTable, names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(column for column in table.columns if column.name in names)


def _name(columns: Sequence[Column], name: str) -> str:
    return str(next(at for at, column in enumerate(columns) if column.name == name))


def _table(scan: Scan, files: ChangedFiles) -> tuple[pa.Table, pa.Table]:
    """All rows, and the same in columns that compare exactly, named by their numbers, with :data:`_SIGN` 1 for rows of
    added files and -1 for those of removed ones, and the row's number :data:`_AT`."""
    import pyarrow as pa

    schema = arrow_schema(scan.columns)
    added = pa.Table.from_batches(scan.rows(files.added), schema)
    removed = pa.Table.from_batches(scan.rows(files.removed), schema)
    rows = pa.concat_tables([added, removed]).combine_chunks()
    signs = pa.concat_arrays([pa.repeat(pa.scalar(1, pa.int64()), len(added)), pa.repeat(-1, len(removed))])
    values = {str(at): _exact(rows.column(at)) for at in range(rows.num_columns)}
    return rows, pa.table({**values, _SIGN: signs, _AT: pa.arange(0, len(rows))})


def _exact(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values that are equal exactly if these are: floats by their bits, parts of columns as text."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        bits = pa.int32() if kind == pa.float32() else pa.int64()
        return pa.chunked_array([chunk.view(bits) for chunk in values.chunks], bits)
    return values


def _compare(rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The numbers of new rows, and of rows that are gone; each of a group of equal rows as often as it counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name for name in rows.column_names if name not in (_SIGN, _AT)]
    groups = rows.group_by(names, use_threads=False).aggregate([(_SIGN, "sum"), (_AT, "min")])
    more, at = groups[f"{_SIGN}_sum"].to_numpy(), groups[f"{_AT}_min"].to_numpy()
    new = at[more > 0].repeat(more[more > 0])
    return pa.array(new), pa.array(groups.filter(pc.less(groups[f"{_SIGN}_sum"], 0))[f"{_AT}_min"].to_numpy())


def _without_living(rows: pa.Table, gone: pa.Array, key: Sequence[str]) -> pa.Array:
    """Those of ``gone`` whose key no row of an added file has; one of each key."""
    import pyarrow.compute as pc

    living = rows.filter(pc.greater(rows[_SIGN], 0)).select(list(key))
    dead = rows.take(gone).select([*key, _AT])
    groups = dead.join(living, keys=list(key), join_type="left anti", use_threads=False)
    return groups.group_by(list(key), use_threads=False).aggregate([(_AT, "min")])[f"{_AT}_min"].combine_chunks()


def other_types(lower: OpenTable, upper: OpenTable) -> str:
    """The first column whose files of the older version cannot be read as the newer one's; empty if all can."""
    before = {column.name: column.type for column in lower.columns}
    for column in upper.columns:
        old = before.get(column.name, column.type)
        if old != column.type and not types.is_wider(column.type, old):
            return column.name
    return ""
