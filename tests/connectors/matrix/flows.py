"""The flow of one pair: a table for each mode that the target can take, and for each way to end rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowctl.spec.schema import target_modes
from tests.connectors.matrix.contents import Columns, Content, Row, as_rows, of_rows
from tests.connectors.matrix.source import Source
from tests.e2e.target_place import TargetPlace

GUARD = {"max_deleted": "60%"}


@dataclass(frozen=True)
class Entry:
    """One table of the flow: what it reads, and how. ``action`` is what happens to rows that end; empty: nothing."""

    id: str
    source: str
    mode: str
    action: str = ""
    key: str = "id"

    def spec(self, source: Source, target: TargetPlace) -> dict[str, Any]:
        made = {**source.entry(self.source, self.mode), "to": f"dst:{target.named(self.id).object}", "mode": self.mode}
        if self.mode in ("merge", "scd2"):
            made["key"] = [self.key]
        if self.mode == "scd2":
            made["scd2"] = {"valid_from": "at"}
        if self.action:
            made["deletes"] = source.deletes() | ({"action": self.action} if self.mode == "merge" else {})
            made["guard"] = GUARD
        return made


#: What changes: each mode, and each way to end rows.
CHANGING = (
    Entry("append", "events", "append"),
    Entry("truncate", "orders", "truncate"),
    Entry("merge", "orders", "merge"),
    Entry("hard", "orders", "merge", "hard"),
    Entry("soft", "orders", "merge", "soft"),
    Entry("scd2", "orders", "scd2", "end"),
)
EMPTY = tuple(Entry(f"empty_{mode}", "nothing", mode) for mode in ("append", "truncate", "merge", "scd2"))
WIDE = (Entry("wide_truncate", "wide", "truncate"), Entry("wide_merge", "wide", "merge"))
TYPES = (Entry("types_truncate", "types", "truncate"), Entry("types_merge", "types", "merge"))


def able(entries: Sequence[Entry], target: str) -> tuple[Entry, ...]:
    """Those that ``target`` can take."""
    return tuple(entry for entry in entries if entry.mode in target_modes(target))


def redefined(entry: Entry, target: str) -> Entry:
    """The same table by another definition: another mode where there is no key."""
    match entry.mode:
        case "append":
            return replace(entry, mode="truncate")
        case "truncate" if "merge" in target_modes(target):
            return replace(entry, mode="merge")
        case "truncate":  # as an append, it would stop at the rows that have changed
            return entry
        case _:
            return replace(entry, key="code")


def document(source: Source, target: TargetPlace, entries: Sequence[Entry], spark: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {
        "version": 1,
        "flow": "pair",
        "connections": {"src": source.connection, "dst": target.options},
        "state": {"url": "state"},
        "tables": {entry.id: entry.spec(source, target) for entry in entries},
    }
    return made | ({"spark": {"url": spark}} if spark else {})


def expected(entry: Entry, content: Content, *, keeps_all: bool) -> Sequence[Row]:
    """What a target must hold that was filled in one definition."""
    match entry.mode:
        case "append":
            return content.written if keeps_all else content.versions
        case "truncate":
            return content.written if keeps_all else list(content.live.values())
        case "merge":
            return list({"hard": content.live, "soft": content.last}.get(entry.action, content.newest).values())
        case _:
            return content.versions


def must_equal(entry: Entry, target: TargetPlace, content: Content, *, keeps_all: bool, columns: Columns) -> None:
    """By value, as another client than flowctl reads the target."""
    table = target.named(entry.id)
    found = rows_of(table, columns)
    assert found == of_rows(expected(entry, content, keeps_all=keeps_all), columns), entry.id
    live = of_rows(content.live.values(), columns)
    if entry.action == "soft":
        assert rows_of(table, columns, '"_deleted_at" IS NULL') == live, entry.id
    if entry.mode == "scd2" and entry.action:
        current = [row[:-1] for row in rows_of(table, {**columns, "is_current": "boolean"}) if row[-1]]
        assert current == live, entry.id


def rows_of(table: TargetPlace, columns: Columns, where: str = "") -> list[tuple[Any, ...]]:
    listed = ", ".join(f'"{name}"' for name in columns)
    return as_rows(table.fetch(f"SELECT {listed} FROM {{table}}{' WHERE ' + where if where else ''}"), columns)


def without(columns: Columns, *names: str) -> Mapping[str, Any]:
    return {name: kind for name, kind in columns.items() if name not in names}
