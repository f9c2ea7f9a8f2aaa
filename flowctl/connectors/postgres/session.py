"""One connection to PostgreSQL, as :mod:`flowctl.connectors.sql` uses it, and PostgreSQL's own syntax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres import catalog
from flowctl.connectors.postgres.types import ddl, has_exact_equality
from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.session import Session, SqlDialect
from flowctl.model.table_info import ObjectName, TableInfo

if TYPE_CHECKING:
    import psycopg

POSTGRES = SqlDialect(
    name="postgres",
    marker="%s",
    column_type=ddl,
    widen="ALTER COLUMN {column} TYPE {type}",
    relax="ALTER COLUMN {column} DROP NOT NULL",
    # The existing content is deleted in the same transaction.
    retype="ALTER COLUMN {column} DROP NOT NULL, ALTER COLUMN {column} DROP DEFAULT,"
    " ALTER COLUMN {column} TYPE {type} USING NULL",
)


@dataclass(frozen=True)
class PostgresSession(Session):
    """Statements without parameters may contain ``%``."""

    connection: psycopg.Connection[Any]
    dialect = POSTGRES

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return self.connection.execute(statement, parameters or None).rowcount

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, parameters or None).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """If this process stops inside the transaction, the server ends it: see :func:`timeouts.idle_in_commit`. What
        is committed is on its disk, also where sessions do not wait for that by default: state relies on it."""
        with self.connection.transaction():
            self.execute(f"SET LOCAL lock_timeout = '{timeouts.milliseconds(timeouts.COMMIT_LOCK)}'")
            idle = timeouts.milliseconds(timeouts.idle_in_commit())
            self.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{idle}'")
            self.execute(
                "SELECT set_config('synchronous_commit', 'local', true)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )
            yield

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        return catalog.describe(self.connection, objects)

    def compared_as_text(self, table: tuple[str, ...]) -> frozenset[str]:
        types = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        )
        found = self.fetch(types, [self.dialect.table(table)])
        return frozenset(name for name, native in found if not has_exact_equality(native))

    def written_columns(self, table: tuple[str, ...]) -> list[str]:
        names = (
            "SELECT attname FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
        )
        return [name for (name,) in self.fetch(names, [self.dialect.table(table)])]
