"""Names of columns that flowctl gives itself, in targets and beside them. Compared without case, as targets do."""

from __future__ import annotations

from collections.abc import Collection

#: What begins so is flowctl's own wherever it writes.
PREFIX = "_flowctl"
#: Of a history, and of a merge with soft deletes.
HISTORY = frozenset({"valid_from", "valid_to", "is_current", "row_hash"})
SOFT_DELETES = frozenset({"_deleted_at"})
#: Of a history's sidecar, beside the key, since it exists; and since.
FIRST_OBSERVED = frozenset({"_event_at", "row_hash", "_deleted", "_detected", "_arrival"})
OBSERVED = FIRST_OBSERVED | {"_effective_at", "_read_hash", "_values", "_hashed", "_lineage", "_seq", "_try"}
#: In the sidecar of a history: the values of a column that is not compared.
KEPT_PREFIX = "_value_"
#: Of a quarantine, beside the rows' columns, since it exists; and since.
FIRST_QUARANTINE = frozenset({"_seq", "_run_id", "_reason"})
QUARANTINE = FIRST_QUARANTINE | {"_lineage"}


def is_taken(name: str, names: Collection[str]) -> bool:
    """Whether a column cannot be called ``name`` where flowctl has columns with ``names``."""
    return name.lower() in names or name.lower().startswith(PREFIX)


def is_taken_for_key(name: str) -> bool:
    """Whether the key of a history cannot have this name."""
    return is_taken(name, HISTORY | OBSERVED) or name.lower().startswith(KEPT_PREFIX)
