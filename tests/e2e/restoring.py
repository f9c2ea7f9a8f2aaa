"""A flow whose tables are restored: its commits, and the command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.flows import Flow, Row, sqlite_script
from tests.e2e.target_place import TargetPlace

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  lake: LAKE
  dst: {type: sqlite, path: target.db}
defaults: {to: lake, key: [id], cursor: {column: at}}
tables:
  orders: {from: src:orders, mode: merge}
  events: {from: src:orders, mode: append, key: null}
  versions: {from: src:orders, mode: scd2, scd2: {valid_from: at}}
  copy: {from: src:orders, to: dst, mode: merge}
"""
COLUMNS = {
    "orders": ["id", "note", "at"],
    "events": ["id", "note", "at"],
    "versions": ["id", "note", "valid_from", "valid_to", "is_current"],
}
CONTENT = [
    [(1, "a", 1), (2, "b", 1)],
    [(1, "changed", 2), (3, "c", 2)],
    [(1, "changed again", 3), (4, "d", 3)],
]


def add_rows(folder: Path, rows: list[tuple[int, str, int]]) -> None:
    values = ", ".join(f"({id}, '{note}', '2026-01-0{day} 00:00:00')" for id, note, day in rows)
    create = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)"
    sqlite_script(folder / "source.db", f"{create}; INSERT OR REPLACE INTO orders VALUES {values}")


#: Ids and notes after all commits.
LAST = {(1, "changed again"), (2, "b"), (3, "c"), (4, "d")}


@dataclass(frozen=True)
class Restored:
    """A flow with a table that has ``contents``, each committed after the one before."""

    flow: Flow
    place: TargetPlace
    table: str
    contents: list[list[Row]]

    @property
    def rows(self) -> list[Row]:
        return self.place.rows(COLUMNS[self.table])

    def restore(self, to: str, expect: int = 0, **env: str) -> str:
        return restore(self.flow, self.table, to, expect, **env)

    def apply(self) -> None:
        self.flow.apply("--select", self.table)

    def is_up_to_date(self) -> bool:
        return self.flow.actions("--select", self.table) == {self.table: "none"}

    def current(self) -> set[Row]:
        """Ids and notes, of a history those of now."""
        return {row[:2] for row in self.rows if row[-1]}


def with_three_commits(lake: TargetPlace, table: str, *last: str) -> Restored:
    """``last`` are options of the last run."""
    return with_commits(lake, table, len(CONTENT), *last)


def with_commits(lake: TargetPlace, table: str, count: int, *last: str) -> Restored:
    made = Restored(Flow(lake.folder), lake.named(table), table, [])
    made.flow.write(SPEC.replace("LAKE", lake.connection))
    for number, rows in enumerate(CONTENT[:count], 1):
        add_rows(lake.folder, rows)
        made.flow.apply("--select", table, *(last if number == count else ()))
        made.contents.append(made.rows)
    return made


def restore(flow: Flow, table: str, to: str, expect: int = 0, **env: str) -> str:
    return flow.run("restore", "flow.yaml", table, "--to", to, "--yes", env=env, expect=expect).words
