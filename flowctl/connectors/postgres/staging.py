"""Staging tables: the copied rows of a batch, until one transaction consumes them.

Rows are copied exactly, or refused with the column's name. Texts are always quoted, so no row can be the two characters
that end a COPY. A retried task copies its rows again: only the attempt that Spark counts is accepted, identified by its
transaction.

Each attempt has its own table, named by table, fence and intent: a stale writer of an older attempt fills another one.
A table whose owner died is dropped by the next fence. It is UNLOGGED (a server crash empties it, which the row counts
reveal), unless it is to become the target itself: the rows of a new table are then written once only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres import types as native
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.modifiers import CONSTRAINT, Modified, modified_columns
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.stage_names import is_leftover, new_stage_name, stage_family
from flowctl.connectors.target import WriteJob
from flowctl.connectors.undecoded import Part, SentColumn, UndecodedRows
from flowctl.engine.spark_types import named
from flowctl.errors import FlowctlError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import Array, DataType, Struct

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

#: Parts that are copied at once, each over two connections.
COPIES_AT_ONCE = 4
_REPORT = "transaction BIGINT, rows BIGINT"


def stage_table(
    client: Client, schema: str, job: WriteJob, columns: Sequence[Column], there: TableInfo | None
) -> AbstractContextManager[tuple[str, str]]:
    """A new staging table (schema, name) for ``columns``, dropped at the end; first drops leftovers of older fences."""
    modified: Mapping[str, Modified] = {}
    if there is not None:
        with client.connect() as connection:
            modified = modified_columns(connection, there, [column.name for column in columns])
    listed = [_column(number, column, there, modified) for number, column in enumerate(columns)]
    return _made(client, schema, job, "UNLOGGED TABLE", ", ".join(listed))


def future_table(client: Client, schema: str, job: WriteJob) -> AbstractContextManager[tuple[str, str]]:
    """As :func:`stage_table`, but for a table that :func:`become` turns into the job's target: logged, with all of its
    columns."""
    return _made(client, schema, job, "TABLE", POSTGRES.listed(job.columns))


def undecoded_stage(
    client: Client, schema: str, job: WriteJob, columns: Sequence[SentColumn], constants: Iterable[str]
) -> AbstractContextManager[tuple[str, str]]:
    """As :func:`stage_table`, for columns of a source of the same kind, and for texts."""
    sent = [Column(one.name, one.source.type, native=one.source.portable) for one in columns]
    listed = POSTGRES.listed([*sent, *(Column(name, types.STRING) for name in constants)])
    return _made(client, schema, job, "UNLOGGED TABLE", listed)


@contextmanager
def _made(client: Client, schema: str, job: WriteJob, kind: str, listed: str) -> Iterator[tuple[str, str]]:
    name = new_stage_name(job)
    with client.connect() as connection:
        for leftover in _leftovers(connection, schema, job):
            _drop(connection, schema, leftover)
        connection.execute(f"CREATE {kind} {POSTGRES.table((schema, name))} ({listed})")
    try:
        yield schema, name
    finally:
        with contextlib.suppress(FlowctlError), client.connect() as connection:  # else the next fence drops it
            _drop(connection, schema, name)


@dataclass(frozen=True)
class Accepted:
    """One part of the frame: the transaction (32 bits, as in ``xmin``) of the attempt that counts, and the number of
    rows that it copied and committed."""

    transaction: int
    rows: int


def copy_frame(
    frame: DataFrame, columns: Sequence[Column], conninfo: str, stage: str, natives: Mapping[str, str]
) -> list[Accepted]:
    """Copies ``frame`` into the table ``stage`` (SQL name); ``natives`` are the types of the existing target, for
    errors."""
    from pyspark import cloudpickle

    from flowctl.connectors.postgres import executors

    cloudpickle.register_pickle_by_value(executors)
    writer = executors.PartWriter(conninfo, stage, _typed(columns, natives), timeouts.EXECUTOR_SILENCE)
    return _accepted(row.asDict() for row in copyable(frame, columns).mapInArrow(writer.copy, _REPORT).collect())


def copy_rows(
    rows: pa.Table,
    columns: Sequence[Column],
    connection: psycopg.Connection[Any],
    stage: str,
    natives: Mapping[str, str],
) -> list[Accepted]:
    """As :func:`copy_frame`, for rows of this process in the form of :func:`copyable`, over ``connection`` (in
    autocommit mode): executors would first have to start Python."""
    from flowctl.connectors.postgres.executors import PartWriter

    writer = PartWriter("", stage, _typed(columns, natives), timeouts.EXECUTOR_SILENCE, opened=connection)
    return _accepted(row for batch in writer.copy(iter(rows.to_batches())) for row in batch.to_pylist())


def copy_undecoded(
    rows: UndecodedRows, client: Client, stage: tuple[str, str], constants: Mapping[str, str]
) -> list[Accepted]:
    """Passes the parts of ``rows`` on, each over two connections and in a transaction of its own."""
    names = POSTGRES.named([*(column.name for column in rows.columns), *constants])
    statement = f"COPY {POSTGRES.table(stage)} ({names}) FROM STDIN (FORMAT binary)"

    def copied(part: Part) -> Accepted:
        with client.connect() as connection, connection.transaction():
            connection.execute("SET LOCAL client_encoding = 'UTF8'")
            transaction = _transaction(connection)
            cursor = connection.cursor()
            with part() as pieces, cursor.copy(statement.encode()) as copy:
                for piece in pieces:
                    copy.write(piece)
            return Accepted(transaction, cursor.rowcount)

    parts = rows.parts(constants)
    with ThreadPoolExecutor(min(len(parts), COPIES_AT_ONCE), thread_name_prefix="copying") as pool:
        return [report for report in pool.map(copied, parts) if report.rows]


def insert_inside(
    rows: UndecodedRows, client: Client, stage: tuple[str, str], constants: Mapping[str, str]
) -> list[Accepted]:
    """As :func:`copy_undecoded`, from the same database: in one statement."""
    names = POSTGRES.named([*(column.name for column in rows.columns), *constants])
    source = rows.inside(constants)
    with client.connect() as connection:
        connection.execute("SET client_encoding = 'UTF8'")
        connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; {source.moment}".encode())
        transaction = _transaction(connection)
        inserted = connection.execute(f"INSERT INTO {POSTGRES.table(stage)} ({names}) {source.query}".encode())
        connection.execute("COMMIT")
        return [Accepted(transaction, inserted.rowcount)] if inserted.rowcount else []


def _transaction(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT txid_current() & 4294967295").fetchone()
    assert row is not None
    return int(row[0])


def _typed(columns: Sequence[Column], natives: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(column.name, natives.get(column.name, "its type")) for column in columns]


def _accepted(reports: Iterable[Mapping[str, Any]]) -> list[Accepted]:
    return [Accepted(report["transaction"], report["rows"]) for report in reports if report["rows"]]


def is_copied_as_it_is(column: Column) -> bool:
    """Whether Arrow writes the column's values to CSV as PostgreSQL reads them."""
    return column.type != types.BINARY and not isinstance(column.type, Array | Struct)


def copyable(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Types that Arrow writes to CSV as PostgreSQL reads them; values of other types as the text of a literal. Columns
    are named by position: mapInArrow takes a dot in a name for a field of a struct."""

    def numbered(at: int, column: Column) -> SparkColumn:
        value = named(column.name).cast(types.spark_ddl(column.type))
        return _text(value, column.type).alias(f"c{at}")

    return frame.select(*[numbered(at, column) for at, column in enumerate(columns)])


def _text(value: SparkColumn, kind: DataType) -> SparkColumn:
    from pyspark.sql import functions as f

    match kind:
        case types.BINARY:
            return f.concat(f.lit("\\x"), f.hex(value))
        case Array(Array() | Struct()) | Struct():
            return f.to_json(value)
        case Array(item):
            elements = f.transform(value, lambda each: f.coalesce(_element(each, item), f.lit("NULL")))
            return f.concat(f.lit("{"), f.array_join(elements, ","), f.lit("}"))
        case _:
            return value


def _element(value: SparkColumn, kind: DataType) -> SparkColumn:
    """One element of an array literal, quoted; sessions run in UTC, so a zoned timestamp's text is in UTC."""
    from pyspark.sql import functions as f

    text = _text(value, kind).cast("string")
    if kind == types.TIMESTAMP:
        text = f.concat(text, f.lit("Z"))
    escaped = f.replace(f.replace(text, f.lit("\\"), f.lit("\\\\")), f.lit('"'), f.lit('\\"'))
    return f.concat(f.lit('"'), escaped, f.lit('"'))


def accept(
    connection: psycopg.Connection[Any], stage: tuple[str, str], accepted: Sequence[Accepted], lock: str = "SHARE"
) -> int:
    """Keeps only the attempts that Spark counted in ``stage`` and returns the number of rows. From here on other
    attempts wait for the ``lock``, so a late one adds no rows; those still copying are terminated, as their executor
    may be suspended. Raises :class:`TransientError` if a part lacks rows that its task reported."""
    table = POSTGRES.table(stage)
    _lock_alone(connection, table, lock)
    counted = connection.execute(f"SELECT xmin::text, count(*) FROM {table} GROUP BY xmin")
    found = {int(transaction): rows for transaction, rows in counted.fetchall()}
    wanted = {report.transaction: report.rows for report in accepted}
    if any(found.get(transaction) != rows for transaction, rows in wanted.items()):
        raise TransientError(
            f"staged rows are missing from {table}: was the server restarted?", hint="Wait: the batch is staged again"
        )
    for transaction in found.keys() - wanted.keys():
        connection.execute(f"DELETE FROM {table} WHERE xmin = %s::text::xid", [str(transaction)])
    connection.execute(f"ANALYZE {table}")
    return sum(wanted.values())


def _lock_alone(connection: psycopg.Connection[Any], table: str, lock: str) -> None:
    import psycopg

    _end_writers(connection, table)
    (before,) = connection.execute("SHOW lock_timeout").fetchone() or ("0",)
    connection.execute(f"SET LOCAL lock_timeout = '{timeouts.milliseconds(timeouts.STAGE_LOCK)}'")
    try:
        connection.execute(f"LOCK TABLE {table} IN {lock} MODE")
    except psycopg.errors.LockNotAvailable as error:
        raise TransientError(
            f"waited {timeouts.STAGE_LOCK:.0f} s for {table}, which holds this run's rows: another session locked it",
            hint="Find the session that uses this table (pg_locks); the batch is staged again",
        ) from error
    connection.execute(f"SET LOCAL lock_timeout = '{before}'")


def _end_writers(connection: psycopg.Connection[Any], table: str) -> None:
    """Terminates the sessions that have written to a staging table and not committed: attempts that count have."""
    connection.execute(_END_WRITERS, [table])


_END_WRITERS = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = to_regclass(%s) AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.pid <> pg_backend_pid() AND a.usename = current_user
"""


def become(connection: psycopg.Connection[Any], stage: tuple[str, str], object: ObjectName) -> None:
    """Renames the staging table to the target, in the same schema."""
    connection.execute(f"ALTER TABLE {POSTGRES.table(stage)} RENAME TO {POSTGRES.quoted(object.parts[-1])}")


def _column(number: int, column: Column, there: TableInfo | None, modified: Mapping[str, Modified]) -> str:
    """Uses the target's own type if the column already exists with the type to write: a ``uuid`` then refuses invalid
    values while rows are copied, with an error that names the column. See :mod:`.modifiers` for types that do not."""
    now, name = there.column(column.name) if there else None, POSTGRES.quoted(column.name)
    if now is None:
        return f"{name} {POSTGRES.type_of(column)}"
    if not now.native or now.type != column.type:
        return f"{name} {native.ddl(column.type)}"
    if one := modified.get(column.name):
        return f"{name} {one.base} CONSTRAINT {CONSTRAINT}{number} CHECK ({one.test})"
    return f"{name} {now.native}"


def _leftovers(connection: psycopg.Connection[Any], schema: str, job: WriteJob) -> list[str]:
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace"
        " WHERE s.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s)",
        [schema, stage_family(job)],
    ).fetchall()
    return [name for (name,) in rows if is_leftover(name, job)]


def _drop(connection: psycopg.Connection[Any], schema: str, name: str) -> None:
    """Any session still copying into the table is a stale writer. If the table stays locked, a later fence drops it."""
    import psycopg

    _end_writers(connection, POSTGRES.table((schema, name)))
    connection.execute(f"SET lock_timeout = '{timeouts.milliseconds(timeouts.LEFTOVER_LOCK)}'")
    with contextlib.suppress(psycopg.errors.LockNotAvailable):
        connection.execute(f"DROP TABLE IF EXISTS {POSTGRES.table((schema, name))}")
    connection.execute("RESET lock_timeout")
