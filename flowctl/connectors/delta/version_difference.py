"""What changed between two versions of a table, by their files: the rows of added files, less those of removed ones.

Files that both versions have are not read. A commit that only wrote rows into other files is left out where it stands
alone; mixed with others, its rows cancel each other out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.delta.log import identity
from flowctl.connectors.delta.log_range import LogCommit
from flowctl.connectors.delta.part import Part
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

_SIGN, _AT = "_flowctl_sign", "_flowctl_at"


@dataclass(frozen=True)
class ChangedFiles:
    """``removed`` and ``added`` are ``add`` actions of the older and of the newer version; ``versions`` are those that
    added the latter, in the same order."""

    removed: tuple[Action, ...]
    added: tuple[Action, ...]
    versions: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(file["size"] for file in (*self.removed, *self.added))


def changed_files(lower: OpenTable, upper: OpenTable, commits: Sequence[LogCommit]) -> ChangedFiles:
    """``commits`` are those between the two."""
    before = {identity(file): file for file in lower.files}
    after = {identity(file): file for file in upper.files}
    removed = {key: file for key, file in before.items() if key not in after}
    added = {key: file for key, file in after.items() if key not in before}
    for commit in commits:
        old, new = map(identity, commit.moved_from), map(identity, commit.moved_to)
        old_keys, new_keys = list(old), list(new)
        if all(key in removed for key in old_keys) and all(key in added for key in new_keys):
            removed = {key: file for key, file in removed.items() if key not in old_keys}
            added = {key: file for key, file in added.items() if key not in new_keys}
    written = _versions(commits)
    in_order = sorted(added, key=lambda key: written[key])
    return ChangedFiles(
        tuple(removed.values()), tuple(added[key] for key in in_order), tuple(written[key] for key in in_order)
    )


def _versions(commits: Sequence[LogCommit]) -> Mapping[tuple[str, str], int]:
    return {identity(file): commit.version for commit in commits for file in (*commit.added, *commit.moved_to)}


@dataclass(frozen=True)
class Difference:
    """``scan`` reads columns of the newer version, under whose columns the older one's files are read too."""

    scan: Scan
    files: ChangedFiles

    def added_rows(self) -> Iterator[Part]:
        """All rows of added files, those that were only moved to them included."""
        import pyarrow as pa

        for file, version in zip(self.files.added, self.files.versions, strict=True):
            for batch in self.scan.rows([file]):
                yield Part(batch, versions=pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows))

    def net_rows(self, key: Sequence[str]) -> Iterator[Part]:
        """New rows, each as often as there are more of it than before; and, if there is a ``key``, one row of each key
        that has none any more, with True. Without one, :class:`StoppedByPolicy` if any row is gone."""
        if not self.files.removed:
            yield from self.added_rows()
            return
        wider = replace(self, scan=with_key(self.scan, key))
        columns = wider.scan.columns
        rows, versions, comparable = wider._all_rows()
        if not len(rows):
            return
        new, gone = _compare(comparable)
        names = [column.name for column in self.scan.columns]
        if len(new):
            yield from _parts(rows.take(new).select(names), versions.take(new))
        if len(gone) and not key:
            raise StoppedByPolicy(
                f"rows of {self.scan.table.location.url} were removed or changed: they cannot be appended",
                hint="Read all again with --full-refresh",
            )
        if len(gone):
            deleted = _without_living(comparable, gone, [_name(columns, name) for name in key])
            yield from (Part(batch, is_deleted=True) for batch in rows.take(deleted).select(names).to_batches())

    def _all_rows(self) -> tuple[pa.Table, pa.ChunkedArray, pa.Table]:
        """All rows, the versions that added them (null for removed ones), and the rows in columns that compare exactly,
        named by their numbers, with :data:`_SIGN` 1 for rows of added files and -1 for those of removed ones, and the
        row's number :data:`_AT`."""
        import pyarrow as pa

        schema, parts = arrow_schema(self.scan.columns), list(self.added_rows())
        added = pa.Table.from_batches([part.rows for part in parts], schema)
        removed = pa.Table.from_batches(self.scan.rows(self.files.removed), schema)
        rows = pa.concat_tables([added, removed]).combine_chunks()
        one = pa.scalar(1, pa.int64())
        signs = pa.concat_arrays([pa.repeat(one, len(added)), pa.repeat(pa.scalar(-1, pa.int64()), len(removed))])
        versions = [part.versions for part in parts if part.versions is not None]
        values = {str(at): exact(rows.column(at)) for at in range(rows.num_columns)}
        return (
            rows,
            pa.chunked_array([*versions, pa.nulls(len(removed), pa.int64())], pa.int64()),
            pa.table({**values, _SIGN: signs, _AT: pa.arange(0, len(rows))}),
        )


def with_key(scan: Scan, key: Sequence[str]) -> Scan:
    """A deletion is found by the key, even if its columns are not read."""
    there = {column.name for column in scan.columns}
    missing = tuple(column for column in scan.table.columns if column.name in key and column.name not in there)
    return replace(scan, columns=(*scan.columns, *missing))


def _parts(rows: pa.Table, versions: pa.ChunkedArray) -> Iterator[Part]:
    import pyarrow as pa

    (batch,) = rows.combine_chunks().to_batches()
    yield Part(batch, versions=pa.concat_arrays(versions.chunks))


def _name(columns: Sequence[Column], name: str) -> str:
    return str(next(at for at, column in enumerate(columns) if column.name == name))


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
