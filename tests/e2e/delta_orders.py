"""A Delta table that another writer changes a little from round to round, and the flow that moves it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.e2e.flows import Flow, Row, delta_rows
from tests.e2e.orders import Source
from tests.e2e.targets import TargetPlace

MODES = {
    "append": "mode: append",
    "truncate": "mode: truncate",
    "merge": "mode: merge, key: [id], deletes: {detect: missing_keys, action: hard}, guard: {max_deleted: 60%}",
    "scd2": "mode: scd2, key: [id], scd2: {valid_from: updated_at}",
}
SPEC = """
version: 1
flow: shop
state: state
spark: {{url: "{spark}"}}
connections:
  src: {{type: delta, path: source}}
  dst: {connection}
tables:
"""
FEED = {"delta.enableChangeDataFeed": "true"}


class DeltaOrders(Source):
    """With the columns of its base. Every third change is followed by a compaction."""

    def __init__(self, path: Path, options: Mapping[str, str]) -> None:
        self.path, self.clock, self.versions, self._changes = path, 0, [], 0
        self.options = options
        for number in range(1, 9):
            self._put(number, "first")

    def change(self, mode: str, round: int) -> None:
        self._put(100 + round, f"new in round {round}")
        if mode != "append":
            self._put(1 + round % 3, f"changed in round {round}")
        if mode in ("truncate", "merge"):
            self.table.delete(f"id = {100 + round - 2}")
        self._changes += 1
        if self._changes % 3 == 0:
            self.table.optimize.compact()

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def rows(self) -> list[Row]:
        return delta_rows(self.path, ["id", "note", "clock"])

    def _put(self, number: int, note: str) -> None:
        self.clock += 1
        columns = {
            "id": number,
            "note": note,
            "clock": self.clock,
            "updated_at": dt.datetime.fromisoformat(self.newest),
        }
        rows = pa.Table.from_pylist([columns])
        if number in {row[0] for row in self.versions}:
            merging = self.table.merge(rows, "s.id = t.id", "s", "t")
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            write_deltalake(str(self.path), rows, mode="append", configuration=self.options)
        self.versions.append((number, note, self.clock))


def write_flow(
    flow: Flow, mode: str, target: TargetPlace, spark: str, options: Mapping[str, str] | None = None
) -> DeltaOrders:
    """The spec and a fresh source in the flow's folder."""
    listed = f'  orders: {{from: src:orders, to: "dst:{target.object}", {MODES[mode]}}}\n'
    flow.write(SPEC.format(connection=target.connection, spark=spark) + listed)
    return DeltaOrders(flow.folder / "source" / "orders", options or {})
