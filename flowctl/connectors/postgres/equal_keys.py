"""Keys of a staged batch that PostgreSQL takes for equal although their texts differ: ``1.0`` and ``1.00``.

The engine has values of such types as texts. It therefore finds neither that two rows have one key, nor that a key
which seems to be gone is only written differently. The target finds its rows by PostgreSQL's own ``=``, and so does
this.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from flowctl import text
from flowctl.connectors.postgres.session import POSTGRES, PostgresSession
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, WriteJob
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.sql.difference import SOURCE_ORDER
from flowctl.sql.versioning import VALID_FROM

#: Types of the texts that they are given.
_AS_THEY_ARE = ("text", "character varying", "character", "bpchar", "uuid")
#: Number of sample keys in an error.
_SAMPLES = 5


def one_of_each(session: PostgresSession, job: WriteJob, stage: tuple[str, str], columns: Collection[str]) -> int:
    """Leaves one row of each key (in a history: of each key and time) in ``stage``, which has ``columns``, and returns
    the number of rows that it removed: deletions of keys that another row still has, and, of changes that have an
    order, all but the last. Raises :class:`TableError` if the source has several rows of one key, none of which is the
    last. Does nothing unless the key has a column whose type has several texts of one value, if only to read them."""
    inexact = session.compared_as_text(stage)
    if inexact.isdisjoint(job.key) and not _rewritten(session, job, stage):
        return 0
    table, key = POSTGRES.table(stage), POSTGRES.named(job.key)
    removed = 0
    if DETECTED_COLUMN in columns:  # a missing key is closed at the time of the batch, its row begins at its own
        removed = session.execute(
            f"DELETE FROM {table} WHERE {DETECTED_COLUMN} AND {OP_COLUMN} = 'D'"
            f" AND ({key}) IN (SELECT {key} FROM {table} WHERE {OP_COLUMN} = 'U')"
        )
    identity = POSTGRES.named([*job.key, *([VALID_FROM] if job.mode == "scd2" else [])])
    if not session.fetch(f"SELECT 1 FROM {table} GROUP BY {identity} HAVING count(*) > 1 LIMIT 1"):
        return removed
    is_ordered = job.is_ordered and SOURCE_ORDER in columns
    if not is_ordered:
        _refuse_several(session, job, stage, identity, inexact)
    last = f"{POSTGRES.quoted(SOURCE_ORDER)} DESC, " if is_ordered else ""
    return removed + session.execute(
        f"DELETE FROM {table} WHERE ctid IN (SELECT place FROM ("
        f"SELECT ctid, row_number() OVER (PARTITION BY {identity} ORDER BY {last}{OP_COLUMN} DESC) FROM {table}"
        ") AS ranked(place, number) WHERE number > 1)"
    )


def _refuse_several(
    session: PostgresSession, job: WriteJob, stage: tuple[str, str], identity: str, inexact: Collection[str]
) -> None:
    """A deletion is a row of the source only if a flag says so."""
    table = POSTGRES.table(stage)
    texts = ", ".join(f"string_agg(DISTINCT {POSTGRES.quoted(name)}::text, ' and ')" for name in job.key)
    rows = "" if job.flags_deletes else f"WHERE {OP_COLUMN} = 'U' "
    found = session.fetch(f"SELECT {texts} FROM {table} {rows}GROUP BY {identity} HAVING count(*) > 1")
    if not found:
        return
    shown = "; ".join(_shown(job.key, texts) for texts in found[:_SAMPLES])
    message = (
        f"{text.counted(len(found), 'key')} with more than one row: {job.object} takes these for equal (key {shown})"
    )
    name = next((name for name in job.key if name in inexact), None)
    if name is None:
        (name, *_) = _rewritten(session, job, stage)
        alter = f"ALTER TABLE {POSTGRES.table(job.object.parts)} ALTER COLUMN {POSTGRES.quoted(name)} TYPE text"
        raise TableError(message, hint=f"Fix the source, choose a key that is unique, or run `{alter}`")
    kind, result = ("string", "tells them apart")
    if _is_numeric(session, table, name):
        kind, result = '"decimal(38,10)"', "makes one number of them"
    raise TableError(
        message,
        hint="Fix the source, choose a key that is unique, or set "
        f"`columns: {{types: {{{name}: {kind}}}}}`, which {result}, and run with --full-refresh {job.record.table}",
    )


def _rewritten(session: PostgresSession, job: WriteJob, stage: tuple[str, str]) -> list[str]:
    """Columns of the key whose type writes a value in one way only, and reads it in several (``inet``). Of ``uuid``,
    other texts are not even copied."""
    sent = [one.name for one in job.columns if one.name in job.key and one.type == types.STRING]
    natives = (
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s)"
        " AND attname = ANY (%s)"
    )
    found = session.fetch(natives, [POSTGRES.table(stage), sent]) if sent else []
    return [name for name, native in found if native not in _AS_THEY_ARE]


def _shown(key: Sequence[str], texts: Sequence[Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(key, texts, strict=True))


def _is_numeric(session: PostgresSession, table: str, column: str) -> bool:
    query = "SELECT atttypid = 'numeric'::regtype FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s"
    ((is_numeric,),) = session.fetch(query, [table, column])
    return bool(is_numeric)
