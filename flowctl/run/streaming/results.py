"""How the tables of a stream fare over many commits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import replace

from flowctl.model.commit import RowCounts
from flowctl.run.attempt import TableResult

#: Warnings of one table that are kept.
_WARNINGS = 20


class Results:
    """One result for each table: the sum of its commits, and how the last one ended. Flat in memory however long a
    stream is followed."""

    def __init__(self) -> None:
        self._by_table: dict[str, TableResult] = {}

    def add(self, results: Iterable[TableResult]) -> None:
        for result in results:
            before = self._by_table.get(result.step.id)
            self._by_table[result.step.id] = result if before is None else _added(before, result)

    def get(self, table_id: str) -> TableResult | None:
        return self._by_table.get(table_id)

    @property
    def are_ok(self) -> bool:
        return all(result.ok for result in self._by_table.values())

    def failed(self) -> list[TableResult]:
        return [result for result in self._by_table.values() if not result.ok]


def _added(before: TableResult, result: TableResult) -> TableResult:
    """``result``, with the rows and times of both."""
    counts = RowCounts(
        **{
            part.name: _sum(getattr(before.counts, part.name), getattr(result.counts, part.name))
            for part in dataclasses.fields(RowCounts)
        }
    )
    warnings = tuple(dict.fromkeys((*before.warnings, *result.warnings)))[-_WARNINGS:]
    return replace(result, seconds=before.seconds + result.seconds, counts=counts, warnings=warnings)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
