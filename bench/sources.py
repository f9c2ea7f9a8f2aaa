"""The data: TPC-H by ``tpchgen-cli``, generated once and kept in ``bench/data``, and the sources loaded from it."""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from bench.case import World

_KEPT = Path(__file__).parent / "data"

#: DuckDB's types by column.
LINEITEM_TYPES: Mapping[str, str] = {
    "l_orderkey": "BIGINT",
    "l_partkey": "BIGINT",
    "l_suppkey": "BIGINT",
    "l_linenumber": "INTEGER",
    "l_quantity": "DECIMAL(15,2)",
    "l_extendedprice": "DECIMAL(15,2)",
    "l_discount": "DECIMAL(15,2)",
    "l_tax": "DECIMAL(15,2)",
    "l_returnflag": "VARCHAR",
    "l_linestatus": "VARCHAR",
    "l_shipdate": "DATE",
    "l_commitdate": "DATE",
    "l_receiptdate": "DATE",
    "l_shipinstruct": "VARCHAR",
    "l_shipmode": "VARCHAR",
    "l_comment": "VARCHAR",
}


def spark_type(duckdb: str) -> str:
    """The type's name in Spark and flowctl."""
    return {"VARCHAR": "string", "INTEGER": "int"}.get(duckdb, duckdb.lower())


def _columns(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {_postgres_type(kind)} NOT NULL" for name, kind in types.items())


def _postgres_type(duckdb: str) -> str:
    return {"VARCHAR": "text", "INTEGER": "int"}.get(duckdb, duckdb.lower())


LINEITEM = f"CREATE TABLE lineitem ({_columns(LINEITEM_TYPES)})"

_ORDERS = """
    CREATE TABLE orders (
        o_orderkey bigint PRIMARY KEY, o_custkey bigint NOT NULL, o_orderstatus text NOT NULL,
        o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority text NOT NULL,
        o_clerk text NOT NULL, o_shippriority int NOT NULL, o_comment text NOT NULL, updated_at timestamp NOT NULL)
"""
_FILL_ORDERS = "INSERT INTO orders SELECT *, o_orderdate + (o_orderkey % 86400) * interval '1 second' FROM loaded"
#: ``updated_at`` of changed rows is later than this, that of all others earlier.
CHANGED_SINCE = "2024-01-01 00:00:00"


def generated(scale: float, table: str, form: str = "csv") -> Path:
    """One table as one file, generated if it does not exist."""
    folder = _KEPT / f"sf{scale:g}"
    file = folder / f"{table}.{form}"
    if not file.exists():
        half = folder / "half"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        tool = str(Path(sys.executable).with_name("tpchgen-cli"))
        options = [form, "-s", f"{scale:g}", f"--tables={table}", f"--output-dir={half}"]
        subprocess.run([tool, *options], check=True, stdout=subprocess.DEVNULL)
        made = half / file.name
        (_plain_strings(made) if form == "parquet" else made).rename(file)
        shutil.rmtree(half)
    return file


def _plain_strings(file: Path) -> Path:
    """The generator's files declare text as Arrow string views, which not every peer can read, and number their fields;
    dlt passes the numbers on to the Delta table, where DuckDB takes them for column mapping."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    copy = file.with_suffix(".plain")
    with pq.ParquetFile(file) as made:
        kinds = [pa.string() if each.type == pa.string_view() else each.type for each in made.schema_arrow]
        schema = pa.schema(list(zip(made.schema_arrow.names, kinds, strict=True)))
        with pq.ParquetWriter(copy, schema, compression="snappy") as writer:
            for batch in made.iter_batches(1 << 20):
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    return copy


def lineitem(world: World) -> int:
    """Loads and analyses ``lineitem`` in PostgreSQL; returns its row count."""
    with psycopg.connect(world.postgres, autocommit=True) as connection:
        connection.execute(LINEITEM)
        _copy(connection, "lineitem", generated(world.scale, "lineitem"))
        connection.execute("VACUUM ANALYZE lineitem")
        return _count(connection, "lineitem")


def lineitem_in_mysql(world: World) -> int:
    """Loads and analyses ``lineitem`` in MySQL, with TPC-H's primary key; returns its row count."""
    import pymysql

    parts = urlsplit(world.mysql)
    names = {"VARCHAR": "varchar(64)"}
    columns = ", ".join(f"{name} {names.get(kind, kind)} NOT NULL" for name, kind in LINEITEM_TYPES.items())
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=os.environ["BENCH_MYSQL_PASSWORD"],
        database=parts.path[1:],
        local_infile=True,
        autocommit=True,
    )
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE lineitem ({columns}, PRIMARY KEY (l_orderkey, l_linenumber))")
        form = "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' IGNORE 1 LINES"
        cursor.execute(f"LOAD DATA LOCAL INFILE '{generated(world.scale, 'lineitem')}' INTO TABLE lineitem {form}")
        cursor.execute("ANALYZE TABLE lineitem")
        cursor.execute("SELECT count(*) FROM lineitem")
        [count] = cursor.fetchone()
        return int(count)


def lineitem_in_delta(world: World, folder: Path) -> int:
    """Writes ``lineitem`` as a Delta table by ``deltalake``; returns its row count."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake

    with pq.ParquetFile(generated(world.scale, "lineitem", "parquet")) as file:
        write_deltalake(folder, pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(1 << 17)))
        assert DeltaTable(folder).count() == file.metadata.num_rows
        return int(file.metadata.num_rows)


def put(world: World, file: Path, bucket: str) -> int:
    """Puts a CSV file into a bucket, under its own name; returns its row count."""
    import boto3

    boto3.client("s3", endpoint_url=world.s3, region_name="us-east-1").upload_file(str(file), bucket, file.name)
    with file.open("rb") as lines:
        return sum(1 for _ in lines) - 1


def orders(world: World) -> int:
    """Loads ``orders`` into PostgreSQL, with a primary key and an indexed ``updated_at``; returns its row count."""
    with psycopg.connect(world.postgres, autocommit=True) as connection:
        connection.execute(_ORDERS)
        connection.execute("CREATE TABLE loaded AS SELECT * FROM orders")
        connection.execute("ALTER TABLE loaded DROP COLUMN updated_at")
        _copy(connection, "loaded", generated(world.scale, "orders"))
        connection.execute(_FILL_ORDERS)
        connection.execute("DROP TABLE loaded")
        connection.execute("CREATE INDEX ON orders (updated_at)")
        connection.execute("VACUUM ANALYZE orders")
        return _count(connection, "orders")


def every(step: int) -> str:
    """A query for the keys of every ``step``-th order: changes are spread evenly over the table."""
    numbered = "SELECT o_orderkey, row_number() OVER (ORDER BY o_orderkey) AS n FROM orders"
    return f"SELECT o_orderkey FROM ({numbered}) AS numbered WHERE n % {step} = 0"


def update_orders(world: World, step: int, also: str = "") -> None:
    """Changes the price of every ``step``-th order, in one transaction with the statement ``also``."""
    moment = f"timestamp '{CHANGED_SINCE}' + (o_orderkey % 86400 + 1) * interval '1 second'"
    with psycopg.connect(world.postgres) as connection:
        if also:
            connection.execute(also.encode())
        change = f"o_totalprice = o_totalprice + 1, updated_at = {moment}"
        connection.execute(f"UPDATE orders SET {change} WHERE o_orderkey IN ({every(step)})".encode())
    _settle(world)


def delete_orders(world: World, step: int) -> None:
    with psycopg.connect(world.postgres) as connection:
        connection.execute(f"DELETE FROM orders WHERE o_orderkey IN ({every(step)})".encode())
    _settle(world)


def small_tables(world: World, schema: str, count: int, rows: int) -> None:
    """Creates ``t_000`` and so on, with a key, a cursor and two more columns."""
    with psycopg.connect(world.postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        for number in range(count):
            name = f"{schema}.{small_table(number)}"
            connection.execute(
                f"CREATE TABLE {name} (id bigint PRIMARY KEY, amount numeric(12,2) NOT NULL, note text,"
                " updated_at timestamp NOT NULL)"
            )
            connection.execute(
                f"INSERT INTO {name} SELECT n, n + {number} / 100.0, 'row ' || n,"
                f" timestamp '2026-01-01' + n * interval '1 minute' FROM generate_series(1, {rows}) AS n"
            )
        connection.execute("VACUUM ANALYZE")


def small_table(number: int) -> str:
    return f"t_{number:03}"


def sqlite_lineitem(scale: float) -> Path:
    """``lineitem`` in an SQLite file; its decimals become binary floats there."""
    file = _KEPT / f"sf{scale:g}" / "lineitem.sqlite"
    if file.exists():
        return file
    half = generated(scale, "lineitem").with_name("half.sqlite")
    half.unlink(missing_ok=True)
    types = {name: _sqlite_type(kind) for name, kind in LINEITEM_TYPES.items()}
    with closing(sqlite3.connect(half)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute(
            f"CREATE TABLE lineitem ({', '.join(f'{name} {kind} NOT NULL' for name, kind in types.items())})"
        )
        marks = ", ".join("?" * len(types))
        database.executemany(f"INSERT INTO lineitem VALUES ({marks})", _rows(generated(scale, "lineitem")))
        database.commit()
    half.rename(file)
    return file


def _sqlite_type(duckdb: str) -> str:
    return {"VARCHAR": "TEXT", "INTEGER": "INTEGER"}.get(duckdb, duckdb)


def _rows(file: Path) -> Iterator[list[str]]:
    with file.open(newline="") as lines:
        reader = csv.reader(lines)
        next(reader)
        yield from reader


def _copy(connection: psycopg.Connection[tuple[object, ...]], table: str, file: Path) -> None:
    statement = f"COPY {table} FROM STDIN (FORMAT csv, HEADER)"
    with file.open("rb") as source, connection.cursor().copy(statement.encode()) as copy:
        while block := source.read(1 << 20):
            copy.write(block)


def _count(connection: psycopg.Connection[tuple[object, ...]], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(str(row[0]))


def _settle(world: World) -> None:
    with psycopg.connect(world.postgres, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE orders")
