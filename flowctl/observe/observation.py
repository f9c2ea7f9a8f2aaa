"""Reads state, sources and targets once for one plan. Planning reads the outside world only through this module.

One metadata query per connection serves all its tables, a second one returns their high watermarks; connections are
queried in parallel. An unreachable connection stops only its own tables. Starts no Spark and writes nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from flowctl.connectors.base import Connector
from flowctl.connectors.source import HighWatermark, Source
from flowctl.connectors.stream import StreamInfo
from flowctl.connectors.target import CommitLookup, Target, TargetRules
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model.commit import Commit
from flowctl.model.position import NoPosition
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Estimate, ObjectName, TableInfo
from flowctl.observe.asking import Answer, Connections, Key, ask_for_each, in_parallel
from flowctl.observe.discovery import Discovery
from flowctl.observe.file_logs import files_read, files_written, pending_log
from flowctl.observe.letters import with_letters
from flowctl.observe.metadata import with_metadata
from flowctl.observe.relations import blame, relation
from flowctl.observe.streams import former_streams, recorded_streams, stream_source, with_info
from flowctl.observe.watermarks import watermark_request
from flowctl.observe.world import Observed, PositionKind, World
from flowctl.resolve.places import owner_name, sidecars_of
from flowctl.resolve.resolve import Resolved
from flowctl.spec.spec import (
    DetectMissingKeys,
    ReadHints,
    Spec,
    SqlSource,
    TableSpec,
    stream_of,
)
from flowctl.state.document import StateDocument, TableState
from flowctl.state.location import open_flow
from flowctl.state.store import StateStore
from flowctl.state.streams import stream_store
from flowctl.storage.blobs import BlobStore


def observe(
    spec: Spec, resolved: Resolved, discovery: Discovery, connections: Connections, estimate: Estimate
) -> World:
    """Returns the world that one plan needs. Raises :class:`AbortRun` if state is unreadable. Errors of a connection or
    an object are part of the result."""
    blobs = open_flow(spec)
    state = StateStore(blobs).read()
    tables = [table for table in resolved.tables if table.id in resolved.selected]
    streams = recorded_streams(spec, blobs, [name for table in tables if (name := stream_of(table))])
    documents = {name: seen.state for name, seen in streams.items()}
    by_id = {table.id: table for table in resolved.tables}
    needed = [by_id[id] for table in tables for id in resolved.needs[table.id] if id in by_id]
    for name in dict.fromkeys(stream_of(table) for table in needed):
        if name and name not in documents:
            documents[name] = stream_store(blobs, name).read()
    looked = in_parallel(
        lambda name: _Look(connections, name, spec, state, documents, resolved, estimate, blobs).at(tables),
        _connections(tables),
    )
    known = {id: one for document in (state, *documents.values()) for id, one in document.tables.items()}
    recorded = {table.id: known[table.id].target_id for table in resolved.tables if table.id in known}
    observed = with_letters({table.id: _merge(table, looked) for table in tables}, tables, connections, recorded)
    asked = {name: info for seen in looked.values() for name, info in seen.streams.items()}
    unlisted = {  # which tables it captures is not known: it must not pass over any
        name: discovery.failures[table.id]
        for table in spec.tables
        if table.id in discovery.failures and (name := stream_of(table))
    }
    of_streams = {name for table in (*spec.tables, *resolved.tables) if (name := stream_of(table))}
    return World(
        at=dt.datetime.now(dt.UTC),
        state=state,
        tables={id: _with_files_written(blobs, id, state, seen) for id, seen in observed.items()},
        ddl={name: seen.ddl for name, seen in looked.items() if seen.ddl is not None},
        unexpanded=discovery.failures,
        places=_places(connections, resolved),
        documents=documents,
        former=former_streams(spec, blobs, of_streams, connections),
        streams={
            name: with_info(seen, unlisted.get(name) or asked[name], spec.streams[name], connections)
            for name, seen in streams.items()
        },
    )


def _connections(tables: Iterable[TableSpec]) -> list[str]:
    names = {table.target.connection for table in tables}
    names |= {table.source.connection for table in tables if not isinstance(table.source, SqlSource)}
    return sorted(names)


def _places(connections: Connections, resolved: Resolved) -> dict[str, str]:
    """Resolved places of the tables whose targets end in the same name, where a sidecar's name counts as its owner's:
    other targets cannot be the same table. Includes tables that are not selected. An unreachable target is skipped; its
    own tables are stopped elsewhere."""
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
    """What one connection returned for the tables that read from it and those that are written to it, by id: the part
    of each observation that this connection provides."""

    read: Mapping[str, Observed]
    written: Mapping[str, Observed]
    ddl: TargetRules | None = None
    streams: Mapping[str, StreamInfo | FlowctlError] = field(default_factory=dict)


@dataclass(frozen=True)
class _Look:
    """One observation of one connection."""

    connections: Connections
    name: str
    spec: Spec
    state: StateDocument
    documents: Mapping[str, StateDocument]
    resolved: Resolved
    estimate: Estimate
    blobs: BlobStore

    def at(self, tables: Sequence[TableSpec]) -> _Seen:
        read = [table for table in tables if _reads(table, self.name)]
        written = [table for table in tables if table.target.connection == self.name]
        try:
            connector = self.connections.get(self.name)
        except FlowctlError as error:
            failed = Observed(error=error)
            unasked = {name: error for table in read if (name := stream_of(table))}
            return _Seen({table.id: failed for table in read}, {table.id: failed for table in written}, None, unasked)
        polled = [table for table in read if not stream_of(table)]
        streams, streamed = self._streams(connector, [table for table in read if stream_of(table)])
        return _Seen(
            {**(self._sources(connector.source, polled) if connector.source else {}), **streamed},
            self._targets(connector.target, written) if connector.target else {},
            connector.target,
            streams,
        )

    def _streams(
        self, connector: Connector, tables: Sequence[TableSpec]
    ) -> tuple[dict[str, StreamInfo | FlowctlError], dict[str, Observed]]:
        """What the source says of each stream, and of the tables read through it."""
        by_stream: dict[str, list[TableSpec]] = {}
        for table in tables:
            by_stream.setdefault(stream_of(table), []).append(table)
        asked = self._each(
            lambda names: {name: self._stream(connector, name, by_stream[name]) for name in names}, list(by_stream)
        )
        found: dict[str, Observed] = {}
        for name, its in by_stream.items():
            found |= _of_each(its, lambda table, name=name: self._streamed(connector, table, asked[name]))  # type: ignore[misc]
        return asked, found

    def _stream(self, connector: Connector, name: str, tables: Sequence[TableSpec]) -> StreamInfo:
        stream = self.spec.streams[name]
        objects = [object for table in tables if (object := relation(table).object) is not None]
        return stream_source(self.spec, stream, connector).describe_stream(stream, list(dict.fromkeys(objects)))

    def _streamed(self, connector: Connector, table: TableSpec, asked: StreamInfo | FlowctlError) -> Observed:
        read, stream = relation(table), _value(asked)
        assert read.object is not None
        info = stream.tables.get(read.object)
        if info is None:
            source = connector.source
            return Observed(missing=source.why_missing(read) if source else None)
        info = with_metadata(table, info)
        return Observed(source=info, watermark=HighWatermark(NoPosition(), info.rows))

    def _sources(self, source: Source, tables: Sequence[TableSpec]) -> dict[str, Observed]:
        can = source.capabilities.source
        positions: PositionKind = can.position if can else "none"
        seen = self._files(source, tables) if positions == "files" else self._objects(source, tables)
        by_id = {table.id: table for table in tables}
        return {id: replace(one, positions=positions, error=blame(by_id[id], one.error)) for id, one in seen.items()}

    def _objects(self, source: Source, tables: Sequence[TableSpec]) -> dict[str, Observed]:
        relations = {table.id: relation(table) for table in tables}
        infos = self._each(source.describe, list(dict.fromkeys(relations.values())))
        requests = {
            table.id: watermark_request(table, info, self.state.table(table.id), self.resolved, self.estimate)
            for table in tables
            if isinstance(info := infos[relations[table.id]], TableInfo)
        }
        watermarks = self._each(lambda ids: source.high_watermarks({id: requests[id] for id in ids}), list(requests))
        absent = [id for id, one in relations.items() if infos[one] is None]
        missing = self._each(lambda ids: {id: source.why_missing(relations[id]) for id in ids}, absent)

        def observed(table: TableSpec) -> Observed:
            info = _value(infos[relations[table.id]])
            if info is None:
                return Observed(missing=_value(missing[table.id]))
            _check_readable(source, table, info)
            watermark = _value(watermarks[table.id])
            if watermark.failure is not None:
                raise watermark.failure
            reading = source.explain_read(requests[table.id], table.read)
            return Observed(source=info, watermark=watermark, reading=reading)

        return _of_each(tables, observed)

    def _files(self, source: Source, tables: Sequence[TableSpec]) -> dict[str, Observed]:
        by_id = {table.id: table for table in tables}
        found = self._each(lambda ids: {id: self._files_of(source, by_id[id]) for id in ids}, list(by_id))
        return _of_each(tables, lambda table: _value(found[table.id]))

    def _files_of(self, source: Source, table: TableSpec) -> Observed:
        read, state = relation(table), self.state.table(table.id)
        anew = table.id in self.resolved.full_refresh
        log = files_read(self.blobs, table.id, state.position, read_anew=anew or _begun_refresh(state))
        known = {} if anew or table.mode == "truncate" or _begun_refresh(state) else log.files
        info, watermark = source.describe_files(read, known, state.schema)
        return Observed(
            source=info,
            missing=source.why_missing(read) if info is None else None,
            watermark=watermark if info is not None else None,
            file_log=log,
            pending_log=None if anew else pending_log(self.blobs, table.id, state),
        )

    def _targets(self, target: Target, tables: Sequence[TableSpec]) -> dict[str, Observed]:
        objects = {table.id: table.target.object for table in tables}
        documents = {table.id: self.documents.get(stream_of(table), self.state) for table in tables}

        def ask(ids: Sequence[str]) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
            known = [id for id in ids if documents[id].serial]
            lookups = [CommitLookup(documents[id].lineage, id, objects[id]) for id in known]
            found = dict(target.described_and_committed(lookups)) if lookups else {}
            new = [id for id in ids if not documents[id].serial]  # a new lineage: it has no commits yet
            infos = target.describe([objects[id] for id in new]) if new else {}
            return {**found, **{id: (infos[objects[id]], None) for id in new}}

        found = self._each(ask, list(objects))
        sidecars = {table.id: self._sidecars_of(table) for table in tables}
        infos = self._each(
            target.describe, [object for by_suffix in sidecars.values() for object in by_suffix.values()]
        )

        def observed(table: TableSpec) -> Observed:
            info, commit = _value(found[table.id])
            if info is not None and self._is_unwritten(target, table, commit):
                return Observed(unwritten=info)
            if info is not None:
                self._check_writable(target, table, info)
            kept = {suffix: _value(infos[object]) for suffix, object in sidecars[table.id].items()}
            return Observed(target=info, commit=commit, sidecars=kept)

        return _of_each(tables, observed)

    def _is_unwritten(self, target: Target, table: TableSpec, commit: Commit | None) -> bool:
        """Whether it is a log to which this flow has written nothing yet."""
        state = self.documents.get(stream_of(table), self.state).table(table.id)
        known = (state.target_id, state.intent and state.intent.target_id, commit and commit.target_id)
        return target.is_log and not any(known)

    def _check_writable(self, target: Target, table: TableSpec, info: TableInfo) -> None:
        state = self.documents.get(stream_of(table), self.state).table(table.id)
        is_refresh = table.id in self.resolved.full_refresh or _begun_refresh(state)
        error = target.refuse_write(info, table.mode, replaces=is_refresh or table.mode == "truncate")
        if error is not None:
            error.mark = table.mark_of("to")
            raise error

    def _sidecars_of(self, table: TableSpec) -> dict[str, ObjectName]:
        """The sidecars to look up, by suffix. A history's is always looked up: without its observations, its versions
        would be lost. Others only before the table has one of its own; after that, a foreign one cannot exist."""
        return {
            suffix: ObjectName((*table.target.parts[:-1], table.target.parts[-1] + suffix))
            for suffix in sidecars_of(table)
            if suffix == OBSERVED
            or self.documents.get(stream_of(table), self.state).table(table.id).definition.get("mode") != table.mode
        }

    def _each(
        self, ask: Callable[[Sequence[Key]], Mapping[Key, Answer]], keys: Sequence[Key]
    ) -> dict[Key, Answer | FlowctlError]:
        return ask_for_each(ask, keys, self.connections.mark(self.name))


def _of_each(tables: Sequence[TableSpec], observed: Callable[[TableSpec], Observed]) -> dict[str, Observed]:
    """Calls ``observed`` for each table; results by id. An error stops only that table."""

    def one(table: TableSpec) -> Observed:
        try:
            return observed(table)
        except FlowctlError as error:
            return Observed(error=error)

    return {table.id: one(table) for table in tables}


def _value(answer: Answer | FlowctlError) -> Answer:
    if isinstance(answer, FlowctlError):
        raise answer
    return answer


def _check_readable(source: Source, table: TableSpec, info: TableInfo) -> None:
    """Some tables are read twice: an append reads the rows at its upper bound separately, and detecting missing keys
    reads all keys."""
    is_append = table.mode == "append" and table.cursor is not None
    error = source.refuse_read(info, table.read, reads_twice=is_append or isinstance(table.deletes, DetectMissingKeys))
    if error is not None:
        error.mark = table.mark_of("read" if table.read != ReadHints() else "from")
        raise error


def _begun_refresh(state: TableState) -> bool:
    """Whether the pending sequence number, or the one after it, reads everything again."""
    return state.pending is not None and (state.pending.refresh or state.pending.replaces)


def _reads(table: TableSpec, connection: str) -> bool:
    return not isinstance(table.source, SqlSource) and table.source.connection == connection


def _merge(table: TableSpec, looked: Mapping[str, _Seen]) -> Observed:
    """Merges what a table's source connection and target connection returned; the first error stops the table."""
    read = Observed() if isinstance(table.source, SqlSource) else looked[table.source.connection].read[table.id]
    there = looked[table.target.connection].written[table.id]
    if error := read.error or there.error:
        return Observed(error=error)
    target, unwritten, commit = there.target, there.unwritten, there.commit
    return replace(read, target=target, unwritten=unwritten, commit=commit, sidecars=there.sidecars)


def _with_files_written(blobs: BlobStore, id: str, state: StateDocument, seen: Observed) -> Observed:
    """For tables of files, adds the log of the target's own commit record if it differs from state's."""
    if seen.file_log is None:
        return seen
    try:
        return replace(seen, written_log=files_written(blobs, id, state.table(id), seen.commit))
    except StoppedByPolicy as error:
        return Observed(error=error)
