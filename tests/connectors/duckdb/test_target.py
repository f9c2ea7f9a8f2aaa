"""What only a DuckDB target has: indexes and constraints, its own types, schemas, and rows read by DuckDB itself."""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal as Exact
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.buffered import put
from flowctl.connectors.duckdb import CAPABILITIES
from flowctl.connectors.duckdb.session import DuckdbSession
from flowctl.connectors.duckdb.target import DuckdbTarget
from flowctl.connectors.sql.embedded import HandedRows
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.errors import StateConflict, TableError
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import Array, Decimal, Struct
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.test_target_history import COLUMNS as HISTORY
from tests.connectors.test_target_history import seen
from tests.connectors.writing import COLUMNS, Writer, gone, row, upserts
from tests.e2e.flows import duckdb_rows
from tests.storage.stores import StoreAddress, address_on

#: The engine hands over a batch as in every suite of targets; what happens then is the database's.
pytestmark = pytest.mark.long_on_spark


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["duckdb"](request, tmp_path, scratch) as opened:
        yield opened


def sql(place: Place, statement: str) -> list[Any]:
    return duckdb_rows(Path(place.options["path"]), statement)


CHANGES = {
    "drop": SchemaChange("n", "dropped_column", types.INT32, None, "drop", "--full-refresh"),
    "widen": SchemaChange("n", "wider_type", types.INT32, types.INT64, "widen", "wider_type"),
    "retype": SchemaChange("n", "other_type", types.INT32, types.STRING, "retype", "--full-refresh"),
    "relax": SchemaChange("n", "nullable", types.INT32, types.INT32, "relax", "relax"),
    "add": SchemaChange("m", "new_column", None, types.DATE, "add", "new_column"),
}
BY_INDEX = ("in use by index i", "Drop index i, run, and recreate it")
ANEW = "Drop the table and run it with --full-refresh"


@pytest.mark.parametrize("action", CHANGES)
@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("", {}),
        ("ALTER TABLE t ALTER n SET NOT NULL; CREATE VIEW v AS SELECT * FROM t", {}),
        (
            "CREATE INDEX i ON t (id)",
            {"drop": BY_INDEX, "widen": BY_INDEX, "retype": BY_INDEX, "relax": BY_INDEX},
        ),
        (
            'CREATE INDEX "a b" ON t (n); CREATE UNIQUE INDEX i ON t (id)',
            dict.fromkeys(
                ("drop", "widen", "retype", "relax"),
                ("in use by index a b and index i", "Drop index a b and index i, run, and recreate them"),
            ),
        ),
        (
            "DROP TABLE t; CREATE TABLE t (id INT, n INT UNIQUE)",
            {
                "drop": ("DuckDB says: Cannot drop column ", ANEW),
                "widen": ("DuckDB says: Cannot change the type of a column that has a UNIQUE", ANEW),
                "retype": ("DuckDB says: Cannot change the type of a column that has a UNIQUE", ANEW),
            },
        ),
        (
            "DROP TABLE t; CREATE TABLE t (id INT, n INT, d INT AS (n * 2))",
            {
                "drop": ("DuckDB says: Cannot drop column: column is a dependency of 1 or more generated", ANEW),
                "widen": ("DuckDB says: ", ANEW),
                "retype": ("DuckDB says: ", ANEW),
            },
        ),
    ],
)
def test_what_duckdb_cannot_change_stops_the_plan(
    place: Place, made: str, refused: dict[str, tuple[str, str]], action: str
) -> None:
    """The plan stops exactly where DuckDB would."""
    path = Path(place.options["path"])
    sql(place, "CREATE TABLE t (id INT, n INT)")
    for statement in filter(None, made.split("; ")):
        sql(place, statement)
    info = describe(place.target, ObjectName(("t",)))
    (change,) = place.target.alter_statements(info, [CHANGES[action]])
    if action in refused:
        note, next_step = refused[action]
        assert (change.action, change.next_step, change.statement) == ("fail", next_step, "")
        assert change.note.startswith(note)
    else:
        assert (change.action, change.note) == (action, "")
    (stated,) = place.target.alter_statements(_without_schema(info), [CHANGES[action]])
    with duckdb.connect(path) as connection, pytest.raises(duckdb.Error) if action in refused else nullcontext():
        connection.execute(stated.statement)


def _without_schema(info: Any) -> Any:
    return replace(info, extra={})


@pytest.mark.parametrize("not_null", [False, True])
def test_a_type_is_replaced_with_the_content(writer: Writer, not_null: bool) -> None:
    writer.write([row(1, "a")], 1)
    if not_null:
        writer.place.execute("ALTER TABLE {table} ALTER name SET NOT NULL")
        writer.place.execute("ALTER TABLE {table} ALTER name SET DEFAULT 'x'")
    columns = (COLUMNS[0], Column("name", types.DATE), COLUMNS[2])
    asked = SchemaChange("name", "other_type", types.STRING, types.DATE, "retype", "--full-refresh")
    alter = writer.place.target.alter_statements(writer.info(), [asked])
    writer.write([{"id": 2, "name": None, "amount": None}], 2, "truncate", columns=columns, alter=alter, replace=True)
    assert writer.place.read(["id", "name"]) == [(2, None)]
    assert writer.info().columns[1].type == types.DATE


@pytest.mark.parametrize(
    ("columns", "filled"),
    [
        ("(id INTEGER PRIMARY KEY)", {}),
        (
            '(id INT, two INT AS (id * 2), "s,\'ix" BIGINT AS (id * 6) VIRTUAL)',
            {"two": "computed", "s,'ix": "computed"},
        ),
        (
            "(c TIMESTAMP DEFAULT current_timestamp, no INT DEFAULT NULL, id INT DEFAULT 0,"
            " s TEXT DEFAULT ' GENERATED ALWAYS AS')",
            {"c": "default", "id": "default", "s": "default"},
        ),
    ],
)
def test_columns_that_the_database_fills_are_described(place: Place, columns: str, filled: dict[str, str]) -> None:
    sql(place, f"CREATE TABLE made {columns}")
    info = describe(place.target, ObjectName(("made",)))
    assert place.target.filled_columns(info) == filled


def test_a_sequence_is_a_default(place: Place) -> None:
    sql(place, "CREATE SEQUENCE numbers")
    sql(place, "CREATE TABLE made (id INT DEFAULT nextval('numbers'))")
    info = describe(place.target, ObjectName(("made",)))
    assert place.target.filled_columns(info) == {"id": "default"}


@pytest.mark.parametrize("mode", ["truncate", "merge"])
def test_a_key_is_deleted_and_inserted_in_one_commit(writer: Writer, mode: Any) -> None:
    """DuckDB once checked a primary key against rows that the transaction had deleted."""
    writer.write(upserts(row(1), row(2)), 1, "merge")
    sql(writer.place, f'ALTER TABLE "{writer.place.object}" ADD PRIMARY KEY (id)')
    if mode == "merge":
        writer.write([*upserts(row(1, "b"), row(3)), gone(2)], 2, "merge")
    else:
        writer.write([row(1, "b"), row(3)], 2, "truncate")
    assert sorted(writer.place.read(["id", "name"])) == [(1, "b"), (3, "a")]
    writer.write(upserts(row(2)) if mode == "merge" else [row(2)], 3, mode)
    assert (2, "a") in writer.place.read(["id", "name"])


@pytest.mark.parametrize(
    "made",
    [
        "CREATE UNIQUE INDEX one ON {table} (name)",
        "CREATE UNIQUE INDEX one ON {table} (lower(name))",
        "ALTER TABLE {table} ADD PRIMARY KEY (name)",
    ],
)
def test_rows_that_exchange_unique_values(writer: Writer, made: str) -> None:
    writer.write(upserts(row(1, "a"), row(2, "b")), 1, "merge")
    writer.place.execute(made)
    writer.write(upserts(row(1, "b"), row(2, "a")), 2, "merge")
    assert sorted(writer.place.read(["id", "name"])) == [(1, "b"), (2, "a")]
    writer.write([*upserts(row(2, "c"), row(3, "a"), row(4, "b")), gone(1)], 3, "merge")
    assert sorted(writer.place.read(["id", "name"])) == [(2, "c"), (3, "a"), (4, "b")]
    writer.write([row(5, "a")], 4, "truncate")
    assert writer.place.read(["id", "name"]) == [(5, "a")]


@pytest.mark.parametrize(
    ("made", "name", "removal"),
    [
        ('CREATE UNIQUE INDEX "o ne" ON {table} (name)', "o ne,", 'DROP INDEX "o ne"'),
        ("CREATE UNIQUE INDEX one ON {table} (amount, name)", "one,", 'DROP INDEX "one"'),
        ('CREATE UNIQUE INDEX one ON {table} (lower("name"), amount)', "one,", 'DROP INDEX "one"'),
        ("ALTER TABLE {table} ADD PRIMARY KEY (name)", "PRIMARY KEY (name),", ""),
    ],
)
def test_a_unique_constraint_that_refuses_a_row_is_named(writer: Writer, made: str, name: str, removal: str) -> None:
    rows = [{**row(1, "a: 1, b"), "amount": Exact(1)}, {**row(2, "a: 1, b"), "amount": Exact(1)}]
    writer.write([rows[0]], 1)
    writer.place.execute(made)
    with pytest.raises(
        TableError, match=f"has a unique constraint, {name}".replace("(", r"\(").replace(")", r"\)")
    ) as error:
        writer.write([rows[1]], 2)
    assert removal in error.value.hint or "write to a table without it" in error.value.hint
    assert writer.committed().seq == 1
    if removal:
        writer.place.execute(removal)
        writer.write([rows[1]], 2)


def test_a_file_stays_the_same_target_when_it_is_moved(writer: Writer) -> None:
    target, object = writer.place.target, writer.place.object
    before = writer.write([row(1)], 1).target_id
    path = Path(writer.place.options["path"])
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)
    assert describe(target, object).identity == before
    assert writer.write([row(2)], 2).target_id == before


def test_another_file_in_its_place_is_another_target(writer: Writer) -> None:
    writer.write([row(1)], 1)
    job = writer.job(2, "append")
    path = Path(writer.place.options["path"])
    path.rename(path.with_suffix(".old"))
    with pytest.raises(StateConflict, match="was replaced since this sequence number was begun"):
        writer.place.target.write(writer.spark, writer.batch([row(2)], COLUMNS), job)


def test_a_table_of_a_new_schema(writer: Writer) -> None:
    place = writer.place
    nested = Writer(writer.spark, replace(place, object=ObjectName(("Sa les", "orders"))))
    nested.write([row(1)], 1)
    nested.write(upserts(row(1, "b")), 2, "merge")
    assert sql(place, 'SELECT id, name FROM "Sa les".orders') == [(1, "b")]
    assert nested.info().identity.endswith("/Sa les.orders/intent-1")
    assert place.target.places([ObjectName(("main", "X")), ObjectName(("x",))]).keys() == {
        ObjectName(("main", "X")),
        ObjectName(("x",)),
    }
    assert len(set(place.target.places([ObjectName(("main", "X")), ObjectName(("x",))]).values())) == 1


def test_a_view_is_no_target(writer: Writer) -> None:
    writer.write([row(1)], 1)
    sql(writer.place, f'CREATE VIEW seen AS SELECT * FROM "{writer.place.object}"')
    info = describe(writer.place.target, ObjectName(("seen",)))
    refused = writer.place.target.refuse_write(info, "append", replaces=False)
    assert refused is not None and "seen is a view" in refused.message


NESTED = (
    Column("id", types.INT8),
    Column("nested", Array(Array(Decimal(4, 1)))),
    Column("parts", Array(Struct((("at", types.TIMESTAMP), ("n", Struct((("x", types.INT16),))))))),
)


@pytest.mark.parametrize("in_memory", [False, True])
def test_nested_types_are_duckdbs_own(writer: Writer, in_memory: bool) -> None:
    at = dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)
    rows = [
        {"id": 1, "nested": [[Exact("1.5"), None], [], None], "parts": [{"at": at, "n": {"x": 7}}, None]},
        {"id": 2, "nested": None, "parts": [{"at": None, "n": None}]},
    ]
    writer.write(rows, 1, columns=NESTED, in_memory=in_memory)
    assert [column.type for column in writer.info().columns] == [column.type for column in NESTED]
    kinds = 'STRUCT("at" TIMESTAMP WITH TIME ZONE, n STRUCT(x SMALLINT))[]'
    assert sql(writer.place, f'SELECT DISTINCT typeof(parts) FROM "{writer.place.object}"') == [(kinds,)]
    found = sorted(writer.place.target.scan(writer.spark, writer.place.object, NESTED).collect())
    assert found == sorted(writer.frame(rows, NESTED).collect())


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_no_statement_compares_all_pairs_of_rows(writer: Writer, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 changed rows of two million took 40 s."""
    plans: dict[str, str] = {}
    fetch = DuckdbSession.fetch

    def explained(session: DuckdbSession, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if " JOIN " in statement or " FROM _flowctl_difference" in statement:
            plans[statement] = str(session.connection.execute(f"EXPLAIN {statement}").fetchall()[0][1])
        return fetch(session, statement, parameters)

    def rows(since: int, name: str) -> list[dict[str, Any]]:
        if mode == "merge":
            return upserts(*(row(id, name) for id in range(since, since + 100)))
        return [{**seen(name, 1 + since // 50), "id": id} for id in range(since, since + 100)]

    columns = COLUMNS if mode == "merge" else HISTORY
    writer.write(rows(1, "a"), 1, mode, columns=columns)
    monkeypatch.setattr(DuckdbSession, "fetch", explained)
    writer.write(rows(51, "b"), 2, mode, columns=columns)
    assert len(plans) >= 2
    joins = {statement: set(re.findall("[A-Z_]+JOIN|CROSS_PRODUCT", plan)) for statement, plan in plans.items()}
    assert set().union(*joins.values()) == {"HASH_JOIN"}, joins


@pytest.fixture(params=["memory", "disk", pytest.param("s3", marks=pytest.mark.server)])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    match request.param:
        case "memory":
            return StoreAddress("memory://buffer/of [duckdb]*")
        case "disk":
            return StoreAddress(str(tmp_path / "st[a]te* of?"))
        case _:
            return address_on(request.getfixturevalue("moto"))


def test_segments_are_read_where_they_are(writer: Writer, tmp_path: Path, elsewhere: StoreAddress) -> None:
    """In a store, through the buffer's own file system, and under a path that looks like a pattern. Twice, as the
    instance of a file is shared."""
    held = writer.batch([row(1), row(2)], COLUMNS, in_memory=True)
    assert isinstance(held, InMemory)
    with Buffer(elsewhere.url, "run-1", elsewhere.storage) as buffer:
        target = DuckdbTarget(tmp_path / "x[1]*.duckdb", OpenContext(buffer=buffer), CAPABILITIES)
        folder = buffer.folder("rows")
        put(folder, held.rows)
        put(folder, held.rows)
        rows = HandedRows(OnEngine(writer.frame([], COLUMNS), folder), COLUMNS, writer.job(1, "append"))
        with target.writing_session() as session:
            for _ in range(2):
                staged = target.load(session, rows)
                assert staged.rows == 4
                assert session.fetch(f"SELECT sum(id) FROM {staged.table[0]}") == [(6,)]
    assert (tmp_path / "x[1]*.duckdb").exists()
