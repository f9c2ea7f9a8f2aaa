"""What was described for the plan is what is read from SQLite: altered columns stop the table."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from flowctl.connectors.source import ReadRequest, Relation, WatermarkRequest
from flowctl.connectors.sqlite.source import SqliteSource
from flowctl.errors import StatementRefused, StoppedByPolicy
from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition
from flowctl.spec.secrets import Revealed
from tests.connectors.reading import describe, opened, table
from tests.connectors.sqlite.test_source import Collected, database, file, source

__all__ = ["database", "file", "source"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER TABLE priced RENAME COLUMN amount TO total", "has no column amount any more"),
        ("ALTER TABLE priced DROP COLUMN amount", "has no column amount any more"),
        (
            "ALTER TABLE priced DROP COLUMN amount; ALTER TABLE priced ADD COLUMN amount DECIMAL(12,4)",
            r"column amount of .* was altered .* it is DECIMAL\(12,4\), it was DECIMAL\(10,2\)",
        ),
        ("DROP TABLE priced", "priced was dropped since"),
    ],
)
def test_a_table_altered_since_the_plan_is_not_read(
    database: sqlite3.Connection, source: SqliteSource, change: str, told: str
) -> None:
    """SQLite takes a name in double quotes that no column has for a text: each row would hold the column's name."""
    database.executescript("CREATE TABLE priced (id INTEGER, amount DECIMAL(10,2)); INSERT INTO priced VALUES (1, 1)")
    priced = table("priced")
    before = describe(source, priced)
    amount = tuple(column for column in before.columns if column.name == "amount")
    above = Interval(None, NoPosition(), "amount", include_null=True)
    database.executescript(change)
    for request in (ReadRequest(before.columns), ReadRequest(amount), ReadRequest(before.columns[:1], above)):
        for ask in ("read", "is_empty"):
            with (
                pytest.raises(StoppedByPolicy, match=told) as refused,
                source.capture(priced, before) as capture,
            ):
                capture.read(request, Collected()) if ask == "read" else capture.is_empty(request)
            assert refused.value.hint == "Plan again"


@pytest.mark.parametrize(
    "relation",
    [
        Relation(None, query='SELECT id, "amount" AS price FROM priced'),
        Relation(None, query="SELECT * FROM priced"),
        table("priced", where='"amount" > 5'),
    ],
    ids=str,
)
def test_what_queries_and_where_name_is_still_there(
    database: sqlite3.Connection, source: SqliteSource, relation: Relation
) -> None:
    database.executescript("CREATE TABLE priced (id INTEGER, amount DECIMAL(10,2)); INSERT INTO priced VALUES (1, 1)")
    before = describe(source, relation)
    columns = before.columns if relation.where is None else before.columns[:1]
    database.execute("ALTER TABLE priced RENAME COLUMN amount TO total")
    refused, told = (StoppedByPolicy, StatementRefused), r"any more|was altered|no such column: amount"
    with pytest.raises(refused, match=told), source.capture(relation, before) as capture:
        capture.read(ReadRequest(columns), Collected())


def test_a_column_that_is_not_read_may_change(database: sqlite3.Connection, source: SqliteSource) -> None:
    database.executescript("CREATE TABLE priced (id INTEGER, amount TEXT); INSERT INTO priced VALUES (1, 1)")
    info = describe(source, table("priced"))
    database.executescript("ALTER TABLE priced DROP COLUMN amount; ALTER TABLE priced ADD COLUMN more INT")
    sink = Collected()
    with source.capture(table("priced"), info) as capture:
        capture.read(ReadRequest(info.columns[:1]), sink)
    assert sink.rows == [{"id": 1}]


def test_a_cursor_that_is_gone_has_no_watermark(database: sqlite3.Connection, source: SqliteSource) -> None:
    database.executescript("CREATE TABLE t (id INTEGER, at TEXT); INSERT INTO t VALUES (1, 'x')")
    info = describe(source, table("t"))
    database.execute("ALTER TABLE t RENAME COLUMN at TO since")
    found = source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[1])})
    assert "no such column: at" in str(found["t"].failure)


def test_a_file_at_another_path_is_another_system_and_a_link_is_a_path(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        with sqlite3.connect(tmp_path / name) as made:
            made.execute("CREATE TABLE t (id INTEGER)")
        made.close()
    link = tmp_path / "shop.db"

    def systems(path: str) -> set[tuple[str, str]]:
        with opened("sqlite", base_dir=str(tmp_path), path=path) as connector:
            infos = connector.source.describe([table("t"), Relation(None, query="SELECT id FROM t")])
        return {(info.identity, info.system) for info in infos.values()}

    link.symlink_to("monday")
    before = systems("shop.db")
    assert before == systems(str(link)) == {("sqlite", f"sqlite:{link}")}
    link.unlink()
    link.symlink_to("tuesday")
    assert systems("shop.db") == before
    assert systems("monday") == {("sqlite", f"sqlite:{tmp_path / 'monday'}")}
    ((_, hidden),) = systems(Revealed(str(link)))
    assert "shop.db" not in hidden and hidden.startswith("sqlite:")
