"""Which intent a table was made for. Delta's CREATE is a commit of its own, before the data: a run that dies between
the two leaves an empty table, and only what that first commit says tells it from an empty table of somebody else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.replay import commit_actions

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Key of a CREATE's ``userMetadata``: no other commit has it, and no record of a number is mistaken for it.
_CREATED_FOR = "flowctl_created_for"
#: A table on which more has happened has been used by somebody.
_MOST_VERSIONS = 20


def marker(intent_id: str) -> dict[str, str]:
    """The ``userMetadata`` of the CREATE of a table that ``intent_id`` needs."""
    return {_CREATED_FOR: intent_id}


def created_by(location: TableLocation, table: DeltaTable) -> str:
    """The intent that ``table`` was made for, as long as nothing was committed to it; empty for any other table. Its
    columns may have been changed: a run that is finished later does that before its first commit."""
    if table.version() > _MOST_VERSIONS:
        return ""
    try:
        commits = [list(commit_actions(location, version)) for version in range(table.version() + 1)]
    except OSError:  # the log no longer begins at version 0
        return ""
    if any("add" in action or "txn" in action for commit in commits for action in commit):
        return ""
    return next((_intent(action["commitInfo"]) for action in commits[0] if "commitInfo" in action), "")


def _intent(info: Mapping[str, Any]) -> str:
    try:
        written = json.loads(info.get("userMetadata") or "null")
    except ValueError:
        return ""
    return str(written.get(_CREATED_FOR, "")) if isinstance(written, dict) else ""
