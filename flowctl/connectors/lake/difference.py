"""The rows by which two versions of a table differ: those that only the newer one has, and the keys that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.lake.part import Part
from flowctl.connectors.lake.row_search import comparable
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of files whose rows this process holds to compare them; in memory they take several times as many.
MOST_BYTES = 128 << 20
#: Bytes of a column's text that one array holds; pyarrow 26 crashes when it groups rows with more (tested).
_MOST_TEXT = 2_000_000_000
_SIGN, _AT = "_flowctl_sign", "_flowctl_at"


def with_key(columns: Sequence[Column], key: Sequence[str], table: Iterable[Column]) -> tuple[Column, ...]:
    """A deletion is found by the key, even if its columns are not read."""
    there = {column.name for column in columns}
    return (*columns, *(column for column in table if column.name in key and column.name not in there))


def net_rows(
    added: Iterable[Part],
    removed: Iterable[pa.RecordBatch],
    columns: Sequence[Column],
    key: Sequence[str],
    names: Sequence[str],
    table: str,
) -> Iterator[Part]:
    """``added`` and ``removed`` are rows of the newer and of the older version, with ``columns``; rows that both have
    cancel each other out. Yields the columns ``names`` of new rows, each as often as there are more of it than before;
    and, if there is a ``key``, one row of each key that has none any more, as deleted. Without one,
    :class:`StoppedByPolicy` if any row is gone; ``table`` is its name there. Holds all rows."""
    rows, versions, values = _all_rows(added, removed, columns)
    if not len(rows):
        return
    if any(_is_text(column.type) and column.nbytes > _MOST_TEXT for column in rows.columns):
        raise TableError(
            f"changed rows of {table} have more than 2 GB of text in one column: they cannot be compared in memory",
            hint="Read all again with --full-refresh",
        )
    new, gone = _compare(values)
    if len(new):
        yield from _parts(rows.take(new).select(names), versions.take(new))
    if len(gone) and not key:
        raise StoppedByPolicy(
            f"rows of {table} were removed or changed: they cannot be appended",
            hint="Read all again with --full-refresh",
        )
    if len(gone):
        keys = {_name(columns, name): exact_key(rows[name]) for name in key}
        deleted = _without_living(_with_columns(values, keys), gone, list(keys))
        yield from (Part(batch, is_deleted=True) for batch in rows.take(deleted).select(names).to_batches())


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def exact(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values that are equal exactly if these are: floats by their bits, parts of columns as text."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        bits = pa.int32() if kind == pa.float32() else pa.int64()
        return pa.chunked_array([chunk.view(bits) for chunk in values.chunks], bits)
    return values


def exact_key(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """As :func:`exact`, for a column of a key: the two zeros are one value there, and so are all NaNs, as they are for
    the target that the key is looked up in."""
    import pyarrow as pa

    return exact(comparable(pa.table([values], names=["key"]))["key"])


def _all_rows(
    added: Iterable[Part], removed: Iterable[pa.RecordBatch], columns: Sequence[Column]
) -> tuple[pa.Table, pa.ChunkedArray, pa.Table]:
    """All rows, the versions that added them (null for removed ones), and the rows in columns that compare exactly,
    named by their numbers, with :data:`_SIGN` 1 for added rows and -1 for removed ones, and the row's number
    :data:`_AT`."""
    import pyarrow as pa

    schema, parts = arrow_schema(columns), list(added)
    more = pa.Table.from_batches([part.rows for part in parts], schema)
    less = pa.Table.from_batches(list(removed), schema)
    rows = pa.concat_tables([more, less]).combine_chunks()
    one = pa.scalar(1, pa.int64())
    signs = pa.concat_arrays([pa.repeat(one, len(more)), pa.repeat(pa.scalar(-1, pa.int64()), len(less))])
    versions = [part.versions for part in parts if part.versions is not None]
    values = {str(at): exact(rows.column(at)) for at in range(rows.num_columns)}
    return (
        rows,
        pa.chunked_array([*versions, pa.nulls(len(less), pa.int64())], pa.int64()),
        pa.table({**values, _SIGN: signs, _AT: pa.arange(0, len(rows))}),
    )


def _parts(rows: pa.Table, versions: pa.ChunkedArray) -> Iterator[Part]:
    import pyarrow as pa

    (batch,) = rows.combine_chunks().to_batches()
    yield Part(batch, versions=pa.concat_arrays(versions.chunks))


def _with_columns(rows: pa.Table, values: Mapping[str, pa.ChunkedArray | pa.Array]) -> pa.Table:
    for name, column in values.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _name(columns: Sequence[Column], name: str) -> str:
    return str(next(at for at, column in enumerate(columns) if column.name == name))


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
