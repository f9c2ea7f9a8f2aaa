"""Looks at state, sources and targets once, for one plan: the only reader of the world for planning.

One metadata query per connection serves all its tables, one more asks how far they go; connections are asked in
parallel. What cannot be reached stops its own tables and nothing else. Starts no Spark and writes nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from flowctl.connectors.source import HighWatermark, Missing, Relation, Source, WatermarkRequest
from flowctl.connectors.target import CommitLookup, Target, TargetRules
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model.commit import Commit
from flowctl.model.file_log import FileLog
from flowctl.model.position import CursorPosition, Position
from flowctl.model.table_info import Estimate, ObjectName, TableInfo
from flowctl.observe.asking import Answer, Connections, Key, ask_for_each, in_parallel
from flowctl.observe.file_logs import files_read, files_written, pending_log
from flowctl.observe.lower_bound import read_from, retyped
from flowctl.observe.relations import relation
from flowctl.observe.world import Observed, PositionKind, World
from flowctl.resolve.places import owner_name, sidecars_of
from flowctl.resolve.resolve import Resolved
from flowctl.spec.names import is_pattern
from flowctl.spec.spec import DetectMissingKeys, ObjectSource, ReadHints, Spec, SqlSource, TableSpec
from flowctl.state.document import StateDocument, TableState
from flowctl.state.location import open_flow
from flowctl.state.store import StateStore
from flowctl.storage.blobs import BlobStore


@dataclass(frozen=True)
class Discovery:
    """What each pattern's source matches, by the pattern's id; ``failures`` are those that could not be listed."""

    objects: Mapping[str, Sequence[ObjectName]]
    failures: Mapping[str, FlowctlError]


def discover(spec: Spec, connections: Connections) -> Discovery:
    """Lists the sources of patterns; those of one connection one after the other."""
    patterns: dict[str, list[TableSpec]] = {}
    for table in spec.tables:
        if is_pattern(table.id) and isinstance(table.source, ObjectSource):
            patterns.setdefault(table.source.connection, []).append(table)

    def discovered(name: str) -> dict[str, list[ObjectName] | FlowctlError]:
        parts = {table.id: table.source.parts for table in patterns[name] if isinstance(table.source, ObjectSource)}

        def ask(ids: Sequence[str]) -> dict[str, list[ObjectName]]:
            source = connections.get(name).source
            return {id: source.discover(parts[id]) if source else [] for id in ids}

        return ask_for_each(ask, list(parts), connections.mark(name))

    answers = {id: found for listed in in_parallel(discovered, patterns).values() for id, found in listed.items()}
    return Discovery(
        objects={id: found for id, found in answers.items() if not isinstance(found, FlowctlError)},
        failures={id: found for id, found in answers.items() if isinstance(found, FlowctlError)},
    )


def observe(
    spec: Spec, resolved: Resolved, discovery: Discovery, connections: Connections, estimate: Estimate
) -> World:
    """The world as one plan needs it. :class:`AbortRun` for unreadable state. What is wrong with a connection or an
    object is in the world."""
    blobs = open_flow(spec)
    state = StateStore(blobs).read()
    tables = [table for table in resolved.tables if table.id in resolved.selected]
    looked = in_parallel(
        lambda name: _Look(connections, name, state, resolved.full_refresh, estimate, blobs).at(tables),
        _connections(tables),
    )
    observed = {table.id: _merge_answers(table, looked) for table in tables}
    return World(
        at=dt.datetime.now(dt.UTC),
        state=state,
        tables={id: _with_files_written(blobs, id, state, seen) for id, seen in observed.items()},
        ddl={name: seen.ddl for name, seen in looked.items() if seen.ddl is not None},
        unexpanded=discovery.failures,
        places=_places(connections, resolved),
    )


def _connections(tables: Iterable[TableSpec]) -> list[str]:
    names = {table.target.connection for table in tables}
    names |= {table.source.connection for table in tables if not isinstance(table.source, SqlSource)}
    return sorted(names)


def _places(connections: Connections, resolved: Resolved) -> dict[str, str]:
    """Of tables whose targets end in one name, a sidecar's taken for its owner's: others cannot be one table. Tables
    that are not selected count too; a target that cannot be asked stops its own tables elsewhere."""
    by_name: dict[str, list[TableSpec]] = {}
    for table in resolved.tables:
        by_name.setdefault(owner_name(table.target.parts[-1].lower()), []).append(table)
    alike = [
        table
        for tables in by_name.values()
        if len(tables) > 1 and any(table.id in resolved.selected for table in tables)
        for table in tables
    ]
    found: dict[str, str] = {}
    for name in sorted({table.target.connection for table in alike}):
        objects = {table.id: table.target.object for table in alike if table.target.connection == name}
        with suppress(FlowctlError):
            target = connections.get(name).target
            places = target.places(list(objects.values())) if target else {}
            found.update({id: places[object] for id, object in objects.items() if object in places})
    return found


@dataclass(frozen=True)
class _Seen:
    """What one connection said about the tables that read it and those that are written to it, by id."""

    sources: dict[str, TableInfo | FlowctlError | None] = field(default_factory=dict)
    missing: dict[str, Missing | FlowctlError] = field(default_factory=dict)
    watermarks: dict[str, HighWatermark | FlowctlError] = field(default_factory=dict)
    readings: dict[str, str] = field(default_factory=dict)
    files: dict[str, _Files | FlowctlError] = field(default_factory=dict)
    targets: dict[str, TableInfo | FlowctlError | None] = field(default_factory=dict)
    commits: dict[str, Commit | FlowctlError | None] = field(default_factory=dict)
    sidecars: dict[str, dict[str, TableInfo | FlowctlError | None]] = field(default_factory=dict)
    positions: PositionKind = "none"
    ddl: TargetRules | None = None
    error: FlowctlError | None = None


@dataclass(frozen=True)
class _Files:
    """One table's files: those that are there (nothing of them where there are none), those that were read, and those
    once the begun interval is."""

    info: TableInfo | None
    watermark: HighWatermark
    log: FileLog
    pending: FileLog | None


@dataclass(frozen=True)
class _Look:
    """One look at one connection."""

    connections: Connections
    name: str
    state: StateDocument
    full_refresh: frozenset[str]
    estimate: Estimate
    blobs: BlobStore

    def at(self, tables: Sequence[TableSpec]) -> _Seen:
        try:
            connector = self.connections.get(self.name)
        except FlowctlError as error:
            return _Seen(error=error)
        read = [table for table in tables if _reads(table, self.name)]
        written = [table for table in tables if table.target.connection == self.name]
        can = connector.source.capabilities.source if connector.source else None
        seen = _Seen(positions=can.position if can else "none", ddl=connector.target)
        if read and connector.source:
            self._sources(connector.source, read, seen)
        if written and connector.target:
            self._targets(connector.target, written, seen)
            self._sidecars(connector.target, written, seen)
        return seen

    def _sources(self, source: Source, tables: Sequence[TableSpec], seen: _Seen) -> None:
        relations = {table.id: relation(table) for table in tables}
        if seen.positions == "files":
            self._files(source, tables, seen)
        else:
            self._objects(source, tables, relations, seen)
        missing = [id for id in relations if seen.sources[id] is None]
        seen.missing.update(self._each(lambda ids: {id: source.why_missing(relations[id]) for id in ids}, missing))

    def _objects(
        self, source: Source, tables: Sequence[TableSpec], relations: Mapping[str, Relation], seen: _Seen
    ) -> None:
        infos = self._each(source.describe, list(dict.fromkeys(relations.values())))
        seen.sources.update({id: infos[one] for id, one in relations.items()})
        requests = {
            table.id: self._watermark_request(table, relations[table.id], info)
            for table in tables
            if isinstance(info := seen.sources[table.id], TableInfo)
        }
        seen.watermarks.update(
            self._each(lambda ids: source.high_watermarks({id: requests[id] for id in ids}), list(requests))
        )
        for table in tables:
            if request := requests.get(table.id):
                if error := _refuse_read(source, table, request.info):
                    seen.watermarks[table.id] = error
                seen.readings[table.id] = source.explain_read(request, table.read)

    def _files(self, source: Source, tables: Sequence[TableSpec], seen: _Seen) -> None:
        by_id = {table.id: table for table in tables}
        seen.files.update(self._each(lambda ids: {id: self._files_of(source, by_id[id]) for id in ids}, list(by_id)))
        for id, found in seen.files.items():
            seen.sources[id] = found if isinstance(found, FlowctlError) else found.info
            if isinstance(found, _Files) and found.info is not None:
                seen.watermarks[id] = found.watermark

    def _files_of(self, source: Source, table: TableSpec) -> _Files:
        state = self.state.table(table.id)
        anew = table.id in self.full_refresh
        log = files_read(self.blobs, table.id, state.position, read_anew=anew or _begun_refresh(state))
        known = {} if anew or table.mode == "truncate" or _begun_refresh(state) else log.files
        info, watermark = source.describe_files(relation(table), known)
        return _Files(info, watermark, log, None if anew else pending_log(self.blobs, table.id, state))

    def _watermark_request(self, table: TableSpec, read: Relation, info: TableInfo) -> WatermarkRequest:
        cursor = table.cursor
        column = info.column(cursor.column) if cursor else None
        if cursor is None or column is None:
            return WatermarkRequest(read, info, column, delay=cursor.delay if cursor else None, estimate=self.estimate)
        recorded = None if table.id in self.full_refresh else _continues_from(self.state.table(table.id))
        lower = position = first = None
        appends = table.mode == "append"
        try:
            lower, first = read_from(cursor, column.type, recorded), read_from(cursor, column.type, None)
            if appends and isinstance(recorded, CursorPosition):
                position = retyped(recorded.at, column.type)
        except (ValueError, ArithmeticError):
            lower = None  # the plan stops the table with the reason
        return WatermarkRequest(
            relation=read,
            info=info,
            cursor=column,
            lower=lower,
            delay=cursor.delay,
            appends=appends,
            position=position,
            null_rows=cursor.nulls == "always",
            zone=cursor.zone,
            minds_writers=cursor.delay is None and not cursor.lag,
            minds_older=table.guard.allow_purged,
            first=first,
            estimate=self.estimate,
        )

    def _targets(self, target: Target, tables: Sequence[TableSpec], seen: _Seen) -> None:
        objects = {table.id: table.target.object for table in tables}
        if self.state.serial == 0:  # a new lineage: nothing can carry a number of it
            infos = self._each(target.describe, list(objects.values()))
            seen.targets.update({id: infos[object] for id, object in objects.items()})
        else:
            self._committed(target, objects, seen)
        for table in tables:
            if isinstance(info := seen.targets[table.id], TableInfo):
                seen.targets[table.id] = self._refuse_write(target, table, info) or info

    def _refuse_write(self, target: Target, table: TableSpec, info: TableInfo) -> FlowctlError | None:
        is_refresh = table.id in self.full_refresh or _begun_refresh(self.state.table(table.id))
        error = target.refuse_write(info, table.mode, replaces=is_refresh or table.mode == "truncate")
        if error is not None:
            error.mark = table.mark_of("to")
        return error

    def _sidecars(self, target: Target, tables: Sequence[TableSpec], seen: _Seen) -> None:
        """Of a history always: without its observations its versions would go. Others only where the table has not
        kept any yet: later its own is there, and nobody else's can be."""
        objects = {
            (table.id, suffix): ObjectName((*table.target.parts[:-1], table.target.parts[-1] + suffix))
            for table in tables
            for suffix in sidecars_of(table)
            if suffix == "__observed" or self.state.table(table.id).definition.get("mode") != table.mode
        }
        infos = self._each(target.describe, list(objects.values()))
        for (id, suffix), object in objects.items():
            seen.sidecars.setdefault(id, {})[suffix] = infos[object]

    def _committed(self, target: Target, objects: Mapping[str, ObjectName], seen: _Seen) -> None:
        lookups = {id: CommitLookup(self.state.lineage, id, object) for id, object in objects.items()}
        found = self._each(lambda ids: target.described_and_committed([lookups[id] for id in ids]), list(lookups))
        for id, answer in found.items():
            if isinstance(answer, FlowctlError):
                seen.targets[id] = answer
            else:
                seen.targets[id], seen.commits[id] = answer

    def _each(
        self, ask: Callable[[Sequence[Key]], Mapping[Key, Answer]], keys: Sequence[Key]
    ) -> dict[Key, Answer | FlowctlError]:
        return ask_for_each(ask, keys, self.connections.mark(self.name))


def _refuse_read(source: Source, table: TableSpec, info: TableInfo) -> FlowctlError | None:
    """An append reads the rows at its upper bound by themselves, and keys are compared with those of all rows."""
    is_append = table.mode == "append" and table.cursor is not None
    error = source.refuse_read(info, table.read, reads_twice=is_append or isinstance(table.deletes, DetectMissingKeys))
    if error is not None:
        error.mark = table.mark_of("read" if table.read != ReadHints() else "from")
    return error


def _continues_from(state: TableState) -> Position | None:
    """Where new rows begin: what a begun number reads is not new."""
    return state.pending.interval.upper if state.pending is not None else state.position


def _begun_refresh(state: TableState) -> bool:
    """Whether everything is read again by the begun number, or by the one after it."""
    return state.pending is not None and (state.pending.refresh or state.pending.replaces)


def _reads(table: TableSpec, connection: str) -> bool:
    return not isinstance(table.source, SqlSource) and table.source.connection == connection


def _merge_answers(table: TableSpec, looked: Mapping[str, _Seen]) -> Observed:
    """One table, from the answers of its source's and its target's connection; the first error stops it."""
    written = looked[table.target.connection]
    read = _Seen() if isinstance(table.source, SqlSource) else looked[table.source.connection]
    answers = (
        read.error,
        written.error,
        source := read.sources.get(table.id),
        missing := read.missing.get(table.id),
        watermark := read.watermarks.get(table.id),
        watermark.failure if isinstance(watermark, HighWatermark) else None,
        target := written.targets.get(table.id),
        commit := written.commits.get(table.id),
        *(sidecars := written.sidecars.get(table.id, {})).values(),
    )
    error = next((answer for answer in answers if isinstance(answer, FlowctlError)), None)
    if error is not None:
        return Observed(error=error)
    files = _value(read.files.get(table.id))
    return Observed(
        source=_value(source),
        missing=_value(missing),
        watermark=_value(watermark),
        target=_value(target),
        commit=_value(commit),
        positions=read.positions,
        sidecars={suffix: _value(info) for suffix, info in sidecars.items()},
        reading=read.readings.get(table.id, ""),
        file_log=files.log if files else None,
        pending_log=files.pending if files else None,
    )


def _value(answer: Answer | FlowctlError | None) -> Answer | None:
    return None if isinstance(answer, FlowctlError) else answer


def _with_files_written(blobs: BlobStore, id: str, state: StateDocument, seen: Observed) -> Observed:
    """With what the target's record names beyond state's, for tables of files."""
    if seen.file_log is None:
        return seen
    try:
        return replace(seen, written_log=files_written(blobs, id, state.table(id), seen.commit))
    except StoppedByPolicy as error:
        return Observed(error=error)
