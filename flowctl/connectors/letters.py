"""Dead letters: messages that a source cannot decode, or whose row fails a check, kept whole so that they can be read
again.

While a batch is made, the columns of a letter have the prefix :data:`flowctl.model.reserved.PREFIX`: rows of the batch
may carry them beside columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.model import reserved, types
from flowctl.model.table_info import Column

#: Staged column: why the row is rejected; null for rows of the batch.
REASON_COLUMN = f"{reserved.PREFIX}_reason"

#: The message and its place. ``_headers`` is text in JSON: a list of objects, each with ``key`` and either ``value``
#: (UTF-8) or ``base64``. ``_schema_id`` is what the value begins with, if that looks like the id of a registry.
MESSAGE_COLUMNS = (
    Column("_topic", types.STRING),
    Column("_partition", types.INT32),
    Column("_offset", types.INT64),
    Column("_timestamp", types.TIMESTAMP),
    Column("_key", types.BINARY),
    Column("_value", types.BINARY),
    Column("_headers", types.STRING),
    Column("_schema_id", types.INT64),
)
#: What is wrong with it: the kind of error, and the error in words, without any value.
ERROR_COLUMNS = (Column("_error", types.STRING), Column("_reason", types.STRING))
LETTER_COLUMNS = (*MESSAGE_COLUMNS, *ERROR_COLUMNS)
#: The kind of error of a message that was decoded and fails a check.
CHECK = "check"

#: A row of a file that cannot be read, under the names that they have while a batch is made: why, in which file and
#: line, and its text. All are null in rows that can be read.
BAD_ROW_COLUMNS = (
    Column(REASON_COLUMN, types.STRING),
    Column(f"{reserved.PREFIX}_source_file", types.STRING),
    Column(f"{reserved.PREFIX}_line", types.INT64),
    Column(f"{reserved.PREFIX}_raw", types.STRING),
)


def landed(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns under the names that they have while a batch is made."""
    return tuple(Column(landed_name(column.name), column.type) for column in columns)


def landed_name(name: str) -> str:
    return f"{reserved.PREFIX}{name}"
