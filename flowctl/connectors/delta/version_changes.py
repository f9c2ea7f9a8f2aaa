"""The changes of rows between two versions of a table: how they are read, whether they still can be, and how many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from flowctl.connectors.at_once import at_once
from flowctl.connectors.delta import actions
from flowctl.connectors.delta.change_feed import ChangeFeed, feed_files
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import stamp_of
from flowctl.connectors.delta.log_range import LogCommit, commits_between, first_missing
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.schema_changes import why_renamed, why_unlike
from flowctl.connectors.delta.table import OpenTable, open_version
from flowctl.connectors.delta.types import Action
from flowctl.connectors.delta.version_difference import ChangedFiles, Difference, changed_files
from flowctl.connectors.lake.difference import MOST_BYTES
from flowctl.connectors.lake.part import Part
from flowctl.connectors.lake.version_capture import why_another
from flowctl.connectors.source import ReadRequest, VersionChanges
from flowctl.engine.cost import IN_MEMORY_BYTES
from flowctl.errors import TableError
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, Estimate, RowEstimate
from flowctl.storage.urls import local_path, scheme


@dataclass(frozen=True)
class VersionRange:
    """The versions after ``lower`` up to ``upper``. If all commits only added rows, the files that they added are read.
    Otherwise every change is read from the change data feed, if it was on all the time, or else the files of both
    versions are compared; so are those of rows that were moved, if the files that had them first were deleted."""

    lower: OpenTable
    upper: OpenTable
    commits: tuple[LogCommit, ...]

    @property
    def removes(self) -> str:
        """The first commit that removed or changed rows; empty if none did."""
        return next((str(commit) for commit in self.commits if commit.removed), "")

    @property
    def reads_feed(self) -> bool:
        changing = [commit for commit in self.commits if commit.removed or commit.added]
        return bool(self.removes) and all(commit.has_feed for commit in changing)

    @cached_property
    def files(self) -> ChangedFiles:
        written = [(file, commit.version) for commit in self.commits for file in commit.added]
        added = tuple(file for file, _ in written)
        if self.removes or first_missing(self.upper.location, no_longer_live(self.upper, added)):
            return changed_files(self.lower, self.upper, self.commits)
        return ChangedFiles((), added, tuple(version for _, version in written))

    def opened_files(self, *, net: bool) -> tuple[Action, ...]:
        """The files that a read opens."""
        if self.reads_feed:
            return feed_files(self.commits)
        return (*self.files.added, *(self.files.removed if net else ()))

    def parts(self, columns: tuple[Column, ...], request: ReadRequest) -> Iterator[Part]:
        """``columns`` of the rows that ``request`` wants."""
        scan = Scan(self.upper, columns)
        if self.reads_feed and (request.key or not request.net):
            feed = ChangeFeed(scan, self.commits)
            yield from feed.net_rows(request.key) if request.net else feed.upserts()
            return
        difference = Difference(scan, self.files)
        yield from difference.net_rows(request.key) if request.net else difference.added_rows()


def range_between(location: TableLocation, lower: int, upper: OpenTable) -> VersionRange:
    """:class:`TableError` if the log no longer has all of it."""
    before = open_version(location, lower)
    return VersionRange(before, upper, commits_between(before, upper))


def changes_since(
    location: TableLocation, position: VersionPosition, upper: OpenTable, request: ReadRequest, estimate: Estimate
) -> VersionChanges:
    """What a plan knows of the changes after the version of ``position``."""
    since = position.version
    if why := why_another(position, stamp_of(location, since)):
        return VersionChanges(since, lost=why)
    try:
        found = range_between(location, since, upper)
        files = found.opened_files(net=request.net)
    except TableError as error:
        return VersionChanges(since, lost=error.message)
    if why := why_unlike(found.lower, found.commits, upper, request.columns):
        return VersionChanges(since, lost=why)
    size = sum(int(file["size"]) for file in files)
    if request.net and found.removes and size > MOST_BYTES:
        return VersionChanges(since, lost=f"the files that changed since version {since} are larger than 128 MiB")
    if gone := first_missing(location, no_longer_live(upper, files)):
        return VersionChanges(since, lost=f"{gone}, a file of a version since {since}, was deleted (VACUUM)")
    if request.net and not request.key and found.removes:
        return VersionChanges(since, removes=found.removes)
    rows = _count(found, request, size, estimate)
    return VersionChanges(since, rows, removes=found.removes, reads_feed=found.reads_feed)


def why_lost(
    location: TableLocation, lower: int | None, upper: VersionPosition, newest: OpenTable, request: ReadRequest
) -> str:
    """Why an interval that an earlier run has begun can no longer be read; empty if it can. ``lower`` as in
    :func:`why_unreadable`; ``request`` has columns of ``newest``."""
    if why := why_another(upper, stamp_of(location, upper.version)):
        return why
    if why := why_unreadable(location, lower, upper.version, newest, net=request.net):
        return why
    return why_renamed(open_version(location, upper.version), newest, request.columns)


def why_unreadable(location: TableLocation, lower: int | None, upper: int, newest: OpenTable, *, net: bool) -> str:
    """Why what changed after version ``lower`` up to ``upper`` can no longer be read; empty if it can. ``lower``: None
    for the whole table at version ``upper``."""
    try:
        there = newest if upper == newest.version else open_version(location, upper)
        files = there.files if lower is None else range_between(location, lower, there).opened_files(net=net)
    except TableError as error:
        return error.message
    gone = first_missing(location, no_longer_live(newest, files))
    return f"{gone}, a file of version {upper}, was deleted (VACUUM)" if gone else ""


def no_longer_live(newest: OpenTable, files: Sequence[Action]) -> list[Action]:
    """Only these may have been deleted."""
    live = {file["path"] for file in newest.files}
    return [file for file in files if file["path"] not in live]


def _count(found: VersionRange, request: ReadRequest, size: int, estimate: Estimate) -> RowEstimate:
    """Exact if only files' rows count, or if few bytes have to be compared, or if counting is asked for."""
    if estimate == "none":
        return RowEstimate(bytes=size)
    if not found.files.removed or (not request.net and not found.reads_feed):
        return count_rows(found.upper, found.files.added, reads_footers=True)
    if size > IN_MEMORY_BYTES and estimate != "count":
        rows = count_rows(found.upper, [] if found.reads_feed else found.files.added, reads_footers=False)
        return RowEstimate(rows.value or None, "stats" if rows.value else "unknown", size)
    columns = request.columns
    if found.reads_feed:  # any column shows how many rows there are
        columns = tuple(column for column in columns if column.name in request.key) or columns[:1]
    return RowEstimate(sum(part.rows.num_rows for part in found.parts(columns, request)), "count", size)


def count_rows(table: OpenTable, files: Sequence[Action], *, reads_footers: bool) -> RowEstimate:
    """The live rows of ``files``, from the log's statistics, which are exact; for files without any from the files."""
    size, hidden = sum(int(file["size"]) for file in files), sum(map(actions.hidden_rows, files))
    known = {file["path"]: actions.known_rows(file) for file in files}
    unknown = {path: path for path, rows in known.items() if rows is None}
    if unknown and not reads_footers:
        return RowEstimate(bytes=size)
    footers = at_once(lambda path: _footer_rows(table.location, path), unknown)
    rows = sum(footers[path] if found is None else found for path, found in known.items())
    return RowEstimate(rows - hidden, "count", size)


def _footer_rows(location: TableLocation, path: str) -> int:
    import pyarrow.parquet as pq

    url = f"{location.url}/{unquote(path)}"
    if scheme(url) == "file":
        return int(pq.read_metadata(local_path(url)).num_rows)
    with location.file_system().open(url, "rb") as file:
        return int(pq.read_metadata(file).num_rows)
