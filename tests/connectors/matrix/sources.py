"""The sources of the matrix: a new one is a class and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from tests.connectors.matrix.databases import DuckdbSource, MysqlSource, PostgresSource, SqliteSource
from tests.connectors.matrix.files import AvroSource, CsvSource, JsonlSource, OrcSource, ParquetSource
from tests.connectors.matrix.lakes import DeltaSource, IcebergSource
from tests.connectors.matrix.source import Source

#: Connectors that are not in the matrix, and why.
ELSEWHERE = {"kafka": "a topic has no rows that change or end, and counts messages: tests/e2e/kafka"}
SOURCES: Mapping[str, type[Source]] = {
    made.kind: made
    for made in (
        PostgresSource,
        MysqlSource,
        SqliteSource,
        DuckdbSource,
        DeltaSource,
        IcebergSource,
        CsvSource,
        JsonlSource,
        ParquetSource,
        OrcSource,
        AvroSource,
    )
}
