"""One open connection to an SQL database, and that database's own syntax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import DataType
from flowctl.sql import dialects
from flowctl.sql.collations import ALIKE, Collations
from flowctl.sql.dialects import Dialect


@dataclass(frozen=True)
class SqlDialect:
    """``name`` is the dialect of :mod:`flowctl.sql`, ``marker`` the placeholder of a parameter, ``column_type`` returns
    the DDL of a type, ``name_type`` is that of text in a primary key. ``drop_temporary`` drops a temporary table inside
    a transaction. ``widen``, ``relax`` and ``retype`` are the clauses of ALTER TABLE that widen a column's type, make
    it nullable, and give it another type without its values; empty if there are none. If ALTER TABLE takes one clause
    only, they continue with further ALTER statements of ``{table}``. ``with_creator`` is for a database whose tables
    have no ids: it adds the mark of an intent (:mod:`.creator`) to the CREATE of a table, given the statement, the
    table and the intent's id, and :meth:`Session.describe` returns that id as ``created_by``. ``transactional_ddl``:
    whether DDL is part of a transaction; if it ends one, it runs before it (see :mod:`.target`)."""

    name: Dialect
    marker: str
    column_type: Callable[[DataType], str]
    name_type: str = "TEXT"
    drop_temporary: str = "DROP TABLE {table}"
    widen: str = ""
    relax: str = ""
    retype: str = ""
    with_creator: Callable[[str, str, str], str] | None = None
    transactional_ddl: bool = True

    def quoted(self, name: str) -> str:
        return dialects.quoted(name, self.name)

    def table(self, parts: tuple[str, ...]) -> str:
        return dialects.table(parts, self.name)

    def named(self, names: Iterable[str]) -> str:
        """``"id", "name"``."""
        return ", ".join(map(self.quoted, names))

    def listed(self, columns: Sequence[Column]) -> str:
        """``"id" bigint, "name" text``."""
        return ", ".join(f"{self.quoted(column.name)} {self.type_of(column)}" for column in columns)

    def type_of(self, column: Column) -> str:
        """The DDL of a new column's type: its ``native``, if it has one."""
        return column.native or self.column_type(column.type)


class Session(ABC):
    """A connection in autocommit mode, except inside :meth:`transaction`. Errors of the driver are raised as
    flowctl's."""

    dialect: SqlDialect

    @abstractmethod
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Returns the number of affected rows; ``parameters`` replace the dialect's ``marker``."""

    def insert_new(self, insert: str, row: Sequence[Any]) -> bool:
        """Runs ``insert``, an INSERT of one row; False if its key is taken, or a trigger has left it out. Waits for a
        transaction that is about to take the key."""
        return self.execute(f"{insert} ON CONFLICT DO NOTHING", row) > 0

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Runs ``statement`` once for each row of parameters; overridden where the driver can send them together."""
        for row in rows:
            self.execute(statement, row)

    @abstractmethod
    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commits at the end, rolls back after an error. Each statement reads what others have committed by then. Waits
        for the locks of others, but not for ever."""

    @abstractmethod
    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        """See :meth:`flowctl.connectors.target.Target.describe`; includes what this transaction has created."""

    def compared_as_text(self, table: tuple[str, ...]) -> frozenset[str]:
        """Columns in which two values may be equal although they differ as text, or that cannot be compared."""
        return frozenset()

    def collations(self, table: tuple[str, ...]) -> Collations:
        """The columns of ``table`` whose texts the database does not compare with those of flowctl's own tables."""
        return ALIKE

    @abstractmethod
    def written_columns(self, table: tuple[str, ...]) -> list[str]:
        """Columns that a statement may write: all but those that the database computes itself."""
