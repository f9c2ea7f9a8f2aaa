"""What state records of a table's definition, to detect changes of the spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_never

from flowctl.model.table_info import POLICIES, TableInfo, same_identity, same_system, same_view
from flowctl.plan.partitions import recorded_partitions
from flowctl.spec.spec import (
    ColumnRules,
    ObjectSource,
    QuerySource,
    Source,
    SqlSource,
    StreamTable,
    TableSpec,
    TopicSource,
)
from flowctl.state.streams import OBSERVED

#: Lists of names whose order says nothing. That of a key does where a message has it.
_UNORDERED = ("columns.include", "columns.exclude")


def definition(table: TableSpec, source: TableInfo | None) -> dict[str, Any]:
    """JSON-safe and canonical. The observed system and identity distinguish the source from others of the same name.
    The target's id is not included: state records it with the sequence number."""
    return {
        **_published(table, source),
        **_view(table, source),
        "from": _source(table.source),
        "source_system": (source.system or source.identity) if source else "",
        "source_identity": source.identity if source else "",
        "to": str(table.target),
        "mode": table.mode,
        "key": list(table.key),
        **_valid_from(table),
        "cursor": table.cursor.column if table.cursor else None,
        "where": table.where,
        "columns": _columns(table.columns),
    }


def differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Describes each difference in one line: ``mode: append → merge``. Empty: equivalent for a run."""
    if recorded == wanted:
        return ()
    before, after = ({name: one[name] for name in one if name not in OBSERVED} for one in (recorded, wanted))
    return (*_differences(before, after), *_of_source(recorded, wanted))


def is_recorded(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether ``wanted`` is the recorded definition, with the same source as it was observed."""
    return recorded == wanted or (bool(recorded) and not any(_differences(recorded, wanted)))


def _of_source(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Differences in the observed source. A source without a cursor may be recreated every night: it is read in full,
    so no position is invalidated."""
    names, both = OBSERVED[:2], (recorded, wanted)
    before, now = ((str(one.get(names[0]) or ""), str(one.get(names[1]) or "")) for one in both)
    system, identity = (f"({_text(recorded.get(name))} → {_text(wanted[name])})" for name in names)
    is_continued = wanted["cursor"] is not None or of_stream(wanted) or of_topic(wanted)
    is_known = not of_stream(wanted) or "" not in (before[1], now[1])
    if is_known and not same_system(before, now):
        yield f"the source is in another system {system}"
    elif is_known and not same_identity(before[1], now[1]) and is_continued:
        yield f"the source was recreated under its name {identity}"
    elif misses_changes(recorded, wanted):
        filters = [_text(one.get("row_filter")) for one in both]
        is_filter = filters[0] != filters[1]
        yield f"row filter: {filters[0]} → {filters[1]}" if is_filter else "the source was published anew"
    elif recorded.get("from") == wanted["from"]:
        yield from _of_view(recorded, wanted)


def _of_view(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    before, now = (str(one.get("source_view", "")) for one in (recorded, wanted))
    follows_rows = wanted["cursor"] is None or wanted["mode"] == "truncate"  # as in :func:`_view`
    if before.startswith(POLICIES) and not follows_rows and (not now or not same_view(before, now)):
        yield "row-level security shows other rows of the source"
    elif not same_view(before, now):
        yield "the view has another query"


def of_stream(definition: Mapping[str, Any]) -> bool:
    return "stream" in definition.get("from", {})


def of_topic(definition: Mapping[str, Any]) -> bool:
    return "topic" in definition.get("from", {})


def misses_changes(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a publication was made again, or the table added to it again: it has no changes from in between."""
    before, now = (_ways(definition) for definition in (recorded, wanted))
    return bool(before and now and not before & now)


def _ways(definition: Mapping[str, Any]) -> set[str]:
    """By which entries of a publication the table is in it; as long as one of them stays, nothing is missed. Empty: not
    known, as a publication of all tables has no entries, and an older flowctl wrote 0 for those of schemas."""
    return {*str(definition.get("published") or "0").split(",")} - {"0"}


def has_same_key(recorded: Mapping[str, Any], key: Iterable[str]) -> bool:
    """Whether a history has this key, in whatever order."""
    return {*recorded.get("key", ())} == {*key}


def begins_otherwise(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the versions of a history begin at other times than those it has, which may be earlier than these. The
    time of the run, and of a commit of a stream's source, is later than all times before. What an older flowctl did
    not record has not changed."""
    before, now = recorded.get("valid_from"), wanted.get("valid_from")
    if before is None or now in (None, before, "now") or of_stream(wanted):
        return False
    return _origin(recorded, before) != _origin(wanted, now)


def _origin(definition: Mapping[str, Any], name: str) -> str:
    """What the values of a target column come from: a column of the source, or an expression."""
    rules = definition.get("columns", {})
    renamed = {new: old for old, new in rules.get("rename", {}).items()}
    return str(rules.get("add", {}).get(name, renamed.get(name, name)))


def _differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    is_history = recorded.get("mode") == wanted.get("mode") == "scd2"
    for name in sorted({*recorded, *wanted}):
        before, after, path = recorded.get(name), wanted.get(name), f"{prefix}{name}"
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{path}.")
        elif path == "valid_from" and None in (before, after):
            continue  # no history before or now, or recorded by an older flowctl
        elif (path in _UNORDERED or (path == "key" and is_history)) and before and after:
            if {*before} != {*after}:
                yield f"{path}: {_text(before)} → {_text(after)}"
        elif before != after:
            yield f"{path}: {_text(before)} → {_text(after)}"


def _text(part: Any) -> str:
    match part:
        case None | [] | "":
            return "none"
        case str():
            return part
        case _:
            return json.dumps(part, ensure_ascii=False)


def _published(table: TableSpec, source: TableInfo | None) -> dict[str, Any]:
    """How the changes of a stream's table are published, and its partitions if it has any: empty if that is not known
    yet."""
    if not isinstance(table.source, StreamTable) or source is None:
        return {}
    published = {"published": source.extra.get("published", ""), "row_filter": source.extra.get("row_filter")}
    return {**published, **recorded_partitions(source)}


def _view(table: TableSpec, source: TableInfo | None) -> dict[str, Any]:
    """The view's query or the table's policies, if rows that were read stay as they are: all rows that are read in full
    follow them."""
    if source is None or not source.view or table.cursor is None or table.mode == "truncate":
        return {}
    return {"source_view": source.view}


def _valid_from(table: TableSpec) -> dict[str, Any]:
    """Where the versions of a history begin. An older flowctl did not record it."""
    return {"valid_from": table.valid_from or "commit"} if table.mode == "scd2" else {}


def _source(source: Source) -> Any:
    match source:
        case StreamTable(connection, parts, stream=stream):
            return {"stream": stream, "connection": connection, "object": list(parts)}
        case TopicSource(connection, parts):
            return {"topic": parts[-1], "connection": connection}
        case ObjectSource(connection, parts):
            return {"connection": connection, "object": list(parts)}
        case QuerySource(connection, query):
            return {"connection": connection, "query": query}
        case SqlSource(sql):
            return {"sql": sql}
        case _:
            assert_never(source)


def _columns(rules: ColumnRules) -> dict[str, Any]:
    """Only the rules in the spec, so that adding a kind of rule to flowctl changes no recorded definition."""
    written = {
        "include": None if rules.include is None else list(rules.include),
        "exclude": list(rules.exclude),
        "rename": dict(rules.rename),
        "types": dict(rules.types),
        "mask": dict(rules.mask),
        "add": dict(rules.add),
    }
    return {name: value for name, value in written.items() if value or (name == "include" and value is not None)}
