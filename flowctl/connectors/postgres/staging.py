"""Staging tables: what was copied of a batch, until one transaction takes it.

Rows are copied exactly, or refused by the column's name. Texts are always quoted, so no row can be the two characters
that end a COPY. A task that is tried again copies its rows a second time: only the attempt that Spark counts is
accepted, by its transaction.

There is one table for each try, named by table, fence and intent: a stale writer of an older try fills another one.
What died with its owner is dropped by the next fence. It is UNLOGGED (a server that crashes empties it, and the counts
then say so), except where it is to become the target itself: a new table is written once, not a second time out of the
first.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres import types as native
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.modifiers import CONSTRAINT, Modified, modified_columns
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.sql import timeouts
from flowctl.connectors.target import WriteJob
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

_PREFIX = "_flowctl_stage_"
_REPORT = "transaction BIGINT, rows BIGINT"


def stage_table(
    client: Client, schema: str, job: WriteJob, columns: Sequence[Column], there: TableInfo | None
) -> AbstractContextManager[tuple[str, str]]:
    """A new staging table (schema, name) for ``columns``, dropped at the end; leftovers of older fences go first."""
    modified: Mapping[str, Modified] = {}
    if there is not None:
        with client.connect() as connection:
            modified = modified_columns(connection, there, [column.name for column in columns])
    listed = [_column(number, column, there, modified) for number, column in enumerate(columns)]
    return _made(client, schema, job, "UNLOGGED TABLE", ", ".join(listed))


def future_table(client: Client, schema: str, job: WriteJob) -> AbstractContextManager[tuple[str, str]]:
    """As :func:`stage_table`, but what :func:`become` makes the job's target of: all of its columns, and logged."""
    return _made(client, schema, job, "TABLE", POSTGRES.listed(job.columns))


@contextmanager
def _made(client: Client, schema: str, job: WriteJob, kind: str, listed: str) -> Iterator[tuple[str, str]]:
    family = _family(job)
    name = f"{family}{job.fence}_{_hash(job.record.intent_id)[:8]}{secrets.token_hex(2)}"
    with client.connect() as connection:
        for leftover in _leftovers(connection, schema, family, job.fence):
            _drop(connection, schema, leftover)
        connection.execute(f"CREATE {kind} {POSTGRES.table((schema, name))} ({listed})")
    try:
        yield schema, name
    finally:
        with contextlib.suppress(FlowctlError), client.connect() as connection:  # else the next fence drops it
            _drop(connection, schema, name)


@dataclass(frozen=True)
class Accepted:
    """One part of the frame: the transaction (32 bits, as in ``xmin``) of the attempt that counts, and how many rows it
    has copied and committed."""

    transaction: int
    rows: int


def copy_frame(
    frame: DataFrame, columns: Sequence[Column], conninfo: str, stage: str, natives: Mapping[str, str]
) -> list[Accepted]:
    """Copies ``frame`` into the table ``stage`` (SQL name); ``natives`` are types that the target has already, for
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
    """The same for rows of this process, as :func:`copyable` makes them, over ``connection`` (in autocommit mode):
    executors would first start Python."""
    from flowctl.connectors.postgres.executors import PartWriter

    writer = PartWriter("", stage, _typed(columns, natives), timeouts.EXECUTOR_SILENCE, opened=connection)
    return _accepted(row for batch in writer.copy(iter(rows.to_batches())) for row in batch.to_pylist())


def _typed(columns: Sequence[Column], natives: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(column.name, natives.get(column.name, "its type")) for column in columns]


def _accepted(reports: Iterable[Mapping[str, Any]]) -> list[Accepted]:
    return [Accepted(report["transaction"], report["rows"]) for report in reports if report["rows"]]


def is_copied_as_it_is(column: Column) -> bool:
    """Whether Arrow writes its values into CSV as PostgreSQL reads them."""
    return column.type != types.BINARY and not isinstance(column.type, Array | Struct)


def copyable(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Types that Arrow writes into CSV as PostgreSQL reads them; the others as the text of a literal. Columns are known
    by their place: mapInArrow takes a dot in a name for a field of a struct."""

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
    """One element of an array literal, quoted; sessions run in UTC, so that is what a zoned timestamp's text is in."""
    from pyspark.sql import functions as f

    text = _text(value, kind).cast("string")
    if kind == types.TIMESTAMP:
        text = f.concat(text, f.lit("Z"))
    escaped = f.replace(f.replace(text, f.lit("\\"), f.lit("\\\\")), f.lit('"'), f.lit('\\"'))
    return f.concat(f.lit('"'), escaped, f.lit('"'))


def accept(
    connection: psycopg.Connection[Any], stage: tuple[str, str], accepted: Sequence[Accepted], lock: str = "SHARE"
) -> int:
    """Leaves only the attempts that Spark counted in ``stage`` and returns the number of rows; others wait for the
    ``lock`` from here on, so an attempt that comes late is not among the rows, and those that still copy are ended:
    their executor may be suspended. :class:`TransientError` when a part has not the rows that its task has reported."""
    table = POSTGRES.table(stage)
    _lock_alone(connection, table, lock)
    counted = connection.execute(f"SELECT xmin::text, count(*) FROM {table} GROUP BY xmin")
    found = {int(transaction): rows for transaction, rows in counted.fetchall()}
    wanted = {report.transaction: report.rows for report in accepted}
    if any(found.get(transaction) != rows for transaction, rows in wanted.items()):
        raise TransientError(
            f"staged rows are gone from {table}: has the server been restarted?", hint="Wait: the batch is staged again"
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
            f"waited {timeouts.STAGE_LOCK:.0f} s for {table}, which holds this run's rows: somebody else has locked it",
            hint="Look for who uses that table (pg_locks); the batch is staged again",
        ) from error
    connection.execute(f"SET LOCAL lock_timeout = '{before}'")


def _end_writers(connection: psycopg.Connection[Any], table: str) -> None:
    """Ends the sessions that have written to a staging table and not committed: attempts that count have."""
    connection.execute(_END_WRITERS, [table])


_END_WRITERS = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = to_regclass(%s) AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.pid <> pg_backend_pid() AND a.usename = current_user
"""


def become(connection: psycopg.Connection[Any], stage: tuple[str, str], object: ObjectName) -> None:
    """The staging table gets the target's name, in the same schema."""
    connection.execute(f"ALTER TABLE {POSTGRES.table(stage)} RENAME TO {POSTGRES.quoted(object.parts[-1])}")


def _column(number: int, column: Column, there: TableInfo | None, modified: Mapping[str, Modified]) -> str:
    """The target's own type where the column is there already with the type to write: a ``uuid`` then refuses what it
    cannot hold while rows are copied, which names the column. See :mod:`.modifiers` for what would not refuse."""
    now, name = there.column(column.name) if there else None, POSTGRES.quoted(column.name)
    if now is None or not now.native or now.type != column.type:
        return f"{name} {native.ddl(column.type)}"
    if one := modified.get(column.name):
        return f"{name} {one.base} CONSTRAINT {CONSTRAINT}{number} CHECK ({one.test})"
    return f"{name} {now.native}"


def _leftovers(connection: psycopg.Connection[Any], schema: str, family: str, fence: int) -> list[str]:
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace"
        " WHERE s.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s)",
        [schema, family],
    ).fetchall()
    return [name for (name,) in rows if int(name.removeprefix(family).partition("_")[0]) < fence]


def _drop(connection: psycopg.Connection[Any], schema: str, name: str) -> None:
    """Whoever is still copying into it is a stale writer. If somebody keeps it all the same, it stays for a later
    fence."""
    import psycopg

    _end_writers(connection, POSTGRES.table((schema, name)))
    connection.execute(f"SET lock_timeout = '{timeouts.milliseconds(timeouts.LEFTOVER_LOCK)}'")
    with contextlib.suppress(psycopg.errors.LockNotAvailable):
        connection.execute(f"DROP TABLE IF EXISTS {POSTGRES.table((schema, name))}")
    connection.execute("RESET lock_timeout")


def _family(job: WriteJob) -> str:
    return f"{_PREFIX}{_hash(f'{job.record.lineage}/{job.record.table}')[:12]}_"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
