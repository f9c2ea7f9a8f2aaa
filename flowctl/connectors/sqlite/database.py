"""Opens an SQLite file, and translates its errors to flowctl's."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.embedded import Access
from flowctl.connectors.sqlite.location import Mode
from flowctl.connectors.sqlite.problems import beside, explain, uncommitted
from flowctl.errors import TableError


def greeting(path: Path, *, is_immutable: bool = False) -> str:
    """As :attr:`flowctl.connectors.base.Connector.greet`."""
    version = f"SQLite {sqlite3.sqlite_version}, file {path}"
    if not path.exists():
        return f"{version}, which is not there yet"
    with translated(path), open_database(path, "ro", is_immutable=is_immutable) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return version


@contextmanager
def open_database(path: Path, access: Access | Mode, *, is_immutable: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode: transactions begin with an explicit BEGIN. ``rwc`` creates a missing file,
    ``none`` replaces it by an empty database in memory. ``is_immutable``: as in :class:`.location.Location`."""
    if access in ("ro", "rw") and not path.is_file():
        raise TableError(f"there is no SQLite file {path}", hint="Check `path` of the connection")
    if is_immutable:
        _require_complete(path)
    with translated(path):
        connection = sqlite3.connect(
            f"{_uri(path)}?mode={access}{'&immutable=1' if is_immutable else ''}" if access != "none" else ":memory:",
            uri=True,
            timeout=timeouts.FILE_LOCK,
            isolation_level=None,
            check_same_thread=False,
        )
    try:
        if access == "ro" and not is_immutable:
            _finish_rollback(connection, path)
        yield connection
    finally:
        connection.close()


def _uri(path: Path) -> str:
    """Any bytes that a path may have, also ``?``, ``%`` and those that are no text."""
    return f"file://{quote(os.fsencode(path))}"


def _require_complete(path: Path) -> None:
    """SQLite would read an immutable file without what is still next to it: older rows, or half a transaction."""
    if other := uncommitted(path):
        raise TableError(
            f"{path} is opened with immutable=1, but {other} has changes that are not in it yet",
            hint="Remove immutable=1 from `path`, or copy the database with `VACUUM INTO`",
        )


def _finish_rollback(connection: sqlite3.Connection, path: Path) -> None:
    """Lets SQLite undo the transaction of a process that was killed in the middle of its commit. Until then the file
    cannot be read, and a connection that only reads must not do it."""
    if not beside(path, "-journal").exists():
        return
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
            return  # the caller's own query reports it
        uri = f"{_uri(path)}?mode=rw"
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
    """Raises SQLite's errors as flowctl's."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(path, error) from error


_QUOTED = re.compile(r"""'(?:[^']|'')*'|`(?:[^`]|``)*`|\[[^]]*\]|--[^\n]*|/\*.*?\*/|"((?:[^"]|"")*)\"""", re.DOTALL)


def names_only(sql: str) -> str:
    """``sql`` with backticks for double quotes, as :func:`quoted` has them. Texts, comments and other names stay."""
    return _QUOTED.sub(lambda found: found[0] if found[1] is None else quoted(found[1].replace('""', '"')), sql)


def quoted(name: str) -> str:
    """``name`` as an identifier. Not in double quotes: SQLite reads such a name, if no column has it, as a string."""
    return "`" + name.replace("`", "``") + "`"
