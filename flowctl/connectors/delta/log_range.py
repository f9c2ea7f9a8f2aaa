"""The commits between two versions of a table, as its log has them, and what can still be read of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from flowctl.connectors.at_once import at_once
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import commit_info, identity, read_entry
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.types import Action
from flowctl.errors import TableError

_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class LogCommit:
    """One version's changes of rows; ``removed`` and ``added`` are ``add`` actions, ``feed`` are ``cdc`` actions. All
    are empty for a commit that only wrote rows into other files (``dataChange`` is false, as OPTIMIZE writes it):
    ``moved_from`` and ``moved_to`` then are its files. A file that was live before and is added again, with other
    statistics or row ids, is among none of them. ``has_feed``: the change data feed was on. ``metadata`` is its
    ``metaData`` action, if it has one."""

    version: int
    operation: str
    has_feed: bool
    removed: tuple[Action, ...] = ()
    added: tuple[Action, ...] = ()
    feed: tuple[Action, ...] = ()
    moved_from: tuple[Action, ...] = ()
    moved_to: tuple[Action, ...] = ()
    metadata: Action | None = None

    def __str__(self) -> str:
        return f"version {self.version}{f' ({self.operation})' if self.operation else ''}"


def commits_between(lower: OpenTable, upper: OpenTable) -> tuple[LogCommit, ...]:
    """Those after ``lower`` up to ``upper``, in their order. :class:`TableError` if the log no longer has one."""
    return tuple(_commits(lower, upper))


def _commits(lower: OpenTable, upper: OpenTable) -> Iterator[LogCommit]:
    live = {identity(file): file for file in lower.files}
    has_feed = lower.properties.get(_FEED) == "true"
    for version in range(lower.version + 1, upper.version + 1):
        actions = _entry(upper, version)
        metadata = next((action["metaData"] for action in actions if "metaData" in action), None)
        if metadata is not None:
            has_feed = (metadata.get("configuration") or {}).get(_FEED) == "true"
        removes = [action["remove"] for action in actions if "remove" in action]
        removed = tuple(live.pop(identity(file), file) for file in removes)
        adds = [action["add"] for action in actions if "add" in action]
        added = tuple(file for file in adds if identity(file) not in live)
        live.update({identity(file): file for file in adds})
        operation = str(commit_info(actions).get("operation", ""))
        if any(file.get("dataChange", True) for file in (*removes, *added)):
            feed = tuple(action["cdc"] for action in actions if "cdc" in action)
            yield LogCommit(version, operation, has_feed, removed, added, feed, metadata=metadata)
        else:
            yield LogCommit(version, operation, has_feed, moved_from=removed, moved_to=added, metadata=metadata)


def _entry(table: OpenTable, version: int) -> list[Action]:
    try:
        return read_entry(table.location, version)
    except FileNotFoundError as error:
        what = f"{table.location.url}: the log no longer has version {version}"
        raise TableError(what, hint="Read the table again with --full-refresh") from error


def first_missing(location: TableLocation, files: Sequence[Action]) -> str:
    """The path of the first of these files that no longer exists; empty if all do."""
    system = location.file_system()
    there = at_once(
        lambda path: system.exists(f"{location.url}/{unquote(path)}"), {one["path"]: one["path"] for one in files}
    )
    return next((path for path, exists in there.items() if not exists), "")
