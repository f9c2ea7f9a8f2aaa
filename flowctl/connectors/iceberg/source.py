"""Iceberg as a landed source: this process reads the files of one version, and nothing but metadata for a plan."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from flowctl.connectors.at_once import at_once
from flowctl.connectors.base import Capabilities
from flowctl.connectors.iceberg.scan import Scan
from flowctl.connectors.iceberg.tables import Tables
from flowctl.connectors.iceberg.version_changes import changes_since, count_rows, range_between, why_lost
from flowctl.connectors.iceberg.versions import TableVersion, newest_version, older_version, version_of
from flowctl.connectors.lake.part import Part
from flowctl.connectors.lake.version_capture import (
    VersionCapture,
    is_before,
    is_under_another_schema,
    require_planned,
    unread_column,
)
from flowctl.connectors.source import (
    HighWatermark,
    LandedSource,
    Missing,
    ReadRequest,
    Relation,
    WatermarkRequest,
)
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.suggest import nearest

#: Key in ``extra`` of a table's info: the schema that its columns are from.
_SCHEMA = "schema_id"
#: Key in ``extra`` of a version that has expired: why it cannot be read.
_EXPIRED = "expired"
_PINNED = re.compile(r"@([vs])(\d+)$")


@dataclass(frozen=True)
class IcebergSource(LandedSource):
    """The identity of a table is its UUID: one that was dropped and created again is another source. CREATE OR REPLACE
    keeps it, and its versions."""

    tables: Tables
    capabilities: Capabilities
    everything = ("*", "*")

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Not flowctl's own."""
        found = self.tables.find(pattern)
        return [one for one in found if not any(part.startswith("_flowctl") for part in one.parts)]

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        return at_once(self._info, {relation: relation for relation in relations})

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        """The version that :meth:`describe` has seen."""
        return at_once(self._watermark, requests)

    def why_missing(self, relation: Relation) -> Missing:
        *namespace, name = _object(relation).parts
        near = [str(one) for one in self.discover((*namespace, "*"))]
        hint = nearest(".".join([*namespace, name]), near, "Correct `from`, or `warehouse` and `uri` of the connection")
        return Missing(f"there is no Iceberg table {self.tables.place(_object(relation)).shown}", hint)

    @contextmanager
    def capture(self, relation: Relation, info: TableInfo) -> Iterator[IcebergCapture]:
        """A version never changes, so nothing is held."""
        yield IcebergCapture(self._newest(relation), info)

    def _info(self, relation: Relation) -> TableInfo | None:
        newest = newest_version(self.tables.place(_object(relation)))
        if newest is None:
            return None
        assert relation.object is not None
        try:
            table = _pinned(newest, relation)
        except TableError as error:
            if (info := _expired(newest, relation, error)) is None:
                raise
            return info
        return TableInfo(
            object=relation.object,
            columns=table.columns,
            identity=table.identity,
            version=table.version,
            rows=count_rows(table, "stats"),
            system="iceberg",  # a table's own id holds wherever it is
            extra={_SCHEMA: table.schema.schema_id},
        )

    def _watermark(self, request: WatermarkRequest) -> HighWatermark:
        """Reads manifests for changes, and rows only to count some that have to be compared."""
        info, since, begun = request.info, request.since, request.begun
        assert info.version is not None, "_info sets it"
        rows = info.rows
        if request.changes is None:  # nobody reads it, as for `flowctl init`
            return HighWatermark(VersionPosition(info.version, info.identity), rows)
        if why := info.extra.get(_EXPIRED):
            return _read_or_failed(request, TableError(why, hint=_CHOOSE))
        newest = self._newest(request.relation)
        schema = info.extra.get(_SCHEMA)
        upper = VersionPosition(info.version, info.identity, newest.stamp_of(info.version), str(schema))
        if failure := unread_column(request.changes.columns, newest.place.shown):
            return HighWatermark(upper, rows, failure=failure)
        changes, lost = None, ""
        try:
            table = older_version(newest, upper.version, schema)
        except TableError as error:
            return HighWatermark(upper, rows, failure=error)
        if since is not None and (is_before(since, upper) or is_under_another_schema(since, upper)):
            changes = changes_since(since, table, request.changes, request.estimate)
        if begun is not None and isinstance(begun.upper, VersionPosition) and is_before(begun.upper, upper):
            lower = begun.lower.version if isinstance(begun.lower, VersionPosition) else None
            lost = why_lost(lower, begun.upper, newest)
        if request.estimate == "count":
            rows = count_rows(table, "count")
        return HighWatermark(upper, rows, dt.datetime.now(dt.UTC), changes=changes, begun_lost=lost)

    def _newest(self, relation: Relation) -> TableVersion:
        place = self.tables.place(_object(relation))
        if (table := newest_version(place)) is None:
            what = f"there is no Iceberg table {place.shown} any more"
            raise StoppedByPolicy(what, hint="Plan again: it was dropped since the plan was made")
        return table


@dataclass
class IcebergCapture(VersionCapture):
    """``info`` has the version that the plan was made for, and the schema of its columns; an interval of an earlier run
    may have an older version, which then is the moment of everything that is read."""

    newest: TableVersion
    info: TableInfo

    def __post_init__(self) -> None:
        assert self.info.version is not None
        self._version = self.info.version
        self._require_planned(VersionPosition(self._version, self.info.identity))

    def parts(self, request: ReadRequest, columns: tuple[Column, ...]) -> Iterator[Part]:
        lower, upper = (request.interval.lower, request.interval.upper) if request.interval else (None, None)
        if isinstance(upper, VersionPosition):
            self._version = upper.version
        for bound in (lower, upper):
            if isinstance(bound, VersionPosition):
                self._require_planned(bound)
        table = older_version(self.newest, self._version, self.info.extra.get(_SCHEMA))
        if isinstance(lower, VersionPosition):
            yield from range_between(lower, table).parts(columns, request)
        else:
            yield from map(Part, Scan(table, columns).all_rows())

    def _require_planned(self, version: VersionPosition) -> None:
        require_planned(version, self.newest.identity, self.newest.stamp_of(version.version), self.newest.place.shown)


def _object(relation: Relation) -> ObjectName:
    """Without the version that `from` may name."""
    assert relation.object is not None, "an Iceberg table has no queries"
    *above, name = relation.object.parts
    return ObjectName((*above, _PINNED.sub("", name)))


def _pinned(newest: TableVersion, relation: Relation) -> TableVersion:
    """The version that `from` names, by its number or by its snapshot: ``orders@v12``, ``orders@s87447366``."""
    assert relation.object is not None, "an Iceberg table has no queries"
    named = _PINNED.search(relation.object.parts[-1])
    if named is None:
        return newest
    kind, number = named[1], int(named[2])
    if kind == "v":
        return older_version(newest, number)
    snapshot = newest.handle.metadata.snapshot_by_id(number)
    if snapshot is None:
        what = f"{newest.place.shown} has no snapshot {number}"
        raise TableError(what, hint=_CHOOSE)
    return older_version(newest, version_of(snapshot))


_CHOOSE = "Choose one that has not expired, or leave it out to read the newest"


def _expired(newest: TableVersion, relation: Relation, error: TableError) -> TableInfo | None:
    """A version that `from` names and that may have been read before it expired: nothing is left to read then. None if
    its columns are unknown, as the table has had others, or if it never was. Its number is unknown if it is named by
    its snapshot, whose id takes its place."""
    assert relation.object is not None, "an Iceberg table has no queries"
    kind, number = _named(relation)
    metadata = newest.handle.metadata
    if len(metadata.schemas) > 1 or (kind == "v" and number > getattr(metadata, "last_sequence_number", 0)):
        return None
    extra = {_EXPIRED: error.message}
    return TableInfo(relation.object, newest.columns, newest.identity, version=number, system="iceberg", extra=extra)


def _read_or_failed(request: WatermarkRequest, error: TableError) -> HighWatermark:
    """The high watermark of an expired version: the recorded position if that is this version, else a failure."""
    (kind, number), since, rows = _named(request.relation), request.since, request.info.rows
    upper = VersionPosition(number, request.info.identity)
    if since is None or since.table not in ("", upper.table) or request.begun is not None:
        return HighWatermark(upper, rows, failure=error)
    is_read = number == (since.version if kind == "v" else int(since.stamp or 0))
    return HighWatermark(since, rows, dt.datetime.now(dt.UTC)) if is_read else HighWatermark(upper, rows, failure=error)


def _named(relation: Relation) -> tuple[str, int]:
    """Version (``v``) or snapshot (``s``), and its number; only of a relation that names one."""
    assert relation.object is not None, "an Iceberg table has no queries"
    named = _PINNED.search(relation.object.parts[-1])
    assert named is not None
    return named[1], int(named[2])
