"""The tables that a SQL table reads. The loader turns each ``ref('id')`` into the marker ``{{ref:id}}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowctl.sql import dialects

#: SQL that reads columns without naming them and that sqlglot parses as something else: ``TABLE t``, ``f(TABLE t)``,
#: computed names, pipes.
_UNNAMED = re.compile(r"\b(?:table|identifier)\b|\|>", re.IGNORECASE)
_MARKER = re.compile(r"\{\{ref:([^}]*)\}\}")


def ref_marker(table_id: str) -> str:
    return f"{{{{ref:{table_id}}}}}"


def referenced(sql: str) -> tuple[str, ...]:
    """The ids that ``sql`` reads, sorted."""
    return tuple(sorted(set(_MARKER.findall(sql))))


def with_names(sql: str, names: Mapping[str, str]) -> str:
    """``sql`` with each marker replaced by the table's name in Spark; ``KeyError`` for a missing one."""
    return _MARKER.sub(lambda found: dialects.quoted(names[found[1]], "spark"), sql)


def output_names(sql: str) -> tuple[str, ...] | None:
    """The names of the columns that ``sql`` returns, in order; None when only Spark knows them (``*``, unnamed
    expressions, SQL that sqlglot cannot parse). Types are not inferred: sqlglot gets decimals wrong."""
    names = tuple(getattr(_parse(sql), "named_selects", ()))
    return names if names and all(name and name != "*" for name in names) else None


def names_all_it_reads(sql: str) -> bool:
    """Whether ``sql`` names each column that it reads, so that a new column of its tables changes nothing."""
    from sqlglot import exp

    tree = _parse(sql)
    if not isinstance(tree, exp.Query) or _UNNAMED.search(sql):
        return False
    counted = {id(count.this) for count in tree.find_all(exp.Count)}
    return all(id(star) in counted for star in tree.find_all(exp.Star)) and not any(
        alias.columns and not isinstance(alias.parent, (exp.CTE, exp.Lateral, exp.Values))
        for alias in tree.find_all(exp.TableAlias)  # t AS u (a, b) names columns by position
    )


def _parse(sql: str) -> Any:
    """sqlglot's tree, whose class differs between versions; None for SQL that it cannot parse."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(with_names(sql, {table: table for table in referenced(sql)}), dialect="spark")
    except (SqlglotError, RecursionError):
        return None
