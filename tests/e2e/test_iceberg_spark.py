"""Iceberg tables that flowctl writes, as Spark reads and changes them; and flowctl's next runs on top of that."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from tests.connectors.iceberg.spark_statements import run
from tests.e2e.flows import Flow, sqlite_script

pytestmark = [pytest.mark.full, pytest.mark.server]

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  odd: {type: duckdb, path: odd.duckdb}
  lake: {type: iceberg, warehouse: lake, namespace: db}
tables:
  merged: {from: src:orders, to: lake, mode: merge, key: [id], cursor: {column: at}}
  added: {from: src:orders, to: lake, mode: append, cursor: {column: at}, layout: {partition_by: [note]}}
  replaced: {from: src:orders, to: lake, mode: truncate}
  versions: {from: src:orders, to: lake, mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: at}}
  kinds: {from: odd:kinds, to: lake, mode: merge, key: [id]}
"""
KINDS = """
    CREATE TABLE kinds AS SELECT * FROM (VALUES
    (1, true, 127::TINYINT, 32767::SMALLINT, 9223372036854775807, 0.1::FLOAT, '-inf'::DOUBLE, 1.50::DECIMAL(38, 10),
     'ä🦆', '\\x00\\xFF'::BLOB, DATE '0001-01-01', TIMESTAMP '9999-12-31 23:59:59.999999',
     TIMESTAMPTZ '1900-01-01 00:00:00.000001+00', [1, NULL], {'a': 1, 'b': ['x']}),
    (2, NULL, NULL, NULL, NULL, NULL, 'nan'::DOUBLE, NULL, '', ''::BLOB, NULL, NULL, NULL, [], NULL))
    AS t (id, yes, tiny, small, large, single, double, exact, text, bytes, day, moment, zoned, items, parts)
"""
COLUMNS = "id, note, CAST(at AS STRING)"


def change(flow: Flow, script: str) -> None:
    sqlite_script(flow.folder / "source.db", script)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    made = Flow(tmp_path)
    made.write(SPEC)
    change(
        made,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP);"
        "INSERT INTO orders VALUES (1, 'a', '2026-01-01'), (2, 'b', '2026-01-01'), (3, NULL, '2026-01-02')",
    )
    with duckdb.connect(str(tmp_path / "odd.duckdb")) as connection:
        connection.execute(KINDS)
    made.apply()
    return made


def test_spark_reads_what_flowctl_writes(flow: Flow) -> None:
    change(flow, "UPDATE orders SET note = 'changed', at = '2026-01-03' WHERE id = 1")
    flow.apply()
    merged, added, replaced, versions, kinds, before = run(
        flow.folder / "lake",
        f"SELECT {COLUMNS} FROM c.db.merged ORDER BY id",
        "SELECT id, note FROM c.db.added ORDER BY id, at",
        "SELECT id, note FROM c.db.replaced ORDER BY id",
        "SELECT id, note, CAST(valid_from AS STRING), is_current FROM c.db.versions ORDER BY id, valid_from",
        "SELECT * FROM c.db.kinds ORDER BY id",
        "SELECT id, note FROM c.db.merged VERSION AS OF "
        + str(run(flow.folder / "lake", "SELECT snapshot_id FROM c.db.merged.snapshots ORDER BY committed_at")[0][0][0])
        + " ORDER BY id",
    )
    assert merged == [
        (1, "changed", "2026-01-03 00:00:00"),
        (2, "b", "2026-01-01 00:00:00"),
        (3, None, "2026-01-02 00:00:00"),
    ]
    assert added == [(1, "a"), (1, "changed"), (2, "b"), (3, None)]
    assert replaced == [(1, "changed"), (2, "b"), (3, None)]
    assert versions == [
        (1, "a", "2026-01-01 00:00:00", False),
        (1, "changed", "2026-01-03 00:00:00", True),
        (2, "b", "2026-01-01 00:00:00", True),
        (3, None, "2026-01-02 00:00:00", True),
    ]
    assert before == [(1, "a"), (2, "b"), (3, None)]
    first, second = kinds
    assert first[:5] == (1, True, 127, 32767, 9223372036854775807)
    assert (round(first[5], 6), first[6], first[7]) == (0.1, float("-inf"), Decimal("1.5"))
    assert first[8:11] == ("ä🦆", b"\x00\xff", dt.date(1, 1, 1))
    assert first[11] == dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert first[12].astimezone(dt.UTC) == dt.datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    assert first[13:] == ([1, None], {"a": 1, "b": ["x"]})
    assert second[:6] == (2, None, None, None, None, None) and second[6] != second[6]
    assert second[7:] == (None, "", b"", None, None, None, [], None)


def test_flowctl_goes_on_after_spark_has_changed_the_table(flow: Flow) -> None:
    """Rows deleted in files of deletions, other columns, another partitioning, files written again, a rollback."""
    lake = flow.folder / "lake"
    on_read = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
    run(
        lake,
        f"ALTER TABLE c.db.merged SET TBLPROPERTIES ({on_read})",
        "DELETE FROM c.db.merged WHERE id = 2",
        "INSERT INTO c.db.merged VALUES (50, 'theirs', NULL)",
        "ALTER TABLE c.db.merged ADD COLUMN extra STRING",
        "UPDATE c.db.merged SET extra = 'kept' WHERE id = 1",
        "ALTER TABLE c.db.merged ADD PARTITION FIELD bucket(2, id)",
        "CALL c.system.rewrite_manifests('db.added')",
        "DELETE FROM c.db.added WHERE note IS NULL",
    )
    change(
        flow,
        "INSERT INTO orders VALUES (4, 'new', '2026-01-04');"
        "UPDATE orders SET note = 'changed', at = '2026-01-04' WHERE id = 1",
    )
    flow.apply("--select", "merged", "--select", "added")
    merged, added = run(
        lake, "SELECT id, note, extra FROM c.db.merged ORDER BY id", "SELECT id, note FROM c.db.added ORDER BY id, at"
    )
    assert merged == [(1, "changed", "kept"), (3, None, None), (4, "new", None), (50, "theirs", None)]
    assert added == [(1, "a"), (1, "changed"), (2, "b"), (4, "new")]
    assert flow.actions("--select", "merged", "--select", "added") == {"merged": "none", "added": "none"}
