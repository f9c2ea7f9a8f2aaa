"""Delta as a landed source: this process reads the files of one version, and nothing but the log for a plan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import unquote

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.base import Capabilities
from flowctl.connectors.delta import actions, features
from flowctl.connectors.delta.location import TableLocation, location_of
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.table import OpenTable, at_once, open_table, open_version
from flowctl.connectors.delta.types import Action
from flowctl.connectors.delta.version_difference import MOST_BYTES, Difference, changed_files, other_types
from flowctl.connectors.source import (
    DELETED_COLUMN,
    Capture,
    HighWatermark,
    LandedSource,
    Missing,
    ReadRequest,
    Relation,
    VersionChanges,
    WatermarkRequest,
)
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.spec.suggest import nearest
from flowctl.storage.buffer import SegmentSink
from flowctl.storage.options import Storage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DeltaSource(LandedSource):
    """The identity of a table is Delta's own table id: one that was dropped and created again is another source."""

    root: str
    storage: Storage
    capabilities: Capabilities

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Folders with a log; not flowctl's own."""
        (wanted,) = pattern
        return [ObjectName((path,)) for path in self._paths(wanted.count("/")) if fnmatchcase(path, wanted)]

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        return at_once(self._info, {relation: relation for relation in relations})

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        """The version that :meth:`describe` has seen."""
        return at_once(self._watermark, requests)

    def why_missing(self, relation: Relation) -> Missing:
        location = self._location(relation)
        near = self._paths(_path(relation).count("/"))
        return Missing(
            f"there is no Delta table {location.url}",
            nearest(_path(relation), near, "Correct `from`, or `path` of the connection"),
        )

    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        return _refuse(info)

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[DeltaCapture]:
        """A version never changes, so nothing is held."""
        yield DeltaCapture(self._location(relation), info)

    def _info(self, relation: Relation) -> TableInfo | None:
        table = open_table(self._location(relation), hint="Correct `from`, or `path` of the connection")
        if table is None:
            return None
        assert relation.object is not None
        mapping = table.properties.get("delta.columnMapping.mode", "none")
        return TableInfo(
            object=relation.object,
            columns=table.columns,
            identity=table.identity,
            version=table.version,
            rows=_rows(table),
            extra={
                "features": list(table.protocol.get("readerFeatures", ())),
                "partition_by": list(table.partition_by),
                "mapping": mapping,
            },
        )

    def _watermark(self, request: WatermarkRequest) -> HighWatermark:
        info, since = request.info, request.since
        assert info.version is not None
        upper = VersionPosition(info.version, info.identity)
        changes = None
        if since is not None and since.table in ("", upper.table) and since.version < upper.version:
            changes = _changes(self._location(request.relation), since.version, upper.version, net=request.net)
        return HighWatermark(upper, info.rows, dt.datetime.now(dt.UTC), changes=changes)

    def _location(self, relation: Relation) -> TableLocation:
        return location_of(self.root, ObjectName((_path(relation),)), self.storage)

    def _paths(self, depth: int) -> list[str]:
        """Paths, relative to the root, of the tables so many folders below it."""
        root = TableLocation(self.root.rstrip("/"), self.storage)
        system = root.file_system()
        base = str(system._strip_protocol(root.url)).rstrip("/")
        found = [base]
        for _ in range(depth + 1):
            found = [str(path).rstrip("/") for folder in found for path in _folders(system, folder)]
        there = [path.removeprefix(f"{base}/") for path in found if system.exists(f"{path}/_delta_log")]
        return sorted(path for path in there if not any(part.startswith("_flowctl") for part in path.split("/")))


@dataclass
class DeltaCapture(Capture):
    """``info`` has the version that the plan was made for; an interval of an earlier run may have an older one, which
    then is the moment of everything that is read."""

    location: TableLocation
    info: TableInfo
    _version: int = field(init=False)
    own_columns: tuple[Column, ...] = (Column(DELETED_COLUMN, types.BOOL),)

    def __post_init__(self) -> None:
        assert self.info.version is not None
        self._version = self.info.version

    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        total = 0
        for batch in self._batches(request):
            sink.write(batch)
            total += batch.num_rows
        return total

    def is_empty(self, request: ReadRequest) -> bool:
        return not any(batch.num_rows for batch in self._batches(request))

    def _batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        if request.interval is not None and isinstance(request.interval.upper, VersionPosition):
            self._version = request.interval.upper.version
        own = {column.name for column in self.own_columns}
        columns = tuple(column for column in request.columns if column.name not in own)
        for batch, is_deleted in self._rows(request, Scan(self._open(self._version), columns)):
            yield _with_deletion(batch, request.columns, is_deleted=is_deleted)

    def _rows(self, request: ReadRequest, scan: Scan) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Each batch with whether its rows are deleted."""
        lower = request.interval.lower if request.interval is not None else None
        if not isinstance(lower, VersionPosition):
            yield from ((batch, False) for batch in scan.rows(scan.table.files))
            return
        difference = Difference(scan, changed_files(self._open(lower.version), scan.table))
        if request.net:
            yield from difference.net_rows(request.key)
        else:
            yield from ((batch, False) for batch in difference.added_rows())

    def _open(self, version: int) -> OpenTable:
        table = open_version(self.location, version)
        if table.identity != self.info.identity:
            raise StoppedByPolicy(
                f"{self.location.url} was dropped and created again since the plan was made", hint="Plan again"
            )
        return table


def _path(relation: Relation) -> str:
    assert relation.object is not None, "a Delta table has no queries"
    return relation.object.parts[-1]


def _with_deletion(batch: pa.RecordBatch, columns: Sequence[Column], *, is_deleted: bool) -> pa.RecordBatch:
    import pyarrow as pa

    values = [
        pa.repeat(is_deleted, batch.num_rows) if column.name == DELETED_COLUMN else batch.column(column.name)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(values, schema=arrow_schema(columns))


def _changes(location: TableLocation, since: int, upper: int, *, net: bool) -> VersionChanges:
    try:
        lower, now = open_version(location, since), open_version(location, upper)
        files = changed_files(lower, now)
    except TableError as error:
        return VersionChanges(lost=error.message)
    if column := other_types(lower, now):
        return VersionChanges(lost=f"column {column} had another type in version {since}")
    if net and files.removed:
        if files.size > MOST_BYTES:
            return VersionChanges(lost=f"the files that changed since version {since} are larger than 256 MiB")
        if gone := _first_missing(location, files.removed):
            return VersionChanges(lost=f"{gone}, which version {since} had, was deleted (vacuum)")
    rows = [actions.known_rows(file) for file in files.added]
    counted = sum(count - actions.hidden_rows(file) for count, file in zip(rows, files.added, strict=True) if count)
    size = sum(file["size"] for file in files.added)
    estimate = RowEstimate(bytes=size) if None in rows else RowEstimate(counted, "stats", size)
    return VersionChanges(estimate, removes=files.rewrites)


def _first_missing(location: TableLocation, files: Sequence[Action]) -> str:
    """The path of the first file that no longer exists; empty if all do."""
    system = location.file_system()
    there = at_once(
        lambda path: system.exists(f"{location.url}/{unquote(path)}"), {one["path"]: one["path"] for one in files}
    )
    return next((path for path, exists in there.items() if not exists), "")


def _rows(table: OpenTable) -> RowEstimate:
    """From the files' statistics, without the rows that deletion vectors hide."""
    found = table.handle.get_add_actions(flatten=True)
    size, counts = sum(found["size_bytes"].to_pylist()), found["num_records"].to_pylist()
    if None in counts:
        return RowEstimate(bytes=size)
    has_vectors = features.DELETION_VECTORS in table.protocol.get("readerFeatures", ())
    hidden = sum(map(actions.hidden_rows, table.files)) if has_vectors else 0
    return RowEstimate(sum(counts) - hidden, "stats", size)


#: Features of readers that this process implements.
_KNOWN = {
    features.DELETION_VECTORS,
    features.TIMESTAMP_NTZ,
    features.TYPE_WIDENING,
    "typeWidening-preview",
    "columnMapping",
    "vacuumProtocolCheck",
}


def _refuse(info: TableInfo) -> StoppedByPolicy | None:
    if unknown := sorted({*info.extra["features"]} - _KNOWN):
        what = f"{info.object} has the Delta feature {', '.join(unknown)}, which flowctl cannot read"
        return StoppedByPolicy(what, hint="Drop the feature, or read the table as files that Spark exports")
    if info.extra["mapping"] not in ("none", "name"):
        what = f"{info.object} has column mapping by {info.extra['mapping']}, which flowctl cannot read"
        return StoppedByPolicy(what, hint="Use `delta.columnMapping.mode = name`")
    for name in info.extra["partition_by"]:
        column = info.column(name)
        if column is not None and column.type == types.BINARY:
            what = f"{info.object} is partitioned by {name}, whose bytes the log has as text"
            return StoppedByPolicy(what, hint="Partition it by another column")
    return None


def _folders(system: object, folder: str) -> list[str]:
    try:
        found = system.ls(folder, detail=True)  # type: ignore[attr-defined]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [one["name"] for one in found if one["type"] == "directory"]
