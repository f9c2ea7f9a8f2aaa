"""One open connection to an SQL database, and what that database writes its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import DataType
from flowctl.sql import dialects
from flowctl.sql.dialects import Dialect


@dataclass(frozen=True)
class SqlDialect:
    """``name`` is the dialect of :mod:`flowctl.sql`, ``marker`` stands for a parameter, ``column_type`` gives the DDL
    of a type, ``name_type`` that of text in a primary key. ``insert_new`` inserts a row unless its key is taken, and
    waits for a transaction that is about to take it. ``drop_temporary`` drops a temporary table inside a transaction.
    ``widen``, ``relax`` and ``retype`` are the clauses of ALTER TABLE that make a column's type wider, let it be null,
    and give it another type without its values; empty where there are none. ``with_creator`` is for a database whose
    DDL ends a transaction: a CREATE with the id of its intent, which :meth:`Session.describe` then has as
    ``created_by`` of the table."""

    name: Dialect
    marker: str
    column_type: Callable[[DataType], str]
    name_type: str = "TEXT"
    insert_new: str = "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
    drop_temporary: str = "DROP TABLE {table}"
    widen: str = ""
    relax: str = ""
    retype: str = ""
    with_creator: Callable[[str, str], str] | None = None

    @property
    def transactional_ddl(self) -> bool:
        """Whether DDL takes part in a transaction; where it ends one, it runs before (see :mod:`.target`)."""
        return self.with_creator is None

    def quoted(self, name: str) -> str:
        return dialects.quoted(name, self.name)

    def table(self, parts: tuple[str, ...]) -> str:
        return dialects.table(parts, self.name)

    def listed(self, columns: Sequence[Column]) -> str:
        """``"id" bigint, "name" text``."""
        return ", ".join(f"{self.quoted(column.name)} {self.column_type(column.type)}" for column in columns)


class Session(ABC):
    """A connection that commits each statement by itself, except inside of :meth:`transaction`. Errors of the driver
    come out as flowctl's."""

    dialect: SqlDialect

    @abstractmethod
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Returns the number of rows that it touched; parameters stand for the dialect's ``marker``."""

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """``statement`` once for each row of parameters; for a driver to override that sends them together."""
        for row in rows:
            self.execute(statement, row)

    @abstractmethod
    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commits at the end, rolls back after an error. What it reads is what others have committed by then. Waits for
        the locks of others, but not for ever."""

    @abstractmethod
    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        """See :meth:`flowctl.connectors.target.Target.describe`; here also what this transaction has made."""

    @abstractmethod
    def written_columns(self, table: tuple[str, ...]) -> list[str]:
        """Columns that a statement may write: not those that the database works out itself."""
