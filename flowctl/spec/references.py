"""``from`` and ``to``: what a table reads and where it is written, as values, and their errors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from flowctl.model.position import OffsetsPosition
from flowctl.spec.findings import Findings
from flowctl.spec.names import ObjectSyntax, object_parts, split_reference
from flowctl.spec.node import Node
from flowctl.spec.schema import object_syntax, role
from flowctl.spec.spec import ObjectSource, QuerySource, Source, SqlSource, StreamTable, TargetRef, TopicSource
from flowctl.spec.suggest import suggest_connection
from flowctl.sql.refs import referenced

#: Connection name to type; None: the connection exists, and its type is wrong (reported there).
ConnectionTypes = Mapping[str, str | None]


@dataclass(frozen=True)
class Sources:
    """What a table can read: ``connections`` by name, and ``streams`` by name with the connection behind each (None:
    it has errors, which are reported there)."""

    connections: ConnectionTypes
    streams: Mapping[str, str | None]


_ONE_OF = ("table", "path", "topic", "query", "sql")


def source_of(node: Node, sources: Sources, findings: Findings) -> Source | None:
    """The source that ``from`` names, or None with an error (possibly one reported elsewhere)."""
    if isinstance(node.value, str):
        connection, name = split_reference(node.value)
        if not name:
            hint = f"Write `{connection}:` and the object, as in {connection}:public.orders"
            findings.error(node, f"`{connection}` names a connection and no object", hint, "no-object")
            return None
        return _object_source(node, connection, name, sources, findings)
    given = [key for key in _ONE_OF if key in node.entries]
    if len(given) != 1:
        what = f"`from` has {' and '.join(f'`{key}`' for key in given)}" if given else "`from` names nothing to read"
        findings.error(node.place, what, "Write one of `table`, `path`, `topic`, `query` and `sql`", "from-one-of")
        return None
    text = node.entries[given[0]]
    connection_node = node.entries.get("connection")
    if given == ["sql"]:
        if connection_node:
            hint = "Write `query` for SQL that the connection runs, or remove `connection`"
            findings.error(connection_node.place, "`sql` runs on Spark and takes no connection", hint, "from-one-of")
        return SqlSource(text.text, referenced(text.text))
    if connection_node is None:
        findings.error(node.place, "`from` has no `connection`", "Add `connection: …`", "missing-key")
        return None
    if given == ["query"]:
        type = _source_type(connection_node, connection_node.text, sources, findings)
        if type and object_syntax(type) != "dotted":
            what = f"`{connection_node.text}` ({type}) takes no queries"
            hint = f"Write `{object_syntax(type)}`, or a table with `from: {{sql: …}}` over it"
            findings.error(text.place, what, hint, "no-queries")
            return None
        return QuerySource(connection_node.text, text.text) if type else None
    source = _object_source(text, connection_node.text, text.text, sources, findings, at=connection_node)
    return _with_start(source, node, given[0], findings) if source else None


def target_of(node: Node, connections: ConnectionTypes, findings: Findings, default: str = "${id}") -> TargetRef | None:
    """The target that ``to`` names; for a bare connection, the object has the name ``default``. Whether the
    connection can be written to depends on the mode: :mod:`flowctl.spec.tables` checks it."""
    if isinstance(node.value, str):
        connection, name = split_reference(node.value)
        at, object_node = node, node
    else:
        at = node.entries["connection"]
        given = [key for key in ("table", "path", "topic") if key in node.entries]
        object_node = node.entries[given[0]] if given else node
        connection, name = at.text, object_node.text
        if len(given) > 1:
            what = f"`to` has {' and '.join(f'`{key}`' for key in given)}"
            findings.error(node.place, what, "Keep one of them", "to-one-of")
            return None
    type = _known_type(at, connection, connections, findings)
    if type is None or not _fits(node, type, connection, findings):
        return None
    parts, glob = _parts(object_node, name or default, type, findings)
    if glob:
        hint = "Write one name; ${table} and ${id} stand for the parts that differ"
        findings.error(object_node, "`to` cannot be a pattern", hint, "glob-in-target")
        return None
    return TargetRef(connection, parts) if parts else None


#: Keys of `to` that topics have; other types have those that their schema names.
OF_TOPICS = ("format", "key", "headers", "delivery", "create")


def _fits(to: Node, type: str, connection: str, findings: Findings) -> bool:
    """Whether what ``to`` says belongs to this type of connection."""
    is_of_topics = object_syntax(type) == "topic"
    for key in ("table", "path", "topic"):
        if key in to.entries and (key == "topic") != is_of_topics:
            has = "has topics" if is_of_topics else "has no topics"
            hint = "Write `topic` for Kafka, `table` for databases and `path` for files"
            findings.error(to.entries[key], f"`{connection}` {has}", hint, "to-one-of")
            return False
    takes = (role(type, "target") or {}).get("properties", {}).get("to", {}).get("properties", {})
    for key in OF_TOPICS:
        if key in to.entries and not is_of_topics and key not in takes:
            whose = "topics and files" if key == "format" else "topics"
            findings.error(to.entries[key].place, f"`to.{key}` belongs to {whose}", "Remove it", "unusable-key")
            return False
    return True


def _object_source(
    node: Node, connection: str, name: str, sources: Sources, findings: Findings, at: Node | None = None
) -> ObjectSource | None:
    stream = ""
    if connection in sources.streams:
        captured = sources.streams[connection]
        if captured is None:
            return None
        stream, connection = connection, captured
    type = _source_type(at or node, connection, sources, findings)
    if type is None:
        return None
    parts, glob = _parts(node, name, type, findings)
    if not parts:
        return None
    if object_syntax(type) == "topic":
        return TopicSource(connection, parts, glob)
    return StreamTable(connection, parts, glob, stream) if stream else ObjectSource(connection, parts, glob)


def _with_start(source: ObjectSource, node: Node, key: str, findings: Findings) -> ObjectSource | None:
    """``source`` as the map ``from`` describes it: `topic`, `start` and `group` belong to topics only."""
    start, group = node.entries.get("start"), node.entries.get("group")
    if isinstance(source, TopicSource) != (key == "topic"):
        has = "has topics" if isinstance(source, TopicSource) else "has no topics"
        hint = "Write `topic` for Kafka, `table` for databases and `path` for files"
        findings.error(node.entries[key], f"`{source.connection}` {has}", hint, "from-one-of")
        return None
    if group is not None and not isinstance(source, TopicSource):
        findings.error(group.place, "`group` belongs to topics", "Remove it", "unusable-key")
        return None
    if group is not None and isinstance(source, TopicSource):
        source = replace(source, group=group.text)
    if start is None:
        return source
    if not isinstance(source, TopicSource):
        hint = "Remove it, or write `cursor: {start: …}`"
        findings.error(start.place, "`start` belongs to topics", hint, "unusable-key")
        return None
    if start.entries:
        offsets = sorted((int(partition), int(offset.text)) for partition, offset in start.entries.items())
        return replace(source, start=OffsetsPosition(tuple(offsets)))
    if not _is_start(start.text):
        hint = "Write earliest, latest, a time with its zone, such as 2026-11-01T00:00:00Z, or {0: 120, 1: 98}"
        findings.error(start, f"`start: {start.text}` is no place in a topic", hint, "bad-start")
        return None
    return replace(source, start=start.text)


def _is_start(text: str) -> bool:
    if text in ("earliest", "latest"):
        return True
    try:
        return dt.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _known_type(
    node: Node, connection: str, connections: ConnectionTypes, findings: Findings, also: Iterable[str] = ()
) -> str | None:
    """``also`` are other names that could have been meant."""
    if not connection:
        findings.error(node, f"`{node.text}` names no connection", "Write CONNECTION:OBJECT", "no-connection")
        return None
    if connection not in connections:
        hint = suggest_connection(connection, [*connections, *also])
        what = "connection or stream" if also else "connection"
        findings.error(node, f"there is no {what} `{connection}`", hint, "unknown-connection")
        return None
    return connections[connection]


def _source_type(node: Node, connection: str, sources: Sources, findings: Findings) -> str | None:
    """The connection's type, if it can be read."""
    type = _known_type(node, connection, sources.connections, findings, also=sources.streams)
    if type is None or role(type, "source") is not None:
        return type
    what = f"reading from `{connection}` ({type}) is not in this version"
    hint = "Read a table of this flow by `from: {sql: …}` with {{ ref('id') }}"
    findings.error(node, what, hint, "not-in-this-version")
    return None


def _parts(node: Node, name: str, type: str, findings: Findings) -> tuple[tuple[str, ...], bool]:
    syntax = cast(ObjectSyntax, object_syntax(type))
    try:
        return object_parts(name, syntax)
    except ValueError as error:
        how = "Write schema.table, each part plain or in double quotes"
        hints = {"dotted": how, "path": "Write a path below the connection's", "topic": "Write the topic's own name"}
        hint = hints[syntax]
        findings.error(node, str(error), hint, "bad-object")
        return (), False
