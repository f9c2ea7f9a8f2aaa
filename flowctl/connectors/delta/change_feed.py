"""What changed between two versions of a table, commit by commit, from its change data feed.

A commit that has files of changes is described by these alone; of any other, the rows of added files were inserted and
those of removed ones deleted (Delta protocol, *Change Data Files*). A file that a commit only hides rows of is removed
and added with another deletion vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.connectors.delta.file_reader import read_hidden
from flowctl.connectors.delta.log_range import LogCommit
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.difference import exact_key, with_key
from flowctl.connectors.lake.part import Part
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

#: Values of ``_change_type``. An update is its row before, deleted, and its row after, inserted.
_INSERTED, _DELETED = ("insert", "update_postimage"), ("delete", "update_preimage")
_AT = "_flowctl_at"


def feed_files(commits: Sequence[LogCommit]) -> tuple[Action, ...]:
    """All files that a read of these commits' changes may open."""
    return tuple(
        file for commit in commits for file in (commit.feed if commit.feed else (*commit.removed, *commit.added))
    )


@dataclass(frozen=True)
class ChangeFeed:
    """``scan`` reads columns of the newest version."""

    scan: Scan
    commits: tuple[LogCommit, ...]

    def upserts(self) -> Iterator[Part]:
        """Every row that was inserted or changed, as it was after each commit."""
        return (part for part in self._changes() if not part.is_deleted)

    def net_rows(self, key: Sequence[str]) -> Iterator[Part]:
        """As :meth:`upserts`, without rows whose key no longer exists; and of these keys the deleted row. Holds all
        keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = with_key(self.scan.columns, key, self.scan.table.columns)
        wider = replace(self, scan=replace(self.scan, columns=columns))
        names = [column.name for column in self.scan.columns]
        keys = replace(wider, scan=replace(wider.scan, columns=_columns(wider.scan, key)))
        seen = [_keyed(part, key) for part in keys._changes()]
        if not seen:
            return
        by_key = _key_names(key)
        last = pa.concat_tables(seen).group_by(by_key, use_threads=False).aggregate([(_AT, "max")])
        is_deleted = pc.equal(pc.bit_wise_and(last[f"{_AT}_max"], 1), 0)
        dead = last.filter(is_deleted).select([*by_key, f"{_AT}_max"]).rename_columns([*by_key, _AT])
        for part in wider._changes():
            placed = _keyed(part, key).append_column("row", pa.arange(0, part.rows.num_rows))
            if part.is_deleted:
                chosen = placed.join(dead, keys=[*by_key, _AT], join_type="left semi", use_threads=False)
            else:
                chosen = placed.join(dead.select(by_key), keys=by_key, join_type="left anti", use_threads=False)
            at = chosen["row"].combine_chunks()
            at = at.take(pc.sort_indices(at))
            if len(at):
                assert part.versions is not None
                yield Part(part.rows.take(at).select(names), part.is_deleted, part.versions.take(at))

    def _changes(self) -> Iterator[Part]:
        """In the order of the commits; of each commit deleted rows first."""
        import pyarrow as pa

        for commit in self.commits:
            for is_deleted in (True, False):
                for rows in self._of(commit, is_deleted=is_deleted):
                    if rows.num_rows:
                        versions = pa.repeat(pa.scalar(commit.version, pa.int64()), rows.num_rows)
                        yield Part(rows, is_deleted, versions)

    def _of(self, commit: LogCommit, *, is_deleted: bool) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if commit.feed:
            wanted = pa.array(_DELETED if is_deleted else _INSERTED)
            for file in commit.feed:
                for rows, kinds in self.scan.changes(file):
                    yield rows.filter(pc.is_in(kinds, wanted))
            return
        before, after = _by_path(commit.removed), _by_path(commit.added)
        here, other = (before, after) if is_deleted else (after, before)
        for path, file in here.items():
            if path in other:  # rows that are live here and hidden there
                location = self.scan.table.location
                numbers = read_hidden(location, other[path]) - read_hidden(location, file)
                yield from self.scan.rows_at(file, numbers) if numbers else ()
            else:
                yield from self.scan.rows([file])


def _by_path(files: Iterable[Action]) -> dict[str, Action]:
    return {file["path"]: file for file in files}


def _columns(scan: Scan, names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(column for column in scan.columns if column.name in names)


def _key_names(key: Sequence[str]) -> list[str]:
    return [str(at) for at in range(len(key))]


def _keyed(part: Part, key: Sequence[str]) -> pa.Table:
    """The keys of the part's rows in columns that compare exactly, and :data:`_AT`: twice the version, one more for
    rows that exist after it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert part.versions is not None
    columns = {str(at): exact_key(pa.chunked_array([part.rows.column(name)])) for at, name in enumerate(key)}
    at = pc.add(pc.multiply(part.versions, 2), 0 if part.is_deleted else 1)
    return pa.table({**columns, _AT: at})
