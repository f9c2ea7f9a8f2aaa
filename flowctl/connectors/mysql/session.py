"""One connection as :mod:`flowctl.connectors.sql` uses it, and MySQL's own syntax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from flowctl.connectors.mysql import catalog, refusals
from flowctl.connectors.mysql.client import MARKER, MysqlConnection
from flowctl.connectors.mysql.errors import DUPLICATE, code_of
from flowctl.connectors.mysql.types import ddl
from flowctl.connectors.sql.creator import identity_with, mark
from flowctl.connectors.sql.session import Session, SqlDialect
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.sql.collations import Collations

#: The two collations that compare all of a text: MariaDB's and MySQL's.
_COLLATION = "utf8mb4_nopad_bin"


@lru_cache
def dialect_of(collation: str) -> SqlDialect:
    return SqlDialect(
        name="mysql",
        marker=MARKER,
        column_type=partial(ddl, collation=collation),
        name_type=f"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE {collation}",
        drop_temporary="DROP TEMPORARY TABLE {table}",
        widen="MODIFY COLUMN {column} {type}",
        retype="DROP COLUMN {column}, ADD COLUMN {column} {type}",
        with_creator=_with_creator,
        transactional_ddl=False,
    )


def _with_creator(statement: str, _table: str, intent_id: str) -> str:
    return f"{statement} COMMENT '{mark(intent_id)}'"


MYSQL = dialect_of(_COLLATION)


@dataclass(frozen=True)
class MysqlSession(Session):
    connection: MysqlConnection

    @property
    def dialect(self) -> SqlDialect:  # type: ignore[override]
        return dialect_of(self.connection.facts.collation)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self.connection.execute(statement, parameters)

    def insert_new(self, insert: str, row: Sequence[Any]) -> bool:
        """Not by INSERT IGNORE, which also cuts off what is too long, nor by ON DUPLICATE KEY UPDATE, whose count is
        the same for both outcomes. A duplicate key leaves the transaction as it is."""
        try:
            return self.execute(insert, row) > 0
        except Exception as error:
            if code_of(error) != DUPLICATE:
                raise
            return False

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.fetch(statement, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """READ COMMITTED, as every session here."""
        self.execute("START TRANSACTION")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with suppress(Exception):  # the connection may be lost, and the transaction with it
                self.execute("ROLLBACK")
            raise

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        found = catalog.describe(self.connection, objects)
        following = refusals.following(self.connection, found)
        uses = refusals.uses_of(self.connection, found)
        keeps = refusals.keeps_versions(self.connection, found)
        return {
            object: info
            and _as_target(info, following=following.get(object, []), uses=uses.get(object, {}), keeps_versions=keeps)
            for object, info in found.items()
        }

    def written_columns(self, table: tuple[str, ...]) -> list[str]:
        info = catalog.describe(self.connection, [ObjectName(table)])[ObjectName(table)]
        if info is None:
            return []
        return [one.name for one in info.columns if info.extra["filled"].get(one.name) != "computed"]

    def collations(self, table: tuple[str, ...]) -> Collations:
        found = self.fetch(
            "SELECT COLUMN_NAME, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
            f" WHERE TABLE_SCHEMA = {MARKER} AND TABLE_NAME = {MARKER} AND CHARACTER_SET_NAME IS NOT NULL",
            catalog.parts_of(self.connection, ObjectName(table)),
        )
        own = self.connection.facts.collation
        return Collations(own, {name: (charset, of) for name, charset, of in found if not _mixes(charset, of, own)})

    def table(self, object: ObjectName) -> str:
        return self.dialect.table(catalog.parts_of(self.connection, object))


def _mixes(charset: str, collation: str, own: str) -> bool:
    """Whether the server finds a common collation for texts of ``collation`` and ``own``. Of two that compare by codes
    it chooses none, and of other character sets it converts those that are no Unicode, or its shorter UTF-8."""
    if charset == "utf8mb4":
        return collation == own or not collation.endswith("_bin")
    return charset not in ("utf16", "utf16le", "utf32", "ucs2")


def _as_target(info: TableInfo, **known: Any) -> TableInfo:
    return replace(info, identity=identity_with(info.identity, info.created_by), extra={**info.extra, **known})
