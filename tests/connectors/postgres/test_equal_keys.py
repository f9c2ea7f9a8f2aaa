"""Keys that PostgreSQL takes for equal although their texts differ: they are one key, as its own ``=`` says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.commit import RowCounts
from flowctl.model.table_info import Column
from flowctl.sql.difference import SOURCE_ORDER
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import SOFT, Row, Writer
from tests.e2e.flows import Flow, postgres_rows
from tests.services import postgres

#: The engine hands over a batch as in every suite of targets; what happens then is the database's.
pytestmark = pytest.mark.long_on_spark

KEY = Column("k", types.STRING, native="numeric")
COLUMNS = (KEY, Column("v", types.STRING))
ORDERED = (*COLUMNS, Column(SOURCE_ORDER, types.STRING), SOFT)
HISTORY = (
    *COLUMNS,
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["postgres"](request, tmp_path, scratch) as opened:
        yield opened


def put(k: str, v: str, **more: Any) -> Row:
    return {"k": k, "v": v, OP_COLUMN: "U", **more}


def gone(k: str, **more: Any) -> Row:
    return {"k": k, "v": None, OP_COLUMN: "D", **more}


def merge(writer: Writer, seq: int, *rows: Row, **job: Any) -> RowCounts:
    given = {"columns": COLUMNS, "key": ("k",), "compared": ("v",), **job}
    return writer.write(rows, seq, "merge", **given).counts


def content(writer: Writer) -> list[tuple[str, Any]]:
    return sorted((str(k), v) for k, v in writer.place.read(["k", "v"]))


def test_a_key_that_is_written_differently_is_no_deleted_one(writer: Writer) -> None:
    """The comparison of keys finds 1.0 gone; its row is there, and gets the text that the source has."""
    merge(writer, 1, put("1.0", "a"), put("2", "b"), put("3", "c"))
    counts = merge(writer, 2, gone("1.0"), put("1.00", "a"), put("2", "b"), gone("3"))
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 1)
    assert content(writer) == [("1.00", "a"), ("2", "b")]
    counts = merge(writer, 3, put("1.00", "a"), put("2", "b"))
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 0, 0)


def test_it_is_not_marked_as_deleted_either(writer: Writer) -> None:
    soft = {"columns": (*COLUMNS, SOFT), "soft_deletes": True}
    merge(writer, 1, put("1.0", "a"), put("2", "b"), **soft)
    merge(writer, 2, gone("1.0"), put("1.00", "a"), gone("2"), gone("2.0"), **soft)
    found = writer.place.read(["k", "_deleted_at"])
    assert sorted((str(k), at is not None) for k, at in found) == [("1.00", False), ("2", True)]


@pytest.mark.parametrize("replace", [False, True])
def test_two_rows_of_one_key_stop_the_table_before_anything_is_written(writer: Writer, replace: bool) -> None:
    merge(writer, 1, put("2", "b"))
    with pytest.raises(TableError) as stopped:
        merge(writer, 2, put("1.0", "a"), put("1.00", "x"), put("2", "z"), replace=replace)
    assert "1 key with more than one row" in stopped.value.message and "(key k=1.0 and 1.00)" in stopped.value.message
    assert '`columns: {types: {k: "decimal(38,10)"}}`' in stopped.value.hint
    assert content(writer) == [("2", "b")]


def test_a_flagged_deletion_is_a_row_of_the_source(writer: Writer) -> None:
    merge(writer, 1, put("1.0", "a"))
    flagged = [put("1.00", "b"), {**gone("1.0"), "v": "a"}]
    with pytest.raises(TableError, match=r"\(key k=1.0 and 1.00\)"):
        merge(writer, 2, *flagged, flags_deletes=True)


def test_the_last_of_ordered_changes_counts(writer: Writer) -> None:
    ordered = {"columns": ORDERED, "compared": ("v",), "is_ordered": True, "soft_deletes": True}
    merge(writer, 1, put("1.0", "a", **{SOURCE_ORDER: "1"}), put("2", "b", **{SOURCE_ORDER: "1"}), **ordered)
    changes = [put("1.0", "x", **{SOURCE_ORDER: "2"}), put("1.00", "y", **{SOURCE_ORDER: "3"})]
    changes += [put("2.0", "z", **{SOURCE_ORDER: "2"}), gone("2.00", **{SOURCE_ORDER: "3"})]
    merge(writer, 2, *changes, **ordered)
    found = writer.place.read(["k", "v", "_deleted_at"])
    assert sorted((str(k), v, at is not None) for k, v, at in found) == [("1.00", "y", False), ("2.00", "b", True)]


@pytest.mark.parametrize(
    ("native", "one", "other"),
    [("interval", "1 day", "24:00:00"), ("jsonb", "1.0", "1.00"), ("numrange", "[1.0,2)", "[1,2)")],
)
def test_every_type_with_several_texts_of_one_value_is_compared_by_value(
    writer: Writer, native: str, one: str, other: str
) -> None:
    columns = (Column("k", types.STRING, native=native), COLUMNS[1])
    merge(writer, 1, put(one, "a"), columns=columns)
    counts = merge(writer, 2, gone(one), put(other, "b"), columns=columns)
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 0)
    with pytest.raises(TableError, match="takes these for equal") as stopped:
        merge(writer, 3, put(one, "a"), put(other, "b"), columns=columns)
    assert "`columns: {types: {k: string}}`" in stopped.value.hint


@pytest.mark.parametrize(
    ("native", "own", "other"), [("inet", "10.0.0.1", "10.0.0.1/32"), ("macaddr", "08:00:2b:01:02:03", "08002b:010203")]
)
def test_a_type_that_writes_a_value_in_one_way_reads_it_in_several(
    writer: Writer, native: str, own: str, other: str
) -> None:
    """In a table of somebody else's; a key that is only sent in another way is no new one."""
    writer.place.execute(f"CREATE TABLE {{table}} (k {native}, v text)")
    columns = (Column("k", types.STRING), COLUMNS[1])
    merge(writer, 1, put(own, "a"), columns=columns)
    counts = merge(writer, 2, gone(own), put(other, "b"), columns=columns)
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 0)
    for again in range(2):
        with pytest.raises(TableError, match="1 key with more than one row") as stopped:
            merge(writer, 3 + again, put(own, "a"), put(other, "b"), columns=columns)
        assert stopped.value.hint.endswith('ALTER COLUMN "k" TYPE text`')
    assert [v for _, v in content(writer)] == ["b"]


def test_a_uuid_is_taken_as_it_is_written(writer: Writer) -> None:
    writer.place.execute("CREATE TABLE {table} (k uuid, v text)")
    columns = (Column("k", types.STRING), COLUMNS[1])
    own = "123e4567-e89b-12d3-a456-426614174000"
    with pytest.raises(TableError, match='column "k": a value of it is not exactly uuid'):
        merge(writer, 1, put(own, "a"), put(own.upper(), "b"), columns=columns)
    for seq, counted in ((2, 1), (3, 0)):
        assert merge(writer, seq, put(own, "a"), columns=columns).inserted == counted
    assert content(writer) == [(own, "a")]


def test_a_history_goes_on_under_another_text(writer: Writer) -> None:
    def write(seq: int, *rows: Row) -> list[tuple[str, bool]]:
        writer.write(rows, seq, "scd2", columns=HISTORY, key=("k",), compared=("v",))
        return sorted((v, bool(now)) for v, now in writer.place.read(["v", "is_current"]))

    def version(k: str, v: str, day: int) -> Row:
        return put(
            k, v, valid_from=dt.datetime(2026, 1, day, tzinfo=dt.UTC), row_hash=f"#{v}", **{DETECTED_COLUMN: False}
        )

    missing = {
        **gone("1.0"),
        "valid_from": dt.datetime(2026, 1, 9, tzinfo=dt.UTC),
        "row_hash": None,
        DETECTED_COLUMN: True,
    }
    assert write(1, version("1.0", "a", 1)) == [("a", True)]
    assert write(2, version("1.00", "a", 1), missing) == [("a", True)]
    assert write(3, version("1.00", "b", 2), missing) == [("a", False), ("b", True)]
    with pytest.raises(TableError, match=r"\(key k=1.0 and 1.00\)"):
        write(4, version("1.0", "c", 3), version("1.00", "d", 3))
    assert write(5, missing) == [("a", False), ("b", False)]


SPEC = """
version: 1
flow: keys
state: state
spark: {{url: sail}}
connections:
  src: {{type: postgres, url: "{source}"}}
  dst: {{type: postgres, url: "{target}"}}
tables:
  n: {{from: src:public.n, to: dst:public.n, mode: merge, key: [k], {rules}}}
"""
MISSING = "deletes: {detect: missing_keys, action: hard}, guard: {max_deleted: 100%}"


@pytest.mark.full
def test_a_flow_by_a_numeric_key(tmp_path: Path, postgres_server: str, postgres_database: str) -> None:
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    with (
        postgres.database(postgres_server, postgres_database.rpartition("/")[2] + "_copy") as target,
        psycopg.connect(postgres_database, autocommit=True) as source,
    ):

        def write(rules: str) -> None:
            hidden = [url.replace("etl-secret", "${secret:env:PG_PASSWORD}") for url in (postgres_database, target)]
            flow.write(SPEC.format(source=hidden[0], target=hidden[1], rules=rules))

        def rows() -> list[Any]:
            return postgres_rows(target, "SELECT k::text, v FROM n")

        source.execute("CREATE TABLE n (k numeric, v text); INSERT INTO n VALUES (1.0, 'a'), (2, 'b'), (3, 'c')")
        write(MISSING)
        flow.apply()
        source.execute("UPDATE n SET k = 1.00 WHERE k = 1; DELETE FROM n WHERE k = 3")
        flow.apply()
        assert rows() == [("1.00", "a"), ("2", "b")]
        source.execute("INSERT INTO n VALUES (1.0, 'x')")
        assert "(key k=1.0 and 1.00)" in flow.apply(expect=4).words
        assert rows() == [("1.00", "a"), ("2", "b")]
        write(f'{MISSING}, columns: {{types: {{k: "decimal(38,10)"}}}}')
        flow.apply("--full-refresh", "n")
        (first, second) = rows()
        assert first[0] == "1.0000000000" and second == ("2.0000000000", "b")
