"""Opens a DuckDB file, and translates DuckDB's errors to flowctl's.

DuckDB locks the file for the process that has it open: one process that writes, or any number that read. Inside one
process all connections share one instance of the database, which either writes or only reads; its transactions do not
block each other. So this process opens a file for reading, and for writing only while it commits. Meanwhile its own
readers use the writing instance; a writer waits until no instance is open that only reads.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flowctl.connectors.refusal import refused
from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.embedded import Access
from flowctl.connectors.sql.hindrances import DROP_WHAT_USES_IT
from flowctl.connectors.sql.waiting import interruptible, is_interrupted
from flowctl.errors import StatementRefused, TableError, WriteConflict

if TYPE_CHECKING:
    import duckdb

#: Extensions are never downloaded, and names never refer to variables of this process.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
}
#: Seconds between two attempts to open a locked file.
_AGAIN = 0.2
_HOLDER = re.compile(r"Conflicting lock is held in (.+?) \(PID (\d+)\)")
_VERSION = re.compile(r"version number (\d+)")


def greeting(path: Path) -> str:
    """As :attr:`flowctl.connectors.base.Connector.greet`."""
    import duckdb

    version = f"DuckDB {duckdb.__version__}, file {path}"
    if not path.exists():
        return f"{version}, which is not there yet"
    with open_database(path, "ro") as connection:
        connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone()
    return version


@contextmanager
def open_database(path: Path, access: Access) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in autocommit mode, in UTC. The errors of the block are translated too."""
    if access == "ro" and not path.is_file():
        raise TableError(f"there is no DuckDB file {path}", hint="Check `path` of the connection")
    instance = _instance_of(path)
    with instance.opened(access) as writable:
        connection = _connect(path, access, instance.turn, read_only=not writable)
        try:
            with interruptible(connection.interrupt), translated(path):
                connection.execute("SET TimeZone = 'UTC'")
                yield connection
        finally:
            with instance.turn:
                connection.close()


def _connect(path: Path, access: Access, turn: threading.Lock, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Waits while another process has the file locked."""
    import duckdb

    if access == "none":
        return duckdb.connect(config=SETTINGS)
    until = time.monotonic() + timeouts.FILE_LOCK
    while True:
        try:
            with translated(path), turn:
                return duckdb.connect(path, read_only=read_only, config=SETTINGS)
        except WriteConflict:
            if time.monotonic() >= until or is_interrupted():
                raise
            time.sleep(_AGAIN)


class Instance:
    """The instance of one file in this process: whether it may write, and who uses it. Connections begin and end one
    by one, each in its ``turn``: DuckDB refuses a file whose last connection is just being closed by another thread."""

    def __init__(self, path: Path) -> None:
        self.turn = threading.Lock()
        self._path = path
        self._changed = threading.Condition()
        self._users = 0
        self._writable = False
        self._has_writer = False

    @contextmanager
    def opened(self, access: Access) -> Iterator[bool]:
        """One user of the instance, which is open until its last user ends; whether the instance may write. Readers
        wait for nobody here: a table may read its target while its source's snapshot is open, which another table's
        commit waits for."""
        if access == "none":
            yield True
            return
        writes = access == "rwc"
        with self._changed:
            if writes:
                self._wait_to_write()
            self._users += 1
            self._has_writer |= writes
            self._writable |= writes
            writable = self._writable
        try:
            yield writable
        finally:
            with self._changed:
                self._users -= 1
                self._writable &= self._users > 0
                self._has_writer &= not writes
                self._changed.notify_all()

    def _wait_to_write(self) -> None:
        def is_free() -> bool:
            return not self._has_writer and (self._writable or not self._users)

        until = time.monotonic() + timeouts.OWN_READERS
        while not is_free() and time.monotonic() < until and not is_interrupted():
            self._changed.wait(1)
        if not is_free():
            raise WriteConflict(
                f"{self._path} is still being read by other tables of this run",
                hint="Try again when they have finished",
            )


_INSTANCES: dict[Path, Instance] = {}


def _instance_of(path: Path) -> Instance:
    """The same object for the same file."""
    return _INSTANCES.setdefault(path.resolve(), Instance(path))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raises DuckDB's errors as flowctl's: locks are transient, all other errors fail the table."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise (refused(str(error)) or _explained(path, error)) from error


def _explained(path: Path, error: Exception) -> TableError | WriteConflict:
    import duckdb

    text = str(error)
    check = "Check `path` of the connection"
    if "Could not set lock on file" in text:
        holder = _HOLDER.search(text)
        by = f"by process {holder[2]} ({holder[1]})" if holder else "by another process"
        return WriteConflict(
            f"{path} is locked {by}: one process can write a DuckDB file, or several can read it",
            hint="Close it there, or try again when that process has finished",
        )
    if isinstance(error, duckdb.TransactionException) and "onflict" in text:
        return WriteConflict(f"DuckDB says: {_without_quoted(text)}", hint="Try again: another transaction was faster")
    if "not a valid DuckDB database file" in text or "sqlite_scanner" in text:
        return TableError(f"{path} is not a DuckDB file", hint=check)
    if "Trying to read a database file with version number" in text:
        version = _VERSION.search(text)
        return TableError(
            f"{path} was written by another version of DuckDB{f' (storage version {version[1]})' if version else ''}, "
            f"which DuckDB {duckdb.__version__} cannot read",
            hint="Install that version of the Python package duckdb, or rewrite the file with EXPORT DATABASE there "
            "and IMPORT DATABASE here",
        )
    if "Cannot open encrypted database" in text:
        return TableError(
            f"{path} is encrypted, which flowctl does not support", hint="Copy it to a file without encryption"
        )
    if isinstance(error, duckdb.DependencyException):
        return TableError(f"DuckDB says: {first_line(error)}", hint=DROP_WHAT_USES_IT)
    if isinstance(error, (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)):
        return StatementRefused(f"DuckDB says: {first_line(error)}", hint=f"Look at {path}")
    if isinstance(error, duckdb.DataError):  # its text contains the value
        return TableError(f"DuckDB says: {_without_values(text)}", hint=f"Look at {path}")
    if isinstance(error, (duckdb.IntegrityError, duckdb.InvalidInputException, duckdb.TransactionException)):
        return TableError(f"DuckDB says: {_without_quoted(text)}", hint=f"Look at {path}")
    return TableError(f"DuckDB says: {first_line(error)}", hint=f"Look at {path}")


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()


def _without_values(text: str) -> str:
    return re.sub(r"(?<![\w(])-?\d[\d.]*", "…", _without_quoted(text))


def _without_quoted(text: str) -> str:
    """The message without what it quotes, which may have quotes and line breaks of its own, and without the line of the
    statement that follows it."""
    message, _, _ = text.partition("\n\nLINE ")
    cut = re.sub(r"(?s)'.*'|\".*\"", "…", message)
    return cut.partition("\n")[0].strip()
