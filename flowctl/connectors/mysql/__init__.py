"""MySQL and MariaDB: a landed source (this process streams one consistent snapshot), a source of changes (the binary
log), and a transactional target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.sql.address import database_place, named_places
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.table_info import ObjectName
from flowctl.model.types import is_wider
from flowctl.spec.spec import Connection

#: The limit of identifiers, in characters.
_NAME_LETTERS = 64
#: The limit of file names: a table is a file, in whose name each unusual character takes five bytes.
_FILE_BYTES = 250


def _refuses(name: str) -> str | None:
    if not name:
        return "MySQL has no empty names"
    if "\0" in name:
        return "MySQL's names hold no NUL character"
    if len(name) > _NAME_LETTERS:
        return f"MySQL's names have at most {_NAME_LETTERS} characters"
    if any(ord(letter) > 0xFFFF for letter in name):
        return "MySQL's names hold no characters beyond U+FFFF, such as emoji"
    return "MySQL's names do not end with a blank" if name.endswith(" ") else None


CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="cursor"),
    target=TargetCapabilities(
        widens=lambda old, new: is_wider(new, old), refuses_names=_refuses, atomic="database", alters_first=True
    ),
    extra="mysql",
    drivers=("pymysql",),
    signs=("MySQL ", "MariaDB ", "pymysql"),
    places=lambda options: named_places(options, 3306),
)


def place(options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    if (found := database_place(options, 3306)) is None:
        return None
    host, database = found
    return f"mysql {host}/{'/'.join((database, *object.parts)[-2:])}"


def refuse_name(_options: Mapping[str, Any], object: ObjectName, _base_dir: str) -> str | None:
    if len(object.parts) > 2:
        return "a name has at most two parts here, database.table"
    for part in object.parts:
        if why := _refuses(part):
            return why
        if sum(1 if letter.isascii() and letter.isalnum() else 5 for letter in part) > _FILE_BYTES:
            return "its file's name would be too long: unusual characters take five bytes there"
    return None


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """Opens nothing yet: source and target connect when they need to."""
    from flowctl.connectors.mysql.changes.stream import MysqlStreams
    from flowctl.connectors.mysql.client import client
    from flowctl.connectors.mysql.source import MysqlSource
    from flowctl.connectors.mysql.target import MysqlTarget

    database = client(connection.options)
    source = MysqlSource(database, CAPABILITIES)
    yield Connector(
        source=source,
        target=MysqlTarget(database, context, CAPABILITIES),
        streams=MysqlStreams(database, source),
        greet=database.greet,
    )
