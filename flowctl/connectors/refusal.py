"""How a value that cannot be carried exactly is refused inside Spark or a database: by a text that flowctl recognizes.

Expressions run on executors and servers, where flowctl's own exceptions do not exist. So they raise the system's own
error around this text, and `run.failure` (or the connector's own context) turns it into a :class:`TableError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flowctl.errors import FlowctlError, TableError
from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal

#: Followed by the message, `` | `` and the hint; `run.failure` looks for it.
PREFIX = "flowctl value refused: "
#: What to do about rows with a value that a target cannot store. A table of a stream has no `where`.
LEAVE_OUT = (
    "Leave such rows out with where, read the column as text with columns.types, or, in a stream, leave the column out "
    "with `columns.exclude`"
)


def refusal(column: str, native: str, kind: DataType, because: str = "", hint: str = "") -> str:
    """The text to raise for a value of ``column`` that is not exactly of type ``kind``; it never holds the value. The
    hint must end with text in backticks."""
    short = types.short(kind)
    wanted = f"column {column} ({native})" if native else f"column {column}"
    hint = hint or f"Fix the value, or read the column as text with `columns: {{types: {{{column}: string}}}}`"
    return f"{PREFIX}{wanted} holds a value that is not exactly {short}{because} | {hint}"


def no_counterpart(kind: DataType) -> str:
    """The reason for :func:`refusal` where a column is read as ``kind`` without a conversion: what only its database
    has values for. Empty if that is nothing."""
    match kind:
        case Array(item):
            return f": arrays of arrays{no_counterpart(item).replace(':', ',') or ' have no counterpart'}"
        case Decimal():
            return ": NaN and infinity have no counterpart"
        case types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return ": infinity and years outside 1 to 9999 have no counterpart"
        case _:
            return ""


def file_hint(column: str) -> str:
    """For files whose columns are text: only `format.schema` gives them types, and rows already read are not read
    again."""
    way = f"`format: {{schema: {{{column}: string}}}}`"
    return f"Fix the file, or read the column as text: run with --full-refresh and {way}"


def refused(text: str) -> TableError | None:
    """The error for a refusal found anywhere in ``text``, or None."""
    found = _OWN.search(text)
    return error_of(found[1]) if found else None


@contextmanager
def named(error_for: Callable[[str], FlowctlError | None] = refused) -> Iterator[None]:
    """Replaces an engine's errors inside the block by what ``error_for`` returns for their text; others pass
    unchanged."""
    try:
        yield
    except FlowctlError:
        raise
    except Exception as error:
        found = error_for(str(error))
        if found is None:
            raise
        raise found from error


def error_of(text: str) -> TableError:
    """The error for the message and hint that follow :data:`PREFIX`, where no engine is in between."""
    message, _, hint = text.partition(" | ")
    return TableError(message, hint=hint)


_OWN = re.compile(re.escape(PREFIX) + r"(.*? \| .*?`.*?`)")
