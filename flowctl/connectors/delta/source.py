"""Delta as a landed source: this process reads the files of one version, and nothing but the log for a plan."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from flowctl.connectors.at_once import at_once
from flowctl.connectors.base import Capabilities
from flowctl.connectors.delta import actions, features
from flowctl.connectors.delta.location import TableLocation, location_of
from flowctl.connectors.delta.log import stamp_of
from flowctl.connectors.delta.scan import Scan
from flowctl.connectors.delta.table import OpenTable, open_table, open_version
from flowctl.connectors.delta.version_changes import changes_since, count_rows, range_between, why_lost, why_unreadable
from flowctl.connectors.lake.part import Part
from flowctl.connectors.lake.version_capture import VersionCapture, is_before, require_planned, unread_column
from flowctl.connectors.source import (
    HighWatermark,
    LandedSource,
    Missing,
    ReadRequest,
    Relation,
    WatermarkRequest,
)
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.spec.suggest import nearest
from flowctl.storage.options import Storage

_PINNED = re.compile(r"@v(\d+)$")


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
        table = self._table(relation)
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
            system="delta",  # a table's own id holds wherever it is
            extra={
                "features": list(table.protocol.get("readerFeatures", ())),
                "partition_by": list(table.partition_by),
                "mapping": mapping,
            },
        )

    def _table(self, relation: Relation) -> OpenTable | None:
        newest = open_table(self._location(relation), hint="Correct `from`, or `path` of the connection")
        version = _pinned(relation)
        return newest if newest is None or version is None else open_version(newest.location, version)

    def _watermark(self, request: WatermarkRequest) -> HighWatermark:
        """Reads the log for changes, and rows only to count some that have to be compared."""
        info, since, begun = request.info, request.since, request.begun
        assert info.version is not None, "_info sets it"
        if request.changes is None:  # nobody reads it, as for `flowctl init`
            return HighWatermark(VersionPosition(info.version, info.identity), info.rows)
        location = self._location(request.relation)
        upper = VersionPosition(info.version, info.identity, stamp_of(location, info.version))
        is_read = since is not None and since.table in ("", info.identity) and since.version == upper.version
        failure = unread_column(request.changes.columns, location.url)
        if failure is None and (begun is not None or not is_read):  # what was read may be gone
            failure = self._pin_failure(request.relation)
        if failure:
            return HighWatermark(upper, info.rows, failure=failure)
        changes, lost = None, ""
        if is_before(since, upper) or (begun is not None and is_before(begun.upper, upper)):
            newest = open_version(location, upper.version)
            if since is not None and is_before(since, upper):
                changes = changes_since(location, since, newest, request.changes, request.estimate)
            if begun is not None and isinstance(begun.upper, VersionPosition) and is_before(begun.upper, upper):
                lower = begun.lower.version if isinstance(begun.lower, VersionPosition) else None
                lost = why_lost(location, lower, begun.upper, newest, request.changes)
        clock = dt.datetime.now(dt.UTC)
        rows = info.rows
        if request.estimate == "count" and rows.value is None:
            table = open_version(location, upper.version)
            rows = count_rows(table, table.files, reads_footers=True)
        return HighWatermark(upper, rows, clock, changes=changes, begun_lost=lost)

    def _pin_failure(self, relation: Relation) -> TableError | None:
        """Why the version that `from` names can no longer be read; None if it can, or none is named."""
        version = _pinned(relation)
        newest = open_table(self._location(relation)) if version is not None else None
        if version is None or newest is None:
            return None
        why = why_unreadable(newest.location, None, version, newest, net=False)
        if not why:
            return None
        return TableError(
            f"version {version} of {newest.location.url} cannot be read: {why}", hint="Choose a later version"
        )

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
class DeltaCapture(VersionCapture):
    """``info`` has the version that the plan was made for; an interval of an earlier run may have an older one, which
    then is the moment of everything that is read."""

    location: TableLocation
    info: TableInfo
    _version: int = field(init=False)

    def __post_init__(self) -> None:
        assert self.info.version is not None
        self._version = self.info.version

    def parts(self, request: ReadRequest, columns: tuple[Column, ...]) -> Iterator[Part]:
        lower, upper = (request.interval.lower, request.interval.upper) if request.interval else (None, None)
        if isinstance(upper, VersionPosition):
            self._version = upper.version
            self._require_planned(upper)
        table = self._open(self._version)
        if isinstance(lower, VersionPosition):
            self._require_planned(lower)
            found = range_between(self.location, lower.version, table)
            self._require_same(found.lower)
            yield from found.parts(columns, request)
        else:
            yield from map(Part, Scan(table, columns).rows(table.files))

    def _open(self, version: int) -> OpenTable:
        table = open_version(self.location, version)
        self._require_same(table)
        return table

    def _require_planned(self, bound: VersionPosition) -> None:
        require_planned(bound, self.info.identity, stamp_of(self.location, bound.version), self.location.url)

    def _require_same(self, table: OpenTable) -> None:
        require_planned(VersionPosition(table.version, self.info.identity), table.identity, "", self.location.url)


def _path(relation: Relation) -> str:
    assert relation.object is not None, "a Delta table has no queries"
    return _PINNED.sub("", relation.object.parts[-1])


def _pinned(relation: Relation) -> int | None:
    """The version that `from` names, as Delta writes one: ``orders@v12``."""
    assert relation.object is not None, "a Delta table has no queries"
    named = _PINNED.search(relation.object.parts[-1])
    return int(named[1]) if named else None


def _rows(table: OpenTable) -> RowEstimate:
    """From the files' statistics, which are exact, without the rows that deletion vectors hide."""
    found = table.handle.get_add_actions(flatten=True)
    size, counts = sum(found["size_bytes"].to_pylist()), found["num_records"].to_pylist()
    if None in counts:
        return RowEstimate(bytes=size)
    has_vectors = features.DELETION_VECTORS in table.protocol.get("readerFeatures", ())
    hidden = sum(map(actions.hidden_rows, table.files)) if has_vectors else 0
    return RowEstimate(sum(counts) - hidden, "count", size)


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
    if info.extra["mapping"] not in ("none", "name", "id"):
        what = f"{info.object} has column mapping by {info.extra['mapping']}, which flowctl cannot read"
        return StoppedByPolicy(what, hint="Use `delta.columnMapping.mode = name`")
    for name in info.extra["partition_by"]:
        column = info.column(name)
        if column is not None and column.type == types.BINARY:
            what = f"{info.object} is partitioned by {name}, whose bytes the log has as text"
            return StoppedByPolicy(what, hint="Write it with another partition column")
    return None


def _folders(system: object, folder: str) -> list[str]:
    try:
        found = system.ls(folder, detail=True)  # type: ignore[attr-defined]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [one["name"] for one in found if one["type"] == "directory"]
