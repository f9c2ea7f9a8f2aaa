"""The terms of histories: column names, one batch as a value, and the SQL shared by observations and versions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.sql import dialects
from flowctl.sql.collations import ALIKE, Collations
from flowctl.sql.dialects import Dialect

VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH = "valid_from", "valid_to", "is_current", "row_hash"
OWN_COLUMNS = (VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH)
#: Column of the difference: ``put`` (this version is current content, whether it existed or not) or ``delete``.
CHANGE_COLUMN = "_flowctl_change"
EVENT_AT, DELETED, DETECTED, ARRIVAL = "_event_at", "_deleted", "_detected", "_arrival"
EFFECTIVE_AT, READ_HASH, VALUES, HASHED = "_effective_at", "_read_hash", "_values", "_hashed"
#: A window frame that includes all rows of the same time.
_UP_TO_HERE = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class Versioning:
    """One batch of history. ``target``, ``batch`` and ``observed`` are name parts; ``columns`` all columns of the
    target in order; ``arrival`` the batch's arrival number. ``operation`` and ``detected`` name the batch's columns.
    ``now`` is the moment of the batch, as a literal (:func:`dialects.translatable_moment`); a row with this event time
    is never followed by one with an earlier event time. ``first``: neither target nor sidecar has rows yet, so the
    batch alone determines the history. ``kept`` are the columns of the batch that are not compared, and where the
    sidecar keeps them (:func:`kept_columns`); ``compared`` are those that are, and ``new`` the compared ones that no
    earlier batch had. ``order`` is the kept column by which changes of a key are ordered: what is not newer than a
    key's observations is none. ``has_other_columns``: earlier observations may cover other columns.
    ``collations`` are the target's that MySQL does not mix with those of batch and sidecar."""

    target: tuple[str, ...]
    batch: tuple[str, ...]
    observed: tuple[str, ...]
    columns: tuple[str, ...]
    batch_columns: tuple[str, ...]
    key: tuple[str, ...]
    arrival: int
    operation: str
    detected: str
    now: str | None = None
    first: bool = False
    kept: tuple[KeptColumn, ...] = ()
    compared: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    has_other_columns: bool = False
    order: KeptColumn | None = None
    collations: Collations = ALIKE

    @property
    def hashed(self) -> str:
        """The columns that an observation's row hash covers: a token for each."""
        return " ".join(sorted(map(token_of, self.compared)))

    @property
    def business(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in (*self.key, *OWN_COLUMNS))


@dataclass(frozen=True)
class KeptColumn:
    """Column ``name`` of the target, whose values the sidecar keeps in column ``place``. An observation's ``_values``
    has the ``token`` of each of its values. Both follow from name and type: a column of another type is another
    column. ``native`` is its type where the target has the source's own."""

    name: str
    token: str
    type: DataType
    native: str = ""

    @property
    def place(self) -> str:
        return f"_value_{self.token}"


def kept_columns(
    columns: Sequence[Column], key: Sequence[str], compared: Sequence[str], present: Iterable[str]
) -> tuple[KeptColumn, ...]:
    """For a batch with the columns ``present``: the target's ``columns`` that are not compared."""
    others = {*key, *compared, *OWN_COLUMNS}
    batch = set(present)
    return tuple(
        KeptColumn(column.name, _kept_token(column), column.type, column.native)
        for column in columns
        if column.name in batch and column.name not in others
    )


def _kept_token(column: Column) -> str:
    return hashlib.sha256(f"{column.name} {column.type}".encode()).hexdigest()[:12]


def token_of(column: str) -> str:
    """Depends on the name only: a widened column keeps its hashes."""
    return hashlib.sha256(column.encode()).hexdigest()[:8]


def observed_columns(columns: Sequence[Column], key: Sequence[str], kept: Sequence[KeptColumn]) -> tuple[Column, ...]:
    """The sidecar's columns, for a target with ``columns``; a target may add its own.

    ``_event_at`` is the event time as it was read, ``_effective_at`` when the observation takes effect. Sidecars of
    older versions have no ``_effective_at`` (null: the event time), and in those a row cancels a detected deletion
    that arrived before it. ``row_hash`` is the hash of the version's row (null when deleted); ``_read_hash`` that of
    the row as it was read, if it differs. ``_hashed`` has a token for each column that ``row_hash`` covers: other
    columns were not observed, which is different from null (null in older sidecars: unknown). ``_arrival`` is one
    number for all observations of a batch, higher than all earlier ones; it is not the table's sequence number in
    state, which restarts with a new lineage.
    """
    of = {column.name: column for column in columns}
    return (
        *(Column(name, of[name].type, native=of[name].native) for name in key),
        Column(EVENT_AT, of[VALID_FROM].type),
        Column(ROW_HASH, types.STRING),
        Column(DELETED, types.BOOL),
        Column(DETECTED, types.BOOL),
        Column(ARRIVAL, types.INT64),
        Column(EFFECTIVE_AT, of[VALID_FROM].type),
        Column(READ_HASH, types.STRING),
        Column(VALUES, types.STRING),
        Column(HASHED, types.STRING),
        *(Column(one.place, one.type, native=one.native) for one in kept),
    )


def ranked(change: Versioning, keys: str) -> str:
    """SELECT of the observations of ``keys``, and of whether each counts (``_flowctl_counts``, 1 or 0): of those that
    take effect at one time (``_flowctl_at``), the last to arrive. In a sidecar of an older version, a row cancels the
    detected deletions that it follows. ``_flowctl_of_event`` is 1 for the last observation read for its event time."""
    k, at = listed("o", change.key), f"COALESCE(o.{quoted(EFFECTIVE_AT)}, o.{quoted(EVENT_AT)})"
    deleted, arrival = f"o.{quoted(DELETED)}", f"o.{quoted(ARRIVAL)}"
    is_cancelled = f"r.{quoted(DELETED)} AND r.{quoted(DETECTED)} AND r._flowctl_cancelled > r.{quoted(ARRIVAL)}"
    return f"""
            SELECT r.*, CASE WHEN r._flowctl_of_time = MIN(
                                  CASE WHEN {is_cancelled} THEN NULL ELSE r._flowctl_of_time END
                              ) OVER (PARTITION BY {listed("r", change.key)}, r._flowctl_at)
                        THEN 1 ELSE 0 END AS _flowctl_counts
            FROM (
                SELECT o.*, {at} AS _flowctl_at,
                       ROW_NUMBER() OVER (PARTITION BY {k}, {at}
                           ORDER BY {arrival} DESC, o.{quoted(EVENT_AT)} DESC) AS _flowctl_of_time,
                       MAX(CASE WHEN {deleted} OR o.{quoted(EFFECTIVE_AT)} IS NOT NULL THEN 0 ELSE {arrival} END) OVER (
                           PARTITION BY {k} ORDER BY {at} {_UP_TO_HERE}) AS _flowctl_cancelled,
                       ROW_NUMBER() OVER (PARTITION BY {k}, o.{quoted(EVENT_AT)}
                           ORDER BY {arrival} DESC) AS _flowctl_of_event
                FROM {table(change.observed)} AS o CROSS JOIN {keys} AS a WHERE {equal("a", "o", change.key)}
            ) AS r"""


def is_deletion(change: Versioning) -> str:
    """For a row ``s`` of the batch."""
    return f"(s.{quoted(change.operation)} = 'D')"


def is_detected(change: Versioning) -> str:
    """For a row ``s`` of the batch."""
    return f"COALESCE(s.{quoted(change.detected)}, FALSE)" if change.detected in change.batch_columns else "FALSE"


def render(text: str, dialect: Dialect, collations: Collations = ALIKE) -> str:
    """The text is in PostgreSQL's dialect; it contains no types and no literals except short words."""
    import sqlglot  # slow to import, and a plan renders nothing

    # In a window, MySQL cannot place nulls; here none decides the order. For others, everything can be said.
    unsupported = sqlglot.ErrorLevel.IGNORE if dialect == "mysql" else sqlglot.ErrorLevel.RAISE
    statement = collations.applied(sqlglot.parse_one(text, read="postgres"))
    return statement.sql(dialect, unsupported_level=unsupported)


def quoted(name: str) -> str:
    return dialects.quoted(name, "postgres")


def table(parts: tuple[str, ...]) -> str:
    return dialects.table(parts, "postgres")


def listed(of: str, names: Iterable[str]) -> str:
    return ", ".join(f"{of}.{quoted(name)}" if of else quoted(name) for name in names)


def equal(left: str, right: str, names: Iterable[str]) -> str:
    """Plain equality: keys, event times and hashes of rows are never null here."""
    return " AND ".join(f"{left}.{quoted(name)} = {right}.{quoted(name)}" for name in names)
