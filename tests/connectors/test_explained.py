"""What connectors say in the plan of their own choices, from metadata alone."""

from __future__ import annotations

from typing import Any

import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.delta import connect as delta
from flowctl.connectors.postgres import connect as postgres
from flowctl.connectors.postgres.reading import way_of_reading
from flowctl.connectors.source import Relation, WatermarkRequest
from flowctl.connectors.sql.parts import splitting
from flowctl.connectors.sqlite import connect as sqlite
from flowctl.diagnostics import Mark
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.model.value import TypedValue
from flowctl.spec.spec import Connection, Layout, ReadHints

MARK = Mark("spec.yaml", 1)
ID, NAME = Column("id", types.INT64), Column("name", types.STRING)
MB = 1 << 20


def info(kind: str | None = "r", heap: int | None = 0, size: int | None = None) -> TableInfo:
    extra: dict[str, Any] = {"kind": kind, "heap": heap} if kind else {}
    return TableInfo(ObjectName(("orders",)), (ID, NAME), "pg:1/2", ("id",), rows=RowEstimate(bytes=size), extra=extra)


def view() -> TableInfo:
    return TableInfo(ObjectName(("orders",)), (ID, NAME), "pg:1/2", extra={"kind": "v", "heap": None})


def explained(table: TableInfo, hints: ReadHints, lower: TypedValue | None = None) -> str:
    connection = Connection("pg", "postgres", {"url": "postgresql://etl@db/shop"}, MARK)
    with postgres(connection, OpenContext()) as connector:
        assert connector.source is not None
        return connector.source.explain_read(WatermarkRequest(Relation(table.object), table, lower=lower), hints)


@pytest.mark.parametrize(
    ("table", "hints", "told"),
    [
        (info(heap=MB), ReadHints(), ""),
        (info(heap=32 * MB), ReadHints(), "read in ≈ 4 parts of one snapshot (34 MB)"),
        (info(heap=32 * MB, size=900 * MB), ReadHints(fetch_size=1), "read in ≈ 4 parts of one snapshot (34 MB)"),
        (info("p", heap=4096 * MB), ReadHints(), "read in ≈ 32 parts of one snapshot (4,295 MB)"),
        (info(heap=MB), ReadHints(16), "read in up to 16 parts of one snapshot (read.splits)"),
        (info(heap=32 * MB), ReadHints(1), ""),
        (info(heap=32 * MB), ReadHints(None, "id"), "read in ≈ 4 parts of one snapshot, by id (34 MB)"),
        (view(), ReadHints(8, "id"), "read in up to 8 parts of one snapshot, by id (read.splits)"),
        (view(), ReadHints(None, "id"), "read in one part (read.splits would split it)"),
        (view(), ReadHints(8), "read in one part (read.split_by and read.splits would split it)"),
        (info(None), ReadHints(4), "read in up to 4 parts of one snapshot, by id (read.splits)"),
    ],
)
def test_postgres_says_into_how_many_parts_it_reads(table: TableInfo, hints: ReadHints, told: str) -> None:
    assert explained(table, hints) == told


def test_an_increment_may_be_found_by_an_index() -> None:
    told = explained(info(heap=32 * MB), ReadHints(), TypedValue(types.INT64, 1))
    assert told == "read through an index or in ≈ 4 parts of one snapshot (34 MB)"
    told = explained(info(heap=32 * MB), ReadHints(2), TypedValue(types.INT64, 1))
    assert told == "read in up to 2 parts of one snapshot (read.splits)"


def test_postgres_is_read_by_executors_unless_other_servers_have_rows() -> None:
    assert way_of_reading(has_jvm=True, is_foreign=False) == "jdbc"
    assert way_of_reading(has_jvm=False, is_foreign=False) == "copy"
    assert {way_of_reading(has_jvm=jvm, is_foreign=True) for jvm in (True, False)} == {"here"}


def test_a_key_that_is_no_integer_cuts_nothing() -> None:
    table = TableInfo(ObjectName(("orders",)), (ID, NAME), "pg:1/2", ("name",))
    assert splitting(table, ReadHints(), 32 * MB, has_pages=False).by == "nothing"
    both = TableInfo(ObjectName(("orders",)), (ID, NAME), "pg:1/2", ("id", "name"))
    assert splitting(both, ReadHints(), 32 * MB, has_pages=False).by == "nothing"


def test_who_has_nothing_to_say() -> None:
    with postgres(Connection("pg", "postgres", {"url": "postgresql://etl@db/shop"}, MARK), OpenContext()) as connector:
        assert connector.target is not None and connector.target.explain_create((ID,), Layout()) == ""
    with sqlite(Connection("db", "sqlite", {"path": "shop.db"}, MARK), OpenContext()) as connector:
        assert connector.source is not None
        assert connector.source.explain_read(WatermarkRequest(Relation(None), info()), ReadHints()) == ""


def test_delta_says_which_columns_have_statistics() -> None:
    flags = (ID, Column("on", types.BOOL), Column("day", types.DATE))
    layout = Layout(partition_by=("day",), statistics=("id", "on", "day", "gone"))
    with delta(Connection("lake", "delta", {"path": "lake"}, MARK), OpenContext()) as connector:
        assert connector.target is not None
        assert connector.target.explain_create(flags, layout) == "statistics for id"
        assert connector.target.explain_create(flags, Layout(statistics=())) == ""
        assert connector.target.explain_create((), layout) == ""
