"""Opens an SQLite file, and translates its errors to flowctl's."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.embedded import Access
from flowctl.connectors.sql.hindrances import DROP_WHAT_USES_IT
from flowctl.errors import TableError, WriteConflict


def greeting(path: Path) -> str:
    """As :attr:`flowctl.connectors.base.Connector.greet`."""
    version = f"SQLite {sqlite3.sqlite_version}, file {path}"
    if not path.exists():
        return f"{version}, which is not there yet"
    with translated(path), open_database(path, "ro") as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return version


@contextmanager
def open_database(path: Path, access: Access) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode: transactions begin with an explicit BEGIN. ``rwc`` creates a missing file,
    ``none`` replaces it by an empty database in memory."""
    if access == "ro" and not path.is_file():
        raise TableError(f"there is no SQLite file {path}", hint="Check `path` of the connection")
    with translated(path):
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={access}" if access != "none" else ":memory:",
            uri=True,
            timeout=timeouts.FILE_LOCK,
            isolation_level=None,
            check_same_thread=False,
        )
    try:
        if access == "ro":
            _finish_rollback(connection, path)
        yield connection
    finally:
        connection.close()


def _finish_rollback(connection: sqlite3.Connection, path: Path) -> None:
    """Lets SQLite undo the transaction of a process that was killed in the middle of its commit. Until then the file
    cannot be read, and a connection that only reads must not do it."""
    if not path.with_name(f"{path.name}-journal").exists():
        return
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
            return  # the caller's own query reports it
        uri = f"file:{quote(str(path))}?mode=rw"
        with translated(path), closing(sqlite3.connect(uri, uri=True, timeout=timeouts.FILE_LOCK)) as writer:
            writer.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


class Readers:
    """Keeps commits of this process away from read transactions of this process on one file.

    Outside WAL mode, SQLite makes a commit wait until all read transactions have ended, and meanwhile lets none begin.
    A table that reads its target's keys while its source snapshot is open would wait for another table's commit, and
    that commit for the snapshot. So a commit waits here first, where read transactions may still begin. After
    :data:`~flowctl.connectors.sql.timeouts.FILE_LOCK` seconds only SQLite's own locks decide."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reading = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._reading or not self._writing, timeouts.FILE_LOCK)
            self._reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._reading and not self._writing, timeouts.FILE_LOCK)
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


_READERS: dict[Path, Readers] = {}


def readers_of(path: Path) -> Readers:
    """The same object for the same resolved path."""
    return _READERS.setdefault(path.resolve(), Readers())


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raises SQLite's errors as flowctl's: locks are transient, all other errors fail the table."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise WriteConflict(
                f"{path} is locked by another process", hint="Try again when it has finished"
            ) from error
        if name.startswith("SQLITE_NOTADB"):
            raise TableError(f"{path} is not an SQLite file", hint="Check `path` of the connection") from error
        if " after drop column: " in str(error):
            raise TableError(f"SQLite says: {error}", hint=DROP_WHAT_USES_IT) from error
        raise TableError(f"SQLite says: {error}", hint=f"Look at {path}") from error


def quoted(name: str) -> str:
    """``name`` as an identifier. Not in double quotes: SQLite reads such a name, if no column has it, as a string."""
    return "`" + name.replace("`", "``") + "`"
