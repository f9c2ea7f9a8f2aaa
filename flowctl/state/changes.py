"""Differences between two state documents, field by field, and positions as text: for `flowctl state`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowctl.errors import UsageError
from flowctl.model import position as positions
from flowctl.model import types, value
from flowctl.model.position import CursorPosition, NoPosition, OffsetsPosition, Position, VersionPosition
from flowctl.model.types import DataType
from flowctl.state import codec
from flowctl.state.document import StateDocument, StreamState, TableState
from flowctl.text import NO_BREAK

#: In display order.
FIELDS = (
    "seq", "highest", "intent_id", "position", "definition", "schema", "target_columns", "target_id",
    "target_version", "deletes_checked_at", "last_run", "intent", "given_up", "append_again",
    "upstream_shape", "replay", "passed", "accepted",
)  # fmt: skip


_WAYS = (
    "Write `beginning`, `full`, the cursor's value, or JSON as in `flowctl state show --format json`, such as "
    '{"kind": "cursor", "type": "timestamp[us, tz=UTC]", "value": "2026-01-01T00:00:00Z"}'
)
#: In place of a table's id.
_STREAM = "(stream)"


@dataclass(frozen=True)
class Difference:
    """One field of one table. ``before`` and ``after`` are JSON as the codec writes it; ``text`` is for display."""

    table: str
    field: str
    before: Any
    after: Any
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "field": self.field, "before": self.before, "after": self.after}


def differences(before: StateDocument, after: StateDocument) -> list[Difference]:
    """Sorted by table id, then in the order of :data:`FIELDS`; then what concerns a whole stream."""
    return [
        *_of_tables(before, after),
        *_of_stream(before.stream, after.stream),
    ]


def _of_tables(before: StateDocument, after: StateDocument) -> Iterator[Difference]:
    return (
        difference
        for table_id in sorted({*before.tables, *after.tables})
        for difference in _of_table(table_id, before.table(table_id), after.table(table_id))
    )


def _of_stream(stream: StreamState | None, changed: StreamState | None) -> Iterator[Difference]:
    if stream is not None and changed is None:
        text = "ends: its reader is removed from the source, and what it has captured from the state"
        yield Difference(_STREAM, "ended", False, True, text)
        return
    before, after = stream or StreamState(), changed or StreamState()
    if before.applied != after.applied:
        text = f"batch {before.applied} → {after.applied}"
        yield Difference(_STREAM, "applied", before.applied, after.applied, text)
    if before.apart != after.apart:
        texts = (", ".join(f"{id} at batch {batch}" for id, batch in one.apart.items()) for one in (before, after))
        text = " → ".join(part or "none" for part in texts)
        yield Difference(_STREAM, "apart", dict(before.apart), dict(after.apart), text)
    if before.anew != after.anew:
        yield Difference(_STREAM, "anew", before.anew, after.anew, "begins again, with a new reader in the source")


def describe(table: TableState) -> Iterator[tuple[str, str]]:
    """Everything recorded for a table, for display: each field's label and its value."""
    for field in FIELDS:
        if getattr(table, field) == getattr(TableState(), field):
            continue
        match field:
            case "schema" | "target_columns":
                columns = (f"{one.name}{NO_BREAK}{types.short(one.type)}" for one in getattr(table, field))
                yield _label(field), ", ".join(columns)
            case "definition" | "accepted":
                definition = table.accepted[-1] if field == "accepted" else table.definition
                yield field, json.dumps(definition, ensure_ascii=False)
            case _:
                yield _label(field), _describe(field, table)


def render(found: list[Difference]) -> list[str]:
    """Lines of text: one per table, followed by its fields."""
    lines: list[str] = []
    for at, difference in enumerate(found):
        if at == 0 or found[at - 1].table != difference.table:
            lines.append(f"~ {difference.table}")
        lines.append(f"    {_label(difference.field):<18}  {difference.text}")
    return lines


def _label(field: str) -> str:
    return "sequence number" if field == "seq" else field.replace("_", " ")


def position_from_text(
    text: str,
    table: TableState,
    cursor_type: DataType | None = None,
    *,
    is_version: bool = False,
    hint: str = _WAYS,
) -> Position | None:
    """Parses ``beginning``; ``full``, for a source that is always read in full; JSON as in `state show --format json`;
    or the plain value of a cursor or version, of the type recorded for the table (or ``cursor_type``, ``is_version``).
    Raises :class:`UsageError` with ``hint`` for anything else."""
    try:
        if text.lstrip().startswith("{"):
            document = json.loads(text)
            given, before = positions.from_json(document), table.position
            if isinstance(given, OffsetsPosition) and isinstance(before, OffsetsPosition):
                # a truncate stays applied, wherever the messages are read from
                return replace(given, truncated=document.get("truncated", before.truncated))
            if isinstance(given, CursorPosition):
                return replace(given, at=value.from_person(given.at.type, document["value"]))
            return given
        match text, table.position:
            case "beginning", _:
                return None
            case "full", _:
                return NoPosition()
            case _, recorded if is_version or isinstance(recorded, VersionPosition):
                return positions.from_json({"kind": "version", "version": int(text)})
            case _, CursorPosition(at):
                return CursorPosition(value.from_person(at.type, text))
    except (ValueError, KeyError, TypeError, ArithmeticError) as cause:
        raise UsageError(f"{text!r} is no position of this table: {cause}", hint=hint) from cause
    known = cursor_type or _recorded_cursor_type(table)
    if known is None:
        raise UsageError(f"{text!r}: the type of this table's position is not known", hint=hint)
    return position_from_text(json.dumps({"kind": "cursor", "type": str(known), "value": text}), table, hint=hint)


def _recorded_cursor_type(table: TableState) -> DataType | None:
    cursor = table.definition.get("cursor")
    return next((column.type for column in table.schema if column.name == cursor), None)


def _of_table(table_id: str, before: TableState, after: TableState) -> list[Difference]:
    old, new = codec.table_to_json(before), codec.table_to_json(after)
    return [
        Difference(table_id, field, old.get(field), new.get(field), _text(field, before, after))
        for field in FIELDS
        if old.get(field) != new.get(field)
    ]


def _text(field: str, before: TableState, after: TableState) -> str:
    if field == "accepted" and after.accepted:
        changed = _changed((before.accepted or (before.definition,))[-1], after.accepted[-1])
        return f"the spec's definition ({f'changed: {changed}' if changed else 'unchanged'})"
    text = f"{_describe(field, before)} → {_describe(field, after)}"
    if field == "schema" and before.schema:
        known = {column.name for column in before.schema}
        if new := ", ".join(column.name for column in after.schema if column.name not in known):
            return f"{text} (new: {new})"
    if field == "definition" and before.definition and after.definition:
        return f"recorded → another one ({_changed(before.definition, after.definition)})"
    return text


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))


def _describe(field: str, table: TableState) -> str:
    match field:
        case "position":
            return positions.readable(table.position)
        case "definition":
            return "recorded" if table.definition else "accepted" if table.accepted else "as the next plan finds it"
        case "schema" | "target_columns":
            return f"{len(getattr(table, field))} columns"
        case "intent":
            return f"sequence number {table.intent.seq} of run {table.intent.run_id}" if table.intent else "none"
        case "given_up":
            return "to be given up" if table.given_up else "to be finished"
        case "upstream_shape":
            return table.upstream_shape[:8] or "none"
        case "replay":
            asked = table.replay
            return f"dead letters of {asked.place} are read again" if asked else "no dead letter is read again"
        case "accepted":
            return "a definition" if table.accepted else "none"
        case "passed":
            return "; ".join(f"{one.first} to {one.last}" for one in table.passed) or "none"
        case "append_again":
            return "rows above the position are appended again" if table.append_again else "no row is appended again"
        case _:
            known = getattr(table, field)
            return "none" if known in (None, "") else str(known)
