"""A table as one version of its log: what a commit stands on is asked of one opened table, never of two.

A question asked of the log before it is opened, or of a second handle, may be answered by another version: between the
two somebody else commits, and what was free is taken. So each try opens the table once, asks that very version for our
sequence number, for the live files and for the protocol, and commits as the version after it. Whoever else commits in
between takes that version, and the try begins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta import log, replay
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.replay import LogSnapshot
from flowctl.connectors.standing import check_base
from flowctl.errors import StateConflict, TableError
from flowctl.model.commit import commit_name
from flowctl.model.table_info import ObjectName, TableInfo

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class OpenedTable:
    """Every answer is about ``version``, whatever was committed since."""

    location: TableLocation
    handle: DeltaTable

    @cached_property
    def version(self) -> int:
        return int(self.handle.version())

    @cached_property
    def identity(self) -> str:
        return str(self.handle.metadata().id)

    @cached_property
    def snapshot(self) -> LogSnapshot:
        return replay.replayed(self.location, self.version)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows to compare with."""
        return log.is_empty(self.handle)

    def info(self, object: ObjectName) -> TableInfo:
        return log.table_info(object, self.handle)

    def newest(self, app: str) -> LoggedCommit | None:
        """The commit of the newest sequence number of ``app``."""
        return log.newest_record(self.location, self.handle, app)

    def standing(self, app: str, record: Mapping[str, Any], base: str | None = None) -> LoggedCommit | None:
        """The commit of this very intent, or None while its number is free. :class:`StateConflict` when the number is
        somebody else's, or was given up: a void answers only to another void; or when it is free, and the newest commit
        is not ``base``."""
        found = self.newest(app)
        if found is None or found.record["seq"] < record["seq"]:
            newest = commit_name(found.record["seq"], found.record["intent_id"]) if found else ""
            check_base(self.location.url, newest, base)
            return None
        if (found.record["seq"], found.record["intent_id"]) != (record["seq"], record["intent_id"]):
            raise StateConflict(
                f"{self.location.url} has number {found.record['seq']} of intent "
                f"{found.record['intent_id'] or 'unknown'}, not number {record['seq']} of intent {record['intent_id']}",
                hint="Look at `flowctl state show`, then plan again: another run wrote this table",
            )
        if found.record["void"] and not record["void"]:
            raise StateConflict(
                f"number {record['seq']} of {record['table']} was given up", hint="Plan again: the next number is free"
            )
        return found


def open_newest(location: TableLocation) -> OpenedTable | None:
    """The table's newest version; None when nothing is there. Errors as :func:`log.open_table`."""
    handle = log.open_table(location)
    return OpenedTable(location, handle) if handle is not None else None


def open_existing(location: TableLocation) -> OpenedTable:
    """As :func:`open_newest`; :class:`TableError` when nothing is there."""
    found = open_newest(location)
    if found is None:
        raise TableError(f"there is no table {location.url}", hint="Plan again: it was dropped since the plan was made")
    return found


def find_standing(location: TableLocation, app: str, record: Mapping[str, Any]) -> LoggedCommit | None:
    """:meth:`OpenedTable.standing` of the newest version. What is free there may be taken a moment later: nothing may
    be committed on this answer alone."""
    table = open_newest(location)
    return table.standing(app, record) if table is not None else None
