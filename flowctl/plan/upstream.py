"""The columns that a SQL table reads, as state records them: others now, and what it makes may have other types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from flowctl.model.position import Position, UpstreamPosition
from flowctl.model.step import RUNNABLE, Step
from flowctl.model.table_info import Column
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.sql.refs import names_all_it_reads, output_names
from flowctl.state.document import StateDocument


def shape_read(table: TableSpec, document: StateDocument, position: Position | None) -> str:
    """What state records when ``table`` is committed up to ``position``; empty for a table that is not by SQL. Where
    one that it reads has got another number since, the columns of then are not known: what is recorded stays."""
    if not isinstance(table.source, SqlSource):
        return ""
    read = position.sequences if isinstance(position, UpstreamPosition) else ()
    if any(document.table(other).seq != seq for other, seq in read):
        return document.table(table.id).upstream_shape
    return _shape(table.source, {other: document.table(other).target_columns for other, _ in read})


def has_changed(
    source: SqlSource, recorded: str, steps: Mapping[str, Step], columns: Mapping[str, Sequence[Column]]
) -> bool:
    """Whether what ``source`` reads has other columns or types than when ``recorded`` was. ``columns`` are those that
    state has of each table, ``steps`` what this plan makes of them. Where nothing is recorded, as by an older flowctl,
    only the plan's own changes count."""
    running = {other: step for other, step in steps.items() if step.action in RUNNABLE}
    if any(step.schema is None for step in running.values()):
        return True
    now = _shape(source, {**columns, **{other: step.recorded_columns for other, step in running.items()}})
    if recorded and now:
        return now != recorded
    takes_new = bool(running) and output_names(source.sql) is None
    return any(_changes(step, takes_new) for step in running.values())


def _shape(source: SqlSource, columns: Mapping[str, Sequence[Column]]) -> str:
    """A digest of the columns that ``source`` reads, by table, in any order; empty where those of one are unknown."""
    if not all(columns.get(other) for other in source.refs):
        return ""
    text = None if not names_all_it_reads(source.sql) else _folded(source.sql)
    read = {
        other: sorted((_folded(one.name), str(one.type)) for one in columns[other] if _is_named(one.name, text))
        for other in source.refs
    }
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _is_named(name: str, text: str | None) -> bool:
    """Rather too often than not at all: some other word may hold the name."""
    return text is None or _folded(name) in text


def _folded(text: str) -> str:
    """As Spark compares names, with or without quotes."""
    return text.replace("`", "").lower()


def _changes(step: Step, takes_new: bool) -> bool:
    """``takes_new``: a SELECT with a star, whose own columns become more with those that it reads."""
    telling = ("widen", "retype", "drop", *(("add", "text") if takes_new else ()))
    return any(change.action in telling for change in step.schema or ())
