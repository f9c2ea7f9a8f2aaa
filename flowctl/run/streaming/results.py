"""How the tables of a stream fare over many commits."""

from __future__ import annotations

from collections.abc import Iterable

from flowctl.run.attempt import TableResult, added


class Results:
    """One result for each table: the sum of its commits, and how the last one ended. Flat in memory however long a
    stream is followed."""

    def __init__(self) -> None:
        self._by_table: dict[str, TableResult] = {}

    def add(self, results: Iterable[TableResult]) -> None:
        for result in results:
            before = self._by_table.get(result.step.id)
            self._by_table[result.step.id] = result if before is None else added(before, result)

    def get(self, table_id: str) -> TableResult | None:
        return self._by_table.get(table_id)

    @property
    def are_ok(self) -> bool:
        return all(result.ok for result in self._by_table.values())

    def failed(self) -> list[TableResult]:
        return [result for result in self._by_table.values() if not result.ok]
