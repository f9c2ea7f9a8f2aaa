"""Opens the catalog of a connection: flowctl's own for Hadoop's layout, PyIceberg's for all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flowctl.connectors.iceberg import file_io
from flowctl.connectors.iceberg.address import Address
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.lake.folder import Folder
from flowctl.errors import FlowctlError
from flowctl.extras import install_hint, is_installed
from flowctl.storage.options import Storage

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import CommitTableResponse, CreateTableTransaction, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier, Properties

#: What a catalog needs besides PyIceberg: an import name.
_DRIVERS = {"jdbc": "sqlalchemy", "glue": "boto3", "hive": "thrift"}
#: PyIceberg's names of catalogs that it calls otherwise.
_TYPES = {"jdbc": "sql"}
#: Drivers of databases, as SQLAlchemy names them.
_DIALECTS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}


class TableCatalog(Protocol):
    """What flowctl uses of :class:`pyiceberg.catalog.Catalog`."""

    def load_table(self, identifier: Identifier) -> Table: ...

    def list_tables(self, namespace: Identifier) -> list[Identifier]: ...

    def list_namespaces(self, namespace: Identifier = ()) -> list[Identifier]: ...

    def create_namespace_if_not_exists(self, namespace: Identifier) -> None: ...

    def create_table_transaction(
        self, identifier: Identifier, schema: Schema, *, partition_spec: PartitionSpec, properties: Properties
    ) -> CreateTableTransaction: ...

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse: ...


@contextmanager
def open_catalog(address: Address, storage: Storage) -> Iterator[TableCatalog]:
    """The catalog of a connection, whose secrets are resolved."""
    kind = address.catalog
    driver = _DRIVERS.get(kind)
    if driver is not None and not is_installed(driver):
        raise FlowctlError(f"catalogs of type {kind} need {driver}, which is not installed", hint=install_hint(driver))
    with ExitStack() as stack:
        properties = stack.enter_context(file_io.properties_of(storage))
        if kind == "hadoop":
            from flowctl.connectors.iceberg.hadoop import HadoopCatalog

            yield HadoopCatalog(Folder(str(address.warehouse), storage), properties)
            return
        from pyiceberg.catalog import load_catalog

        given = {**address.secrets, **address.properties, **properties, "type": _TYPES.get(kind, kind)}
        if address.uri is not None:
            given["uri"] = _database_url(address.uri, address.base_dir) if kind == "jdbc" else address.uri
        if address.warehouse is not None:
            given["warehouse"] = address.warehouse
        with errors_of(f"the {kind} catalog"):
            catalog = load_catalog(address.name, **given)
        stack.callback(catalog.close)
        yield catalog


def _database_url(url: str, base_dir: str) -> str:
    """As SQLAlchemy takes it. A relative path of SQLite starts from the spec's folder."""
    name, _, rest = url.partition("://")
    name = name.removeprefix("jdbc:")
    if name == "sqlite":
        return f"sqlite:///{Path(base_dir, rest.removeprefix('/')) if not rest.startswith('//') else rest[1:]}"
    return f"{_DIALECTS.get(name, name)}://{rest}"
