"""History: what a batch changes in a table of versions, as one portable SELECT (`semantics.md`, "scd2, exactly").

The table of versions alone cannot say what it should be after a late row: a row that was dropped because it equalled
its predecessor may start a version once something arrives between the two. So every observation is kept in a sidecar,
``<target>__observed``, and the versions of the keys a batch touches are derived from it anew.

    batch      one row per (key, event time): the target's business columns, ``valid_from`` (the event time),
               ``row_hash``, ``_flowctl_op`` (``U`` or ``D``) and ``_flowctl_detected``. A ``D`` row has only the key
               and ``valid_from``
    observed   key columns, ``_event_at``, ``row_hash`` (null when deleted), ``_deleted``, ``_detected``, ``_arrival``.
               Only ever added to. ``_arrival`` is one number for all observations of a batch, higher than any before;
               it is not the table's number in state, which starts again with a new lineage
    target     the business columns, ``valid_from``, ``valid_to``, ``is_current``, ``row_hash``; a version is its key
               and ``valid_from``

The order in every target: insert :func:`observations` into the sidecar, then apply :func:`difference` (a SQL database
keeps it in a temporary table and runs :func:`removal` and :func:`addition`; Delta runs one MERGE).

Rules, each a CTE below: of the observations with one event time the latest arrival counts; a detected deletion does
not count when a row with its event time or an earlier one arrived after it; an observation that equals its predecessor
starts nothing; a deletion ends the version before it. What a version holds comes from the batch or from any version
of the same key and hash: there always is one, because every run of equal observations starts with a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import dialects
from flowctl.sql.dialects import Dialect

VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH = "valid_from", "valid_to", "is_current", "row_hash"
#: Column of the difference: ``put`` (this version is so now, whether it was there or not) or ``delete``.
CHANGE_COLUMN = "_flowctl_change"
EVENT_AT, DELETED, DETECTED, ARRIVAL = "_event_at", "_deleted", "_detected", "_arrival"
OBSERVED_SUFFIX = "__observed"
#: A frame that takes in the rows of the same event time.
_UP_TO_HERE = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class Versioning:
    """One batch of history. ``target``, ``batch`` and ``observed`` are name parts; ``columns`` all columns of the
    target in order; ``arrival`` the batch's arrival number. ``operation`` and ``detected`` name the batch's columns.
    ``now`` says that rows of this event time cannot be followed by earlier ones; it is a literal in PostgreSQL's
    dialect (:func:`dialects.moment`), or text where timestamps are text. ``first`` says that neither target nor sidecar
    has a row before the batch's own: then the batch alone tells the history."""

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


def observed_columns(columns: Sequence[Column], key: Sequence[str]) -> tuple[Column, ...]:
    """The sidecar's columns, for a target with ``columns``; a target may add its own."""
    of = {column.name: column for column in columns}
    return (
        *(Column(name, of[name].type) for name in key),
        Column(EVENT_AT, of[VALID_FROM].type),
        Column(ROW_HASH, types.STRING),
        Column(DELETED, types.BOOL),
        Column(DETECTED, types.BOOL),
        Column(ARRIVAL, types.INT64),
    )


def next_arrival(observed: tuple[str, ...], dialect: Dialect) -> str:
    """SELECT of the next arrival number, for targets that insert observations in the same transaction."""
    return _render(f"SELECT COALESCE(MAX({_q(ARRIVAL)}), 0) + 1 AS arrival FROM {_t(observed)}", dialect)


def observations(change: Versioning, dialect: Dialect) -> str:
    """SELECT of what the batch adds to the sidecar, in the order of :func:`observed_columns`.

    Keys for which the batch says nothing new are left out: each of its rows is there already and counts, with nothing
    since that its second arrival would cancel or restore; or is a row of ``now`` that equals the current version. So
    a batch read again adds nothing, and a table read in full every day does not grow its sidecar every day.

    No correlated subqueries, here and below: SQLite, and now and then PostgreSQL, run them for every row. No DISTINCT:
    without statistics PostgreSQL 15 takes quadratic time for a parallel one, not for GROUP BY. A CROSS JOIN with
    a condition is any other engine's JOIN: SQLite then keeps the order, and looks the few keys up for each row.
    """
    deleted, detected, row_hash = _deleted(change), _detected(change), _observed_hash(change)
    added = f"""
        SELECT {_list("s", change.key)}, s.{_q(VALID_FROM)} AS {_q(EVENT_AT)}, {row_hash} AS {_q(ROW_HASH)},
               {deleted} AS {_q(DELETED)}, {detected} AS {_q(DETECTED)}, {change.arrival} AS {_q(ARRIVAL)}
        FROM {_t(change.batch)} AS s"""
    if change.first:
        return _render(added, dialect)
    news = f"{added} CROSS JOIN _flowctl_news AS f WHERE {_equal('f', 's', change.key)}"
    return _render(f"{_news(change)} {news}", dialect)


def _deleted(change: Versioning) -> str:
    return f"(s.{_q(change.operation)} = 'D')"


def _detected(change: Versioning) -> str:
    return f"COALESCE(s.{_q(change.detected)}, FALSE)" if change.detected in change.batch_columns else "FALSE"


def _observed_hash(change: Versioning) -> str:
    return f"CASE WHEN {_deleted(change)} THEN NULL ELSE s.{_q(ROW_HASH)} END"


def _news(change: Versioning) -> str:
    """The keys for which the batch says something new, as ``_flowctl_news``."""
    deleted, k = _deleted(change), change.key
    by_key = f"PARTITION BY {_list('o', k)} ORDER BY o.{_q(EVENT_AT)}"
    is_current, or_current = _unless_current(change, deleted)
    return f"""
        WITH _flowctl_touched AS (
            SELECT {_list("", k)} FROM {_t(change.batch)} GROUP BY {_list("", k)}
        ), _flowctl_seen AS (
            SELECT {_ranked(change)},
                   MAX(CASE WHEN o.{_q(DETECTED)} THEN o.{_q(ARRIVAL)} ELSE 0 END) OVER (
                       {by_key} DESC {_UP_TO_HERE}) AS _flowctl_detected_after
            FROM {_t(change.observed)} AS o CROSS JOIN _flowctl_touched AS a WHERE {_equal("a", "o", k)}
        ), _flowctl_standing AS (
            SELECT {_list("o", (*k, EVENT_AT, DELETED, DETECTED))}, COALESCE(o.{_q(ROW_HASH)}, '') AS _flowctl_state
            FROM _flowctl_seen AS o
            WHERE o._flowctl_place = 1 AND (o.{_q(DELETED)} OR o._flowctl_detected_after < o.{_q(ARRIVAL)})
              AND NOT (o.{_q(DETECTED)} AND o._flowctl_row_arrival >= o.{_q(ARRIVAL)})
        ), _flowctl_news AS (
            SELECT {_list("s", k)}
            FROM {_t(change.batch)} AS s
            LEFT JOIN _flowctl_standing AS o
              ON {_equal("o", "s", k)} AND o.{_q(EVENT_AT)} = s.{_q(VALID_FROM)} AND o.{_q(DELETED)} = {deleted}
                 AND o.{_q(DETECTED)} = {_detected(change)}
                 AND o._flowctl_state = COALESCE({_observed_hash(change)}, '')
            {is_current}
            WHERE o.{_q(EVENT_AT)} IS NULL {or_current}
            GROUP BY {_list("s", k)}
        )"""


def _ranked(change: Versioning) -> str:
    """The columns of the observations ``o``; the place of each among those of its event time, latest arrival first; and
    when the last row of this event time or an earlier one arrived."""
    k = _list("o", change.key)
    return f"""{k}, {_list("o", (EVENT_AT, ROW_HASH, DELETED, DETECTED, ARRIVAL))},
                   ROW_NUMBER() OVER (PARTITION BY {k}, o.{_q(EVENT_AT)}
                       ORDER BY o.{_q(ARRIVAL)} DESC) AS _flowctl_place,
                   MAX(CASE WHEN o.{_q(DELETED)} THEN 0 ELSE o.{_q(ARRIVAL)} END) OVER (
                       PARTITION BY {k} ORDER BY o.{_q(EVENT_AT)} {_UP_TO_HERE}) AS _flowctl_row_arrival"""


def _unless_current(change: Versioning, deleted: str) -> tuple[str, str]:
    """The join with the current versions that rows of ``now`` equal, and the condition that there is none."""
    if change.now is None:
        return "", ""
    join = f"""LEFT JOIN {_t(change.target)} AS t
        ON {_equal("t", "s", change.key)} AND t.{_q(IS_CURRENT)} AND t.{_q(ROW_HASH)} = s.{_q(ROW_HASH)}
           AND NOT {deleted} AND s.{_q(VALID_FROM)} = {change.now} AND t.{_q(VALID_FROM)} <= {change.now}"""
    return join, f"AND t.{_q(VALID_FROM)} IS NULL"


def difference(change: Versioning, dialect: Dialect) -> str:
    """SELECT of all columns of the target and :data:`CHANGE_COLUMN`: the versions that are new or end differently,
    and those that are no longer (of these only key and ``valid_from``). Versions that stay as they are do not appear.
    Read after the observations are in."""
    if change.first:
        return _render(_first(change), dialect)
    key, held, k = _list("", change.key), _list("", (*change.key, ROW_HASH)), change.key
    by_key = f"PARTITION BY {key} ORDER BY {_q(EVENT_AT)}"
    business = [name for name in change.columns if name not in (*k, VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH)]
    fresh = [f"s.{_q(name)}" if name in change.batch_columns else f"NULL AS {_q(name)}" for name in business]
    return _render(
        f"""
        WITH _flowctl_affected AS (
            SELECT {key} FROM {_t(change.observed)} WHERE {_q(ARRIVAL)} = {change.arrival} GROUP BY {key}
        ), _flowctl_ranked AS (
            SELECT {_ranked(change)}
            FROM {_t(change.observed)} AS o CROSS JOIN _flowctl_affected AS a WHERE {_equal("a", "o", k)}
        ), _flowctl_counting AS (
            SELECT {key}, {_q(EVENT_AT)}, CASE WHEN {_q(DELETED)} THEN '' ELSE {_q(ROW_HASH)} END AS _flowctl_state
            FROM _flowctl_ranked
            WHERE _flowctl_place = 1 AND NOT ({_q(DETECTED)} AND _flowctl_row_arrival > {_q(ARRIVAL)})
        ), _flowctl_before AS (
            SELECT {_list("t", change.columns)}
            FROM {_t(change.target)} AS t CROSS JOIN _flowctl_affected AS a WHERE {_equal("a", "t", k)}
        ), _flowctl_contents AS (
            SELECT {_list("s", (*k, VALID_FROM, ROW_HASH))}, {"".join(f"{one}, " for one in fresh)}
                   1 AS _flowctl_in_batch
            FROM {_t(change.batch)} AS s WHERE s.{_q(change.operation)} = 'U'
            UNION ALL
            SELECT {_list("t", (*k, VALID_FROM, ROW_HASH, *business))}, 0 FROM _flowctl_before AS t
        ), _flowctl_known AS (
            SELECT c.* FROM _flowctl_counting AS c
            LEFT JOIN (SELECT {held} FROM _flowctl_contents GROUP BY {held}) AS h
              ON {_equal("h", "c", k)} AND h.{_q(ROW_HASH)} = c._flowctl_state
            WHERE c._flowctl_state = '' OR h.{_q(ROW_HASH)} IS NOT NULL
        ), _flowctl_steps AS (
            SELECT c.*, LAG(_flowctl_state) OVER ({by_key}) AS _flowctl_previous FROM _flowctl_known AS c
        ), _flowctl_turns AS (
            SELECT {key}, {_q(EVENT_AT)}, _flowctl_state, LEAD({_q(EVENT_AT)}) OVER ({by_key}) AS _flowctl_next
            FROM _flowctl_steps WHERE _flowctl_previous IS NULL OR _flowctl_previous <> _flowctl_state
        ), _flowctl_both AS (
            SELECT {key}, {_q(EVENT_AT)} AS {_q(VALID_FROM)}, _flowctl_next AS _flowctl_new_end,
                   _flowctl_state AS _flowctl_new_hash, NULL AS _flowctl_old_end, NULL AS _flowctl_old_hash
            FROM _flowctl_turns WHERE _flowctl_state <> ''
            UNION ALL
            SELECT {_list("t", k)}, t.{_q(VALID_FROM)}, NULL, NULL, t.{_q(VALID_TO)}, t.{_q(ROW_HASH)}
            FROM _flowctl_before AS t
        ), _flowctl_changed AS (
            SELECT {key}, {_q(VALID_FROM)}, MAX(_flowctl_new_end) AS {_q(VALID_TO)},
                   MAX(_flowctl_new_hash) AS {_q(ROW_HASH)}
            FROM _flowctl_both GROUP BY {key}, {_q(VALID_FROM)}
            HAVING MAX(_flowctl_new_hash) IS DISTINCT FROM MAX(_flowctl_old_hash)
                OR MAX(_flowctl_new_end) IS DISTINCT FROM MAX(_flowctl_old_end)
        ), _flowctl_filled AS (
            SELECT {_list("v", (*k, VALID_FROM, VALID_TO, ROW_HASH))}, {_list("h", business)}{"," if business else ""}
                   ROW_NUMBER() OVER (PARTITION BY {_list("v", k)}, v.{_q(VALID_FROM)}
                       ORDER BY CASE WHEN h.{_q(VALID_FROM)} = v.{_q(VALID_FROM)} THEN 0 ELSE 1 END,
                                h._flowctl_in_batch, h.{_q(VALID_FROM)} DESC) AS _flowctl_place
            FROM _flowctl_changed AS v LEFT JOIN _flowctl_contents AS h ON {_equal("h", "v", (*k, ROW_HASH))}
        )
        SELECT {", ".join(_derived(name) for name in change.columns)},
               CASE WHEN w.{_q(ROW_HASH)} IS NULL THEN 'delete' ELSE 'put' END AS {_q(CHANGE_COLUMN)}
        FROM _flowctl_filled AS w WHERE w._flowctl_place = 1
        """,
        dialect,
    )


def _first(change: Versioning) -> str:
    """:func:`difference` where nothing was before: no more than the batch's own runs of equal rows."""
    by_key = f"PARTITION BY {_list('', change.key)} ORDER BY {_q(VALID_FROM)}"
    state = f"CASE WHEN {_deleted(change)} THEN '' ELSE s.{_q(ROW_HASH)} END"
    return f"""
        WITH _flowctl_states AS (
            SELECT s.*, {state} AS _flowctl_state FROM {_t(change.batch)} AS s
        ), _flowctl_steps AS (
            SELECT s.*, LAG(_flowctl_state) OVER ({by_key}) AS _flowctl_previous FROM _flowctl_states AS s
        ), _flowctl_turns AS (
            SELECT s.*, LEAD({_q(VALID_FROM)}) OVER ({by_key}) AS {_q(VALID_TO)}
            FROM _flowctl_steps AS s WHERE _flowctl_previous IS NULL OR _flowctl_previous <> _flowctl_state
        )
        SELECT {", ".join(_told(name, change) for name in change.columns)}, 'put' AS {_q(CHANGE_COLUMN)}
        FROM _flowctl_turns AS w WHERE w._flowctl_state <> ''"""


def _told(name: str, change: Versioning) -> str:
    derived = (*change.batch_columns, VALID_TO, IS_CURRENT)
    return _derived(name) if name in derived else f"NULL AS {_q(name)}"


def _derived(name: str) -> str:
    return f"(w.{_q(VALID_TO)} IS NULL) AS {_q(IS_CURRENT)}" if name == IS_CURRENT else f"w.{_q(name)}"


def removal(change: Versioning, differences: tuple[str, ...], dialect: Dialect) -> str:
    """DELETE of the versions that ``differences`` (a table holding :func:`difference`) deletes or puts anew."""
    version = _list("", (*change.key, VALID_FROM))
    return _render(
        f"DELETE FROM {_t(change.target)} WHERE ({version}) IN (SELECT {version} FROM {_t(differences)})", dialect
    )


def addition(change: Versioning, differences: tuple[str, ...], dialect: Dialect) -> str:
    """INSERT of the versions that ``differences`` puts."""
    return _render(
        f"""INSERT INTO {_t(change.target)} ({_list("", change.columns)})
            SELECT {_list("d", change.columns)} FROM {_t(differences)} AS d WHERE d.{_q(CHANGE_COLUMN)} = 'put'""",
        dialect,
    )


def _render(text: str, dialect: Dialect) -> str:
    """The text is PostgreSQL's dialect; no types and no literals but short words stand in it."""
    import sqlglot  # a plan renders nothing, and it takes long to import

    return sqlglot.transpile(text, read="postgres", write=dialect)[0]


def _q(name: str) -> str:
    return dialects.quoted(name, "postgres")


def _t(parts: tuple[str, ...]) -> str:
    return dialects.table(parts, "postgres")


def _list(of: str, names: Iterable[str]) -> str:
    return ", ".join(f"{of}.{_q(name)}" if of else _q(name) for name in names)


def _equal(left: str, right: str, names: Iterable[str]) -> str:
    """Plain equality: keys, event times and hashes of rows are never null here."""
    return " AND ".join(f"{left}.{_q(name)} = {right}.{_q(name)}" for name in names)
