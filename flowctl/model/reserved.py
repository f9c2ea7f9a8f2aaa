"""Column names reserved for flowctl, in targets and in their sidecars. Compared case-insensitively, as targets do."""

from __future__ import annotations

from collections.abc import Collection

#: Prefix reserved for flowctl's own names wherever it writes.
PREFIX = "_flowctl"
#: Columns of a history, and of a merge with soft deletes.
HISTORY = frozenset({"valid_from", "valid_to", "is_current", "row_hash"})
SOFT_DELETES = frozenset({"_deleted_at"})
#: Columns of a history's sidecar in addition to the key: those of its first version, and all current ones.
FIRST_OBSERVED = frozenset({"_event_at", "row_hash", "_deleted", "_detected", "_arrival"})
OBSERVED = FIRST_OBSERVED | {"_effective_at", "_read_hash", "_values", "_hashed", "_lineage", "_seq", "_try"}
#: Prefix of sidecar columns that hold the values of a history's columns that are not compared.
KEPT_PREFIX = "_value_"
#: Columns of a quarantine in addition to the rows' own: those of its first version, and all current ones.
FIRST_QUARANTINE = frozenset({"_seq", "_run_id", "_reason"})
QUARANTINE = FIRST_QUARANTINE | {"_lineage"}
#: Further ones where rows of files that cannot be read are kept.
BAD_ROWS = frozenset({"_line", "_raw"})
#: Those of a place for dead letters that several tables may share.
LETTERS = QUARANTINE | {"_table"}


def is_taken(name: str, names: Collection[str]) -> bool:
    """Whether ``name`` is reserved where flowctl has columns called ``names``."""
    return name.lower() in names or name.lower().startswith(PREFIX)


def is_taken_for_key(name: str) -> bool:
    """Whether ``name`` is reserved for the key of a history."""
    return is_taken(name, HISTORY | OBSERVED) or name.lower().startswith(KEPT_PREFIX)
