"""A landed source as this process reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from flowctl.connectors.source import ReadRequest
from flowctl.run.reading import open_snapshot, rows_of
from flowctl.spec.spec import ReadHints
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import opened, table


def test_the_rows_that_have_landed_are_counted_batch_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE log (n INTEGER)")
        connection.executemany("INSERT INTO log VALUES (?)", [(n,) for n in range(25_000)])
    counts: list[int] = []
    spark: Any = None  # rows in memory need none
    with opened("sqlite", path=str(path)) as connector, Buffer(str(tmp_path / "state"), "run", {}) as buffer:
        source: Any = connector.source
        (info,) = source.describe([table("log")]).values()
        with open_snapshot(source, spark, table("log"), info, ReadHints(), buffer, counts.append) as snapshot:
            rows_of(snapshot, ReadRequest(info.columns))
    assert counts == [10_000, 20_000, 25_000]
