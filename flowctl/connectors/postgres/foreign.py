"""Reading relations with rows on other servers: foreign tables, also below views, among partitions or in a query.

An exported snapshot does not cover them: the query of each executor, and of each other connection, would see another
moment, and a row that moves between two parts meanwhile is lost or read twice (tested: 10,000 of 200,000). So this
process reads everything in one query, over one connection, into the buffer. A second query of the same table (the keys
of ``missing_keys``, the rows at an append's upper bound) sees the same moment only if the wrapper keeps one transaction
with the other server for flowctl's: `postgres_fdw` does (REPEATABLE READ, guaranteed by its documentation), no other is
known to, so the plan refuses a table that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.text import some


def refused(info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
    """The error for a table that cannot be read as its spec requires, because other servers hold some of its rows."""
    names: Sequence[str] = info.extra.get("foreign") or ()
    if not names:
        return None
    if (hints.splits or 1) > 1 or hints.split_by != "auto":
        return StoppedByPolicy(
            f"{info.object} cannot be read in parts: {some(names)} lies on another server, which a snapshot of this "
            "one does not reach, so rows could be lost or read twice",
            hint="Remove `read.splits` and `read.split_by`, or read the other server by a connection of its own",
        )
    if reads_twice and not info.extra.get("repeatable"):
        return StoppedByPolicy(
            f"{info.object} cannot be read by this table: it takes two queries of one moment, and the foreign data "
            f"wrapper of {some(names)} gives each query its own",
            hint="Read the other server by a connection of its own, or use mode: truncate without missing_keys",
        )
    return None


def explained(info: TableInfo) -> str:
    """Text for the plan; empty if all rows are on this server."""
    names: Sequence[str] = info.extra.get("foreign") or ()
    return f"read in one part by this process ({names[0]} lies on another server)" if names else ""
