"""One connection to a DuckDB file, as :mod:`flowctl.connectors.sql` uses it, and DuckDB's own syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fsspec.implementations.local import LocalFileSystem

from flowctl.connectors.duckdb import MAIN, catalog, refusals
from flowctl.connectors.duckdb.types import ddl
from flowctl.connectors.sql.creator import identity_with, mark
from flowctl.connectors.sql.embedded import EmbeddedSession
from flowctl.connectors.sql.session import SqlDialect
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    import duckdb


def _with_creator(statement: str, table: str, intent_id: str) -> str:
    return f"{statement}; COMMENT ON TABLE {table} IS '{mark(intent_id)}'"


DUCKDB = SqlDialect(
    name="duckdb",
    marker="?",
    column_type=ddl,
    with_creator=_with_creator,
    widen="ALTER COLUMN {column} TYPE {type}",
    relax="ALTER COLUMN {column} DROP NOT NULL",
    # The existing content is deleted in the same transaction.
    retype="ALTER COLUMN {column} DROP NOT NULL; ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT;"
    " ALTER TABLE {table} ALTER COLUMN {column} TYPE {type} USING CAST(NULL AS {type})",
)


#: Characters of a path that DuckDB reads as a pattern.
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class DuckdbSession(EmbeddedSession):
    connection: duckdb.DuckDBPyConnection
    inode: str
    dialect = DUCKDB

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """DuckDB returns the number of changed rows as a result of one row."""
        rows = self.fetch(statement, parameters)
        return int(rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, list(parameters)).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The only one of all processes that writes: see :mod:`.database`."""
        import duckdb

        self.execute("BEGIN TRANSACTION")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):  # a commit that failed has ended the transaction
                self.execute("ROLLBACK")
            raise

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        schema = refusals.schema_of(self.connection)
        return {object: self._described(object, schema) for object in objects}

    def _described(self, object: ObjectName, schema: Sequence[str]) -> TableInfo | None:
        info = catalog.describe(self.connection, object, self.target_id(object))
        found = catalog.find(self.connection, object)
        if info is None or found is None:
            return None
        more: dict[str, Any] = {refusals.SCHEMA: schema, "filled": {}}
        if found.is_table:
            more["filled"] = catalog.filled(self.connection, found)
            more[refusals.COLLATIONS] = catalog.collations(self.connection, found)
        identity = identity_with(info.identity, info.created_by)
        return replace(info, identity=identity, extra={**info.extra, **more})

    def written_columns(self, table: tuple[str, ...]) -> list[str]:
        found = catalog.find(self.connection, ObjectName(table))
        if found is None:
            return []
        fills = catalog.filled(self.connection, found)
        return [one.name for one in catalog.columns(self.connection, found) if fills.get(one.name) != "computed"]

    def readable(self, folder: BufferFolder) -> list[str]:
        """The segments of ``folder``, as DuckDB reads them: through the buffer's own file system, unless that is this
        machine's disk."""
        segments = [_PATTERN.sub(r"[\g<0>]", segment) for segment in folder.segments()]
        if isinstance(folder.fs, LocalFileSystem):
            return segments
        urls = [folder.fs.unstrip_protocol(segment) for segment in segments]
        if not {url.partition("://")[0] for url in urls} <= {*self.connection.list_filesystems()}:
            self.connection.register_filesystem(folder.fs)
        return urls

    def has_table(self, name: str) -> bool:
        return catalog.find(self.connection, ObjectName((name,))) is not None

    def local_name(self, object: ObjectName) -> str:
        schema, name = (MAIN, *object.parts)[-2:]
        return name if schema.lower() == MAIN else f"{schema}.{name}"
