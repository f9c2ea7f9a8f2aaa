"""A table that changes a little from round to round, the flow that moves it, and what each mode must make of it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.flows import Flow, Row, sqlite_rows, sqlite_script
from tests.e2e.targets import TargetPlace

MODES = {
    "append": "mode: append, cursor: {column: updated_at}",
    "truncate": "mode: truncate",
    "merge": "mode: merge, key: [id], cursor: {column: updated_at}, deletes: {detect: missing_keys, action: hard},"
    " guard: {max_deleted: 60%}",
    "scd2": "mode: scd2, key: [id], cursor: {column: updated_at}, scd2: {valid_from: updated_at}",
}
SPEC = """
version: 1
flow: shop
{state}
spark: {{url: "{spark}"}}
connections:
  src: {{type: sqlite, path: source.db}}
  dst: {connection}
tables:
  orders: {{from: src:orders, to: "dst:{object}", {mode}}}
"""


class Source:
    """A table that changes a little with every round, and what each mode must have made of it so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 0
        self.versions: list[Row] = []
        self.newest_applied = ""
        sqlite_script(
            path,
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, clock INTEGER, updated_at TIMESTAMP NOT NULL)",
        )
        for number in range(1, 9):
            self._put(number, "first")

    def change(self, mode: str, round: int) -> None:
        """Append sees new rows only; the others changed ones too, and all but scd2 deleted ones."""
        self._put(100 + round, f"new in round {round}")
        if mode != "append":
            self._put(1 + round % 3, f"changed in round {round}")
        if mode in ("truncate", "merge"):
            sqlite_script(self.path, f"DELETE FROM orders WHERE id = {100 + round - 2}")

    @property
    def newest(self) -> str:
        """The highest cursor value written so far."""
        return f"2026-01-01 00:{self.clock // 60:02}:{self.clock % 60:02}"

    def rows(self) -> list[Row]:
        return sqlite_rows(self.path, "SELECT id, note, clock FROM orders")

    def _put(self, number: int, note: str) -> None:
        self.clock += 1
        values = f"{number}, '{note}', {self.clock}, '{self.newest}'"
        sqlite_script(self.path, f"INSERT OR REPLACE INTO orders VALUES ({values})")
        self.versions.append((number, note, self.clock))


def must_be_right(mode: str, target: TargetPlace, source: Source) -> None:
    columns = ["id", "note", "clock"]
    found = target.rows(columns)
    if mode != "scd2":
        assert found == source.rows()
        return
    assert found == sorted(source.versions, key=repr)
    current = {row[0]: row[1] for row in target.rows(["id", "note", "is_current"]) if row[2]}
    assert current == {row[0]: row[1] for row in source.rows()}


def write_flow(flow: Flow, mode: str, target: TargetPlace, spark: str, state: str = "state: state") -> Source:
    """The spec and a fresh source in the flow's folder. ``state`` are the spec's keys about it."""
    fields = {"connection": target.connection, "object": target.object, "state": state}
    flow.write(SPEC.format(mode=MODES[mode], spark=spark, **fields))
    return Source(flow.folder / "source.db")
