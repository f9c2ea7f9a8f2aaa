"""SQLite's errors in flowctl's words. It reports most problems of files and folders in the same few words, so the cause
is looked for in the file system."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

from flowctl.connectors.sql.file import begins_with
from flowctl.connectors.sql.hindrances import DROP_WHAT_USES_IT
from flowctl.errors import FlowctlError, StatementRefused, TableError, WriteConflict

#: Bytes 18 and 19 of a file in WAL mode. Source: sqlite.org, "Database File Format", section 1.3.3.
_WAL_MODE = b"\2\2"
#: How a rollback journal begins that is not finished. Source: the same, section 3.
_UNFINISHED = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
#: What Python says of a text that is not UTF-8. The text itself follows.
_UNDECODED = re.compile(r"Could not decode to UTF-8 column '(.*?)' with text '", re.DOTALL)


def explain(path: Path, error: sqlite3.Error) -> FlowctlError:
    """Locks are transient, all other errors fail the table."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return WriteConflict(f"{path} is locked by another process", hint="Try again when it has finished")
    if name.startswith("SQLITE_NOTADB"):
        return TableError(f"{path} is not an SQLite file", hint="Check `path` of the connection")
    if name.startswith("SQLITE_CORRUPT"):
        hint = "Restore it from a copy; `PRAGMA integrity_check` lists what is damaged"
        return TableError(f"{path} is damaged, SQLite says: {error}", hint=hint)
    if name.startswith("SQLITE_FULL"):
        return TableError(f"the disk of {path} is full", hint="Make room on it, and run again")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) and (found := _of_permissions(path)):
        return found
    if undecoded := undecoded_column(error):
        return TableError(f"{path}: {not_utf8(undecoded)}", hint=NOT_UTF8)
    if " after drop column: " in str(error):
        return TableError(f"SQLite says: {error}", hint=DROP_WHAT_USES_IT)
    if name == "SQLITE_ERROR" or isinstance(error, sqlite3.ProgrammingError):  # which is Python's own, without a name
        return StatementRefused(f"SQLite says: {error}", hint=f"Look at {path}")
    return TableError(f"SQLite says: {error}", hint=f"Look at {path}")


def undecoded_column(error: sqlite3.Error) -> str:
    """The column of a result that holds a text which is not UTF-8; empty if that is not the error."""
    found = _UNDECODED.match(str(error))
    return found[1] if found else ""


def not_utf8(column: str) -> str:
    return f"column {column} holds text that is not UTF-8"


NOT_UTF8 = "Fix the text, leave the column out, or read the table by a query in which hex() makes text of it"


def uncommitted(path: Path) -> Path | None:
    """The file next to ``path`` that has changes which are not in it yet."""
    wal, journal = beside(path, "-wal"), beside(path, "-journal")
    if wal.is_file() and wal.stat().st_size:
        return wal
    return journal if begins_with(journal, _UNFINISHED) else None


def beside(path: Path, suffix: str) -> Path:
    """SQLite's own file of this suffix."""
    return path.with_name(f"{path.name}{suffix}")


def _of_permissions(path: Path) -> TableError | None:
    """What this user cannot do, in the order in which SQLite needs it."""
    folder = path.parent
    if not folder.is_dir():
        return TableError(f"there is no folder {folder}", hint="Create it, or correct `path` of the connection")
    if path.is_dir():
        return TableError(f"{path} is a folder", hint="Give the path of a file in `path` of the connection")
    if path.exists() and not os.access(path, os.R_OK):
        return TableError(f"{path} cannot be read", hint=f"Let this user read {path}")
    if begins_with(path, _WAL_MODE, at=18) and (refused := _of_wal(path)):
        return refused
    if path.exists() and not os.access(path, os.W_OK):
        return TableError(f"{path} cannot be written", hint=f"Let this user write {path}")
    if not os.access(folder, os.W_OK):
        waits = " to undo the transaction of a process that was killed" if uncommitted(path) else ""
        message = f"{folder} cannot be written, where SQLite needs files of its own{waits}"
        return TableError(message, hint=f"Let this user write {folder}")
    return None


def _of_wal(path: Path) -> TableError | None:
    """In WAL mode, a reader writes too: the index of the log, which all processes share."""
    what = f"{path} is in WAL mode, in which readers too write {path.name}-shm and {path.name}-wal next to it"
    for own in (beside(path, "-shm"), beside(path, "-wal")):
        if own.exists() and not os.access(own, os.R_OK | os.W_OK):
            return TableError(f"{what}: {own} cannot be written", hint=f"Let this user write {own}")
    if os.access(path.parent, os.W_OK):
        return None
    hint = f"Let this user write {path.parent}"
    if not uncommitted(path):
        hint += "; if nobody changes the file while it is read, write `path: file:FILE?immutable=1` instead"
    return TableError(f"{what}: {path.parent} cannot be written", hint=hint)
