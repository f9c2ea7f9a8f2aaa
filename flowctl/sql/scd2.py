"""History: the changes that a batch makes to a table of versions, as one portable SELECT.
`tests/sql/history.py` is the same definition in plain Python.

The table of versions alone does not determine the result of a late row: a row that was dropped because it equalled its
predecessor may start a version once another row arrives between the two. So every observation is kept in a sidecar,
``<target>__observed``, and the versions of the keys in a batch are derived from it each time.

    batch      one row per (key, event time): the target's business columns, ``valid_from`` (the event time),
               ``row_hash``, ``_flowctl_op`` (``U`` or ``D``) and ``_flowctl_detected``. A ``D`` row has only the key
               and ``valid_from``
    observed   see :func:`flowctl.sql.versioning.observed_columns`. Append-only
    target     the business columns, ``valid_from``, ``valid_to``, ``is_current``, ``row_hash``; a version is its key
               and ``valid_from``

The order in every target: insert :func:`flowctl.sql.observations.observations` into the sidecar, then apply
:func:`difference` (a SQL database keeps it in a temporary table and runs :func:`removal` and :func:`addition`, or
:func:`applied_in_place`; Delta runs one MERGE).

An observation takes effect at its event time. A change without a newer event time takes effect when it was read
(the moment of the batch, fixed in the intent), or at the key's newest observation if that is later: a flag that is set
or cleared, a missing key whose event time is in the future, a key that returns with its old event time.

Of the observations that take effect at one time, the latest arrival counts: what a row said that was replaced or
deleted at the time at which it began was never valid, and is no version. An observation that equals its predecessor
starts nothing; a deletion ends the version before it. A version holds the row that was read with its first
observation: compared columns are those of any version of the same key and hash (there always is one, because every
run of equal observations starts with a version), the others are kept in the sidecar.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowctl.sql.dialects import Dialect, deletion
from flowctl.sql.versioning import (
    ARRIVAL,
    CHANGE_COLUMN,
    DELETED,
    EFFECTIVE_AT,
    EVENT_AT,
    HASHED,
    IS_CURRENT,
    READ_HASH,
    ROW_HASH,
    VALID_FROM,
    VALID_TO,
    VALUES,
    Versioning,
    equal,
    is_deletion,
    listed,
    quoted,
    ranked,
    render,
    table,
)


def next_arrival(observed: tuple[str, ...], dialect: Dialect) -> str:
    """SELECT of the next arrival number, for targets that insert observations in the same transaction, and of the
    minimum and maximum of :attr:`Versioning.hashed`, the columns that observations cover."""
    arrival, hashed = f"COALESCE(MAX({quoted(ARRIVAL)}), 0) + 1", quoted(HASHED)
    return render(f"SELECT {arrival} AS arrival, MIN({hashed}), MAX({hashed}) FROM {table(observed)}", dialect)


def after(change: Versioning, hashed: Iterable[str | None]) -> Versioning:
    """``change`` after observations that cover the columns ``hashed``."""
    return replace(change, has_other_columns=not {*hashed} <= {None, change.hashed})


def difference(change: Versioning, dialect: Dialect) -> str:
    """SELECT of all columns of the target and :data:`CHANGE_COLUMN`: the versions that are new or end differently, and
    those that no longer exist (of these only key and ``valid_from``). Unchanged versions do not appear. Read after the
    observations have been inserted."""
    if change.first:
        return render(_first(change), dialect)
    k, key, by_hash = change.key, listed("", change.key), listed("", (*change.key, ROW_HASH))
    in_order = f"PARTITION BY {key} ORDER BY _flowctl_at"
    business, places = change.business, [VALUES, *(one.place for one in change.kept)]
    fresh = [f"s.{quoted(name)}" if name in change.batch_columns else f"NULL AS {quoted(name)}" for name in business]
    return render(
        f"""
        WITH _flowctl_affected AS (
            SELECT {key} FROM {table(change.observed)} WHERE {quoted(ARRIVAL)} = {change.arrival} GROUP BY {key}
        ), _flowctl_ranked AS ({ranked(change, "_flowctl_affected")}
        ), _flowctl_counting AS (
            SELECT {key}, _flowctl_at, {listed("", places)},
                   CASE WHEN {quoted(ARRIVAL)} = {change.arrival} AND {quoted(READ_HASH)} IS NULL
                        THEN 1 ELSE 0 END AS _flowctl_is_new,
                   CASE WHEN {quoted(DELETED)} THEN '' ELSE {quoted(ROW_HASH)} END AS _flowctl_state
            FROM _flowctl_ranked WHERE _flowctl_counts = 1
        ), _flowctl_before AS (
            SELECT {listed("t", change.columns)}
            FROM {table(change.target)} AS t CROSS JOIN _flowctl_affected AS a WHERE {equal("a", "t", k)}
        ), _flowctl_contents AS (
            SELECT {listed("t", (*k, VALID_FROM, ROW_HASH, *business))}, 0 AS _flowctl_in_batch
            FROM _flowctl_before AS t
            UNION ALL
            SELECT {listed("s", (*k, VALID_FROM, ROW_HASH))}{"".join(f", {one}" for one in fresh)}, 1
            FROM {table(change.batch)} AS s WHERE s.{quoted(change.operation)} = 'U'
        ), _flowctl_known AS (
            SELECT c.* FROM _flowctl_counting AS c
            LEFT JOIN (SELECT {by_hash} FROM _flowctl_contents GROUP BY {by_hash}) AS h
              ON {equal("h", "c", k)} AND h.{quoted(ROW_HASH)} = c._flowctl_state
            WHERE c._flowctl_state = '' OR h.{quoted(ROW_HASH)} IS NOT NULL
        ), _flowctl_steps AS (
            SELECT c.*, LAG(_flowctl_state) OVER ({in_order}) AS _flowctl_previous FROM _flowctl_known AS c
        ), _flowctl_turns AS (
            SELECT {key}, _flowctl_at, _flowctl_state, _flowctl_is_new, {listed("", places)},
                   LEAD(_flowctl_at) OVER ({in_order}) AS _flowctl_next
            FROM _flowctl_steps WHERE _flowctl_previous IS NULL OR _flowctl_previous <> _flowctl_state
        ), _flowctl_both AS (
            SELECT {key}, _flowctl_at AS {quoted(VALID_FROM)}, _flowctl_next AS _flowctl_new_end,
                   _flowctl_state AS _flowctl_new_hash, NULL AS _flowctl_old_end, NULL AS _flowctl_old_hash,
                   _flowctl_is_new
            FROM _flowctl_turns WHERE _flowctl_state <> ''
            UNION ALL
            SELECT {listed("t", k)}, t.{quoted(VALID_FROM)}, NULL, NULL, t.{quoted(VALID_TO)}, t.{quoted(ROW_HASH)}, 0
            FROM _flowctl_before AS t
        ), _flowctl_changed AS (
            SELECT {key}, {quoted(VALID_FROM)}, MAX(_flowctl_new_end) AS {quoted(VALID_TO)},
                   MAX(_flowctl_new_hash) AS {quoted(ROW_HASH)}
            FROM _flowctl_both GROUP BY {key}, {quoted(VALID_FROM)}
            HAVING MAX(_flowctl_new_hash) IS DISTINCT FROM MAX(_flowctl_old_hash)
                OR MAX(_flowctl_new_end) IS DISTINCT FROM MAX(_flowctl_old_end) OR MAX(_flowctl_is_new) = 1
        ), _flowctl_filled AS (
            SELECT {listed("v", (*k, VALID_FROM, VALID_TO, ROW_HASH))},
                   {"".join(f"{_content(name, change)} AS {quoted(name)}, " for name in business)}
                   ROW_NUMBER() OVER (PARTITION BY {listed("v", k)}, v.{quoted(VALID_FROM)}
                       ORDER BY CASE WHEN h.{quoted(VALID_FROM)} = v.{quoted(VALID_FROM)} THEN 0 ELSE 1 END,
                                h._flowctl_in_batch, h.{quoted(VALID_FROM)} DESC) AS _flowctl_place
            FROM _flowctl_changed AS v
            LEFT JOIN _flowctl_turns AS u ON {equal("u", "v", k)} AND u._flowctl_at = v.{quoted(VALID_FROM)}
                 AND u._flowctl_state = v.{quoted(ROW_HASH)}
            LEFT JOIN _flowctl_contents AS h ON {equal("h", "v", (*k, ROW_HASH))}
        )
        SELECT {", ".join(_derived(name) for name in change.columns)},
               CASE WHEN w.{quoted(ROW_HASH)} IS NULL THEN 'delete' ELSE 'put' END AS {quoted(CHANGE_COLUMN)}
        FROM _flowctl_filled AS w WHERE w._flowctl_place = 1
        """,
        dialect,
        change.collations,
    )


def _content(name: str, change: Versioning) -> str:
    """A business column of a version: the value that its observation ``u`` has kept, otherwise the value found by
    hash."""
    for one in change.kept:
        if one.name == name:
            has_kept = f"u.{quoted(VALUES)} LIKE '%{one.token}%'"
            return f"CASE WHEN {has_kept} THEN u.{quoted(one.place)} ELSE h.{quoted(name)} END"
    return f"h.{quoted(name)}"


def _first(change: Versioning) -> str:
    """:func:`difference` for an empty target: only the batch's own runs of equal rows."""
    by_key = f"PARTITION BY {listed('', change.key)} ORDER BY {quoted(VALID_FROM)}"
    state = f"CASE WHEN {is_deletion(change)} THEN '' ELSE s.{quoted(ROW_HASH)} END"
    return f"""
        WITH _flowctl_states AS (
            SELECT s.*, {state} AS _flowctl_state FROM {table(change.batch)} AS s
        ), _flowctl_steps AS (
            SELECT s.*, LAG(_flowctl_state) OVER ({by_key}) AS _flowctl_previous FROM _flowctl_states AS s
        ), _flowctl_turns AS (
            SELECT s.*, LEAD({quoted(VALID_FROM)}) OVER ({by_key}) AS {quoted(VALID_TO)}
            FROM _flowctl_steps AS s WHERE _flowctl_previous IS NULL OR _flowctl_previous <> _flowctl_state
        )
        SELECT {", ".join(_known_value(name, change) for name in change.columns)}, 'put' AS {quoted(CHANGE_COLUMN)}
        FROM _flowctl_turns AS w WHERE w._flowctl_state <> ''"""


def _known_value(name: str, change: Versioning) -> str:
    derived = (*change.batch_columns, VALID_TO, IS_CURRENT)
    return _derived(name) if name in derived else f"NULL AS {quoted(name)}"


def _derived(name: str) -> str:
    return f"(w.{quoted(VALID_TO)} IS NULL) AS {quoted(IS_CURRENT)}" if name == IS_CURRENT else f"w.{quoted(name)}"


def removal(change: Versioning, differences: tuple[str, ...], dialect: Dialect) -> str:
    """DELETE of the versions that ``differences`` (a table with :func:`difference`) deletes or replaces."""
    version = (*change.key, VALID_FROM)
    rows = render(f"SELECT {listed('', version)} FROM {table(differences)}", dialect)
    return deletion(change.target, version, rows, dialect, change.collations)


def addition(change: Versioning, differences: tuple[str, ...], dialect: Dialect) -> str:
    """INSERT of the versions that ``differences`` adds or replaces."""
    return render(
        f"""INSERT INTO {table(change.target)} ({listed("", change.columns)})
            SELECT {listed("d", change.columns)} FROM {table(differences)} AS d
            WHERE d.{quoted(CHANGE_COLUMN)} = 'put'""",
        dialect,
    )


def unobserved(change: Versioning, differences: tuple[str, ...], dialect: Dialect) -> str:
    """SELECT of the number of versions that ``differences`` deletes although no observation ever started them: the
    cause is not this batch, but a sidecar that is older than the table."""
    began = f"COALESCE(o.{quoted(EFFECTIVE_AT)}, o.{quoted(EVENT_AT)}) = t.{quoted(VALID_FROM)}"
    return render(
        f"""
        SELECT COUNT(*) FROM {table(differences)} AS d CROSS JOIN {table(change.target)} AS t
        LEFT JOIN {table(change.observed)} AS o ON {equal("o", "t", (*change.key, ROW_HASH))} AND {began}
        WHERE {equal("d", "t", (*change.key, VALID_FROM))} AND d.{quoted(CHANGE_COLUMN)} = 'delete'
              AND o.{quoted(ARRIVAL)} IS NULL
        """,
        dialect,
        change.collations,
    )


def standing(change: Versioning, differences: tuple[str, ...], dialect: Dialect) -> str:
    """SELECT of the versions of ``differences`` that exist in the target."""
    version = (*change.key, VALID_FROM)
    own, target, rows = listed("t", version), table(change.target), table(differences)
    if dialect == "duckdb":  # an IN does not compare a TIME with its text
        return render(f"SELECT {own} FROM {target} AS t JOIN {rows} AS d ON {equal('d', 't', version)}", dialect)
    query = f"SELECT {own} FROM {target} AS t WHERE ({own}) IN (SELECT {listed('', version)} FROM {rows})"
    return render(query, dialect, change.collations)


def applied_in_place(
    change: Versioning, differences: tuple[str, ...], there: tuple[str, ...], dialect: Dialect
) -> tuple[str, str, str]:
    """UPDATE, DELETE and INSERT with the effect of :func:`removal` and :func:`addition`, for a target with
    further columns: an existing version keeps their values, a new one gets their defaults. ``there`` is a table with
    :func:`standing`."""
    version = (*change.key, VALID_FROM)
    values = ", ".join(f"{quoted(name)} = d.{quoted(name)}" for name in change.columns if name not in version)
    is_put = f"d.{quoted(CHANGE_COLUMN)} = 'put'"
    update = f"""UPDATE {table(change.target)} AS t SET {values} FROM {table(differences)} AS d
                 WHERE {is_put} AND {equal("d", "t", version)}"""
    deleted = f"SELECT {listed('', version)} FROM {table(differences)} WHERE {quoted(CHANGE_COLUMN)} = 'delete'"
    delete = deletion(change.target, version, render(deleted, dialect), dialect, change.collations)
    insert = f"""INSERT INTO {table(change.target)} ({listed("", change.columns)})
                 SELECT {listed("d", change.columns)} FROM {table(differences)} AS d
                 LEFT JOIN {table(there)} AS h ON {equal("h", "d", version)}
                 WHERE {is_put} AND h.{quoted(VALID_FROM)} IS NULL"""
    return render(update, dialect, change.collations), delete, render(insert, dialect)
