"""The commits table of an SQL database: which sequence number of which table was committed last, by which intent.

A commit inserts its row first. The primary key is (lineage, table, seq), so the second of two writers of one sequence
number waits for the first and then finds it taken. This also makes a void final: nothing else can be committed under
that sequence number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flowctl import delays
from flowctl.connectors.preconditions import already_committed, check_base
from flowctl.connectors.sql.session import Session, SqlDialect
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.commit import Commit, commit_from_record

COMMITS = "_flowctl_commits"
#: Records kept for each table; the newest one alone is enough to refuse older sequence numbers.
KEPT_COMMITS = 100
COMMIT_COLUMNS = ("lineage", "table", "seq", "intent_id", "target_id", "position", "void", "at")


def create_commits(table: tuple[str, ...], dialect: SqlDialect) -> str:
    """The DDL of the commits table; text, integers and a boolean only, so that it is the same everywhere."""
    text = dialect.column_type(types.STRING)
    kinds = {
        "lineage": f"{dialect.name_type} NOT NULL",
        "table": f"{dialect.name_type} NOT NULL",
        "seq": "BIGINT NOT NULL",
        "void": "BOOLEAN NOT NULL",
        "position": text,
    }
    columns = ", ".join(f"{dialect.quoted(name)} {kinds.get(name, f'{text} NOT NULL')}" for name in COMMIT_COLUMNS)
    key = ", ".join(map(dialect.quoted, ("lineage", "table", "seq")))
    return f"CREATE TABLE IF NOT EXISTS {dialect.table(table)} ({columns}, PRIMARY KEY ({key}))"


def claim(
    session: Session, commits: tuple[str, ...], record: Commit, at: str, base: str | None = None
) -> Commit | None:
    """Takes ``record``'s sequence number in this transaction and returns None; or returns the commit that already has
    it under our intent id. Raises :class:`StateConflict` if another intent has it, a higher one exists, or the newest
    commit is not ``base``; :class:`TableError` if the table does not keep the record."""
    newest = newest_commit(session, commits, record.lineage, record.table)
    if newest is not None and newest.seq >= record.seq:
        return already_committed(newest, record)
    check_base(record.table, newest.name if newest else "", base)
    delays.pause()
    dialect, name = session.dialect, session.dialect.table(commits)
    markers = ", ".join([dialect.marker] * len(COMMIT_COLUMNS))
    identity = (record.lineage, record.table, record.seq, record.intent_id, record.target_id)
    insert = f"INSERT INTO {name} ({_names(dialect)}) VALUES ({markers})"
    is_taken = not session.insert_new(insert, [*identity, _position(record), record.void, at])
    delays.pause()
    if is_taken:  # another writer of it committed while this one waited
        raced = newest_commit(session, commits, record.lineage, record.table)
        if raced is None or raced.seq < record.seq:
            raise _not_kept(commits, record)
        return already_committed(raced, record)
    session.execute(
        f"DELETE FROM {name} WHERE {_of_table(dialect)} AND seq <= {dialect.marker}",
        [record.lineage, record.table, record.seq - KEPT_COMMITS],
    )
    return None


def name_target(session: Session, commits: tuple[str, ...], record: Commit) -> None:
    """Stores the target's id with the sequence number just claimed: it is known only once the table exists. Raises
    :class:`TableError` if the record is gone."""
    dialect = session.dialect
    updated = session.execute(
        f"UPDATE {dialect.table(commits)} SET target_id = {dialect.marker}"
        f" WHERE {_of_table(dialect)} AND seq = {dialect.marker}",
        [record.target_id, record.lineage, record.table, record.seq],
    )
    if not updated:
        raise _not_kept(commits, record)


def _not_kept(commits: tuple[str, ...], record: Commit) -> TableError:
    """Without its record, the batch would be written again."""
    return TableError(
        f"{'.'.join(commits)} did not keep the commit of {record.table}: one of its triggers or rules leaves rows out",
        hint="Let it keep every row that is inserted or updated",
    )


def newest_commit(session: Session, commits: tuple[str, ...], lineage: str, table: str) -> Commit | None:
    delays.pause()
    dialect, name = session.dialect, session.dialect.table(commits)
    rows = session.fetch(
        f"SELECT {_names(dialect)} FROM {name} WHERE {_of_table(dialect)}"
        f" AND seq = (SELECT max(seq) FROM {name} WHERE {_of_table(dialect)})",
        [lineage, table, lineage, table],
    )
    return commit_of(rows[0]) if rows else None


def commit_of(row: Sequence[Any]) -> Commit:
    """The commit in a row of :data:`COMMIT_COLUMNS`."""
    document = dict(zip(COMMIT_COLUMNS, row, strict=True))
    position = json.loads(document["position"]) if document["position"] else None
    return commit_from_record({**document, "position": position, "void": bool(document["void"])})


def _of_table(dialect: SqlDialect) -> str:
    return f"lineage = {dialect.marker} AND {dialect.quoted('table')} = {dialect.marker}"


def _names(dialect: SqlDialect) -> str:
    return ", ".join(map(dialect.quoted, COMMIT_COLUMNS))


def _position(record: Commit) -> str | None:
    position = record.record()["position"]
    return json.dumps(position) if position is not None else None
