"""Reading what other servers have a part in: foreign tables, also below views, among partitions or in a query.

An exported snapshot does not reach them: each executor's query, and each query of another connection, would be of
another moment, and a row that moves between two parts meanwhile is lost or read twice (tested: 10,000 of 200,000). So
all of it is read in one query, over one connection, by this process into the buffer. A second query of the same table
(the keys of ``missing_keys``, the rows at an append's upper bound) is of the same moment only where the wrapper keeps
one transaction with the other server for ours: `postgres_fdw` does (REPEATABLE READ, its documentation promises it),
no other is known to, and what would need it is refused in the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.text import some


def refused(info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
    """What cannot be read as the table's spec says, because other servers have rows of it."""
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
    """For the plan; empty where all rows are this server's own."""
    names: Sequence[str] = info.extra.get("foreign") or ()
    return f"read in one part by this process ({names[0]} lies on another server)" if names else ""
