"""What changed between two versions of a table, by their files: the rows of added files, less those of removed ones.

Files that both versions have are not read. A commit that only wrote rows into other files is left out where it stands
alone; mixed with others, its rows cancel each other out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.connectors.delta.log import identity
from flowctl.connectors.delta.log_range import LogCommit
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.difference import net_rows, with_key
from flowctl.connectors.lake.part import Part
from flowctl.model.table_info import Column


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
        if not (old_keys and new_keys):  # rows that a commit adds or removes were not moved, whatever it calls them
            continue
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
        """See :func:`flowctl.connectors.lake.difference.net_rows`."""
        if not self.files.removed:
            yield from self.added_rows()
            return
        wider = replace(self, scan=replace(self.scan, columns=self._with_key(key)))
        names = [column.name for column in self.scan.columns]
        removed, columns = wider.scan.rows(self.files.removed), wider.scan.columns
        yield from net_rows(wider.added_rows(), removed, columns, key, names, self.scan.table.location.url)

    def _with_key(self, key: Sequence[str]) -> tuple[Column, ...]:
        return with_key(self.scan.columns, key, self.scan.table.columns)
