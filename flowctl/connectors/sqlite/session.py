"""One connection to an SQLite file, as :mod:`flowctl.connectors.sql` uses it, and SQLite's own syntax."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from flowctl.connectors.sql.creator import identity_with, mark
from flowctl.connectors.sql.embedded import EmbeddedSession
from flowctl.connectors.sql.session import SqlDialect
from flowctl.connectors.sqlite import catalog, refusals
from flowctl.connectors.sqlite.database import Readers
from flowctl.connectors.sqlite.types import declared
from flowctl.model.table_info import ObjectName, TableInfo


def _with_creator(statement: str, table: str, intent_id: str) -> str:
    """SQLite keeps the text of a CREATE, and so the comment, whatever is altered later."""
    begin = f"CREATE TABLE {table} ("
    return statement.replace(begin, f"{begin}/* {mark(intent_id)} */ ", 1)


#: SQLite can neither change a column's type nor drop NOT NULL.
SQLITE = SqlDialect(name="sqlite", marker="?", column_type=declared, with_creator=_with_creator)


@dataclass(frozen=True)
class SqliteSession(EmbeddedSession):
    """``readers`` are those of this process."""

    connection: sqlite3.Connection
    inode: str
    readers: Readers
    dialect = SQLITE

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self.connection.execute(statement, parameters).rowcount

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(statement, rows)

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, parameters).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Takes the write lock immediately: a transaction that first reads and then writes can fail half-way as
        busy."""
        with nullcontext() if self._has_wal() else self.readers.writing():
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.execute("ROLLBACK")

    def _has_wal(self) -> bool:
        return self.fetch("PRAGMA journal_mode") == [("wal",)]

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        schema = refusals.schema_of(self.connection)
        return {object: self._described(object, schema) for object in objects}

    def _described(self, object: ObjectName, schema: tuple[str, ...]) -> TableInfo | None:
        info = catalog.describe(self.connection, object, self.target_id(object), dt.datetime.now(dt.UTC))
        if info is None:
            return None
        more: dict[str, Any] = {refusals.SCHEMA: schema, "filled": catalog.filled(self.connection, object)}
        more[catalog.IS_STRICT] = catalog.is_strict(self.connection, object)
        identity = identity_with(info.identity, info.created_by)
        return replace(info, identity=identity, extra={**info.extra, **more})

    def written_columns(self, table: tuple[str, ...]) -> list[str]:
        return [name for (name,) in self.fetch("SELECT name FROM pragma_table_info(?)", [table[-1]])]

    def has_table(self, name: str) -> bool:
        return bool(self.fetch("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [name]))
