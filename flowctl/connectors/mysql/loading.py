"""Staging tables, and how rows get into one: as a file that the server asks for (LOAD DATA LOCAL), or in multi-row
INSERTs where the server takes no files.

Each attempt has its own table, named by table, fence and intent. A table whose owner died is dropped by the next fence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowctl.connectors.buffered import record_batches
from flowctl.connectors.mysql.catalog import parts_of
from flowctl.connectors.mysql.client import MARKER, Client, MysqlConnection
from flowctl.connectors.mysql.columns import quoted
from flowctl.connectors.mysql.session import MysqlSession
from flowctl.connectors.sql.stage_names import is_leftover, new_stage_name, stage_family
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.errors import FlowctlError, TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import dialects

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of one INSERT of several rows, unless the server takes less.
_STATEMENT_BYTES = 1 << 20
_NULL = "\\N"
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\0", "\\0"))


@contextmanager
def staging_table(client: Client, job: WriteJob, columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    """A new table (database, name) for ``columns``, dropped at the end; first drops leftovers of older fences."""
    name = new_stage_name(job)
    with client.connect() as connection:
        schema, _ = parts_of(connection, job.object)
        for leftover in _leftovers(connection, schema, job):
            _drop(connection, schema, leftover)
        listed = MysqlSession(connection).dialect.listed(columns)
        connection.execute(f"CREATE TABLE {dialects.table((schema, name), 'mysql')} ({listed})")
    try:
        yield schema, name
    finally:
        with contextlib.suppress(FlowctlError), client.connect() as connection:  # else the next fence drops it
            _drop(connection, schema, name)


def _leftovers(connection: MysqlConnection, schema: str, job: WriteJob) -> list[str]:
    rows = connection.fetch(
        f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {MARKER} AND TABLE_NAME LIKE {MARKER}",
        [schema, stage_family(job).replace("_", r"\_") + "%"],
    )
    return [name for (name,) in rows if is_leftover(name, job)]


def _drop(connection: MysqlConnection, schema: str, name: str) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {dialects.table((schema, name), 'mysql')}")


def load(client: Client, rows: Batch, columns: Sequence[Column], stage: tuple[str, str]) -> int:
    """Returns the number of rows. ``rows`` are in the order of ``columns``, in the form of
    :mod:`flowctl.connectors.sql.storable`."""
    facts = client.facts
    if facts is None or not facts.takes_files:
        with client.connect() as connection:
            limit = min(_STATEMENT_BYTES, connection.facts.packet_bytes // 2)
            return sum(_insert(connection, batch, columns, stage, limit) for batch in record_batches(rows))
    with client.connect(sends_files=True) as connection:
        return _send(connection, rows, columns, stage)


def _send(connection: MysqlConnection, rows: Batch, columns: Sequence[Column], stage: tuple[str, str]) -> int:
    fields = ", ".join(f"@b{at}" if one.type == types.BINARY else quoted(one.name) for at, one in enumerate(columns))
    sets = [f"{quoted(one.name)} = UNHEX(@b{at})" for at, one in enumerate(columns) if one.type == types.BINARY]
    connection.execute("START TRANSACTION")
    count = connection.send(
        f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {dialects.table(stage, 'mysql')}"
        f" CHARACTER SET utf8mb4 ({fields}){' SET ' + ', '.join(sets) if sets else ''}",
        map(lines, record_batches(rows)),
    )
    if warnings := connection.fetch("SHOW WARNINGS LIMIT 1"):  # a file's errors are warnings, with LOCAL
        raise TableError(
            f"the server would change a value: {str(warnings[0][2]).partition(':')[0]} (warning {warnings[0][1]})",
            hint="Look at the table's columns, or read the column as text with `columns.types`",
        )
    connection.execute("COMMIT")
    return count


def _insert(
    connection: MysqlConnection, batch: pa.RecordBatch, columns: Sequence[Column], stage: tuple[str, str], limit: int
) -> int:
    head = f"INSERT INTO {dialects.table(stage, 'mysql')} VALUES "
    literals = [_literals(values, one) for values, one in zip(batch.columns, columns, strict=True)]
    waiting: list[str] = []
    size = 0
    for row in zip(*literals, strict=True):
        text = f"({','.join(row)})"
        if waiting and size + len(text) > limit // 4:  # a character has four bytes at most
            connection.execute(head + ",".join(waiting))
            waiting, size = [], 0
        waiting.append(text)
        size += len(text) + 1
    if waiting:
        connection.execute(head + ",".join(waiting))
    return int(batch.num_rows)


def _literals(values: pa.Array, column: Column) -> list[str]:
    texts = _texts(values).to_pylist()
    if column.type == types.BINARY:
        return ["NULL" if text is None else f"x'{text}'" for text in texts]
    return ["NULL" if text is None else "'" + text.replace("'", "''") + "'" for text in texts]


def lines(batch: pa.RecordBatch) -> bytes:
    """The rows as lines of fields between tabs, as LOAD DATA reads them without further options."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return b""
    texts = [_texts(values).cast(pa.large_string()).fill_null(_NULL) for values in batch.columns]
    rows = pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()), pa.scalar("\t", pa.large_string()))
    ended = pc.replace_substring_regex(rows, pattern=r"\t\z", replacement="\n")
    _, offsets, data = ended.buffers()
    del offsets
    return bytes(data)


def _texts(values: pa.Array) -> pa.Array:
    """Escaped for a file and for a literal; bytes in hexadecimal digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(pa.string())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64()).cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.large_string())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return values.cast(pa.string())
    for sign, escaped in _ESCAPED:
        values = pc.replace_substring(values, sign, escaped)
    return values
