"""Tables that a write would not leave as the plan says: the plan stops them, and `state adopt` does not take them."""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.errors import StoppedByPolicy
from flowctl.model.step import Mode
from flowctl.model.table_info import TableInfo

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def refused(info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
    """See :meth:`flowctl.connectors.target.TargetRules.refuse_write`."""
    if kind := _KINDS.get(info.extra.get("kind", "")):
        return StoppedByPolicy(
            f"{info.object} is {kind}: rows written there need not be found there again, nor be committed with their "
            "sequence number",
            hint="Name a table of this database in `to`, one that is there or one to be made",
        )
    if foreign := info.extra.get("foreign"):
        return StoppedByPolicy(
            f"{info.object} has rows on another server ({listed(foreign)}), which does not commit them together with "
            "their sequence number",
            hint="Name a table in `to` whose partitions are all of this database",
        )
    if info.extra.get("row_security") and (mode != "append" or replaces):
        return StoppedByPolicy(
            f"row-level security of {info.object} may hide rows from this user, and what it hides is written twice",
            hint="Let the table's owner or a user with BYPASSRLS write it",
        )
    if (following := info.extra.get("following")) and (replaces or mode == "scd2"):
        return StoppedByPolicy(
            f"{info.object} would have rows deleted and written anew, and through a foreign key that deletes or "
            f"changes rows of {listed(following)}",
            hint="Make that foreign key ON DELETE NO ACTION DEFERRABLE INITIALLY DEFERRED, or drop it",
        )
    return None


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
