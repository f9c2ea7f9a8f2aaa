"""The plan's text for each step: one line, followed only by what differs from the default. :mod:`flowctl.plan.render`
lays out the entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from flowctl import text
from flowctl.model import position, types
from flowctl.model.effects import CountedEffects, PreventedEffects, UnknownEffects
from flowctl.model.interval import Interval
from flowctl.model.position import (
    CursorPosition,
    FileLogPosition,
    FilesPosition,
    NoPosition,
    OffsetsPosition,
    VersionPosition,
)
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import (
    Advance,
    Load,
    PlannedTable,
    RecordOnly,
    Recover,
    Removed,
    Runnable,
    Stopped,
    StreamStep,
    UpToDate,
)
from flowctl.model.table_info import RowEstimate
from flowctl.plan import effect_text
from flowctl.plan.checks import is_default


@dataclass(frozen=True)
class Detail:
    """One labelled paragraph below a table's line."""

    label: str
    text: str
    style: str = ""


@dataclass(frozen=True)
class Entry:
    """``what`` and ``details`` are equal for all tables of a folded entry. ``rows`` and ``tail`` are on the table's own
    line, the ``columns`` of a new table below it. ``source`` and ``target`` are set only for new tables. The first of
    ``effects`` holds the counts."""

    id: str
    sign: str
    style: str
    what: str
    details: tuple[Detail, ...] = ()
    rows: RowEstimate = RowEstimate()
    tail: Detail | None = None
    columns: str = ""
    source: str = ""
    target: str = ""
    effects: tuple[Detail, ...] = ()

    @property
    def member(self) -> str:
        """The text after the table's name in a folded entry (empty: only the name is listed)."""
        if self.effects:
            return self.effects[0].text
        return self.columns or (self.tail.text if self.tail else "")


def entry(step: StreamStep, *, ddl: bool, verbose: bool) -> Entry:
    """``ddl`` adds the statements, ``verbose`` the details that are usually omitted."""
    match step:
        case Load():
            details = _details(step, ddl=ddl, verbose=verbose)
            return replace(_new(step, details) if step.creates else _changed(step, details), effects=_effects(step))
        case Advance():
            notes = (*_changes(step.columns), *map(_note, step.notes))
            return Entry(step.id, "~", "yellow", f"{step.table.mode}, {step.reason}", notes)
        case Recover():
            details, tail = _details(step, ddl=ddl, verbose=verbose), _reads(step.interval)
            return Entry(step.id, ">", "cyan", step.reason, details, tail=tail, effects=_effects(step))
        case RecordOnly():
            return Entry(step.id, ">", "cyan", step.reason, tuple(_as_always(step)) if verbose else ())
        case Stopped():
            return _stopped(step)
        case UpToDate():
            return Entry(step.id, "=", "dim", step.reason, (*_changes(step.columns), *map(_note, step.notes)))
        case Removed():
            return Entry(step.id, "-", "magenta", step.reason, (Detail("next step", step.hint),))
        case _:
            assert_never(step)


def is_shown(step: StreamStep) -> bool:
    """Whether the plan has more to show than that the table is up to date, or advances with its stream."""
    return not isinstance(step, UpToDate | Advance) or bool(step.notes or _changes(step.columns))


def is_read_again(step: StreamStep) -> bool:
    """Whether the table is read although its source is not known to have changed: always in full, or to compare
    keys."""
    if not isinstance(step, Load) or step.creates or step.refresh or step.interval.letters is not None:
        return False
    is_same = step.interval.lower == step.interval.upper and not step.interval.is_backfill
    return isinstance(step.interval.upper, NoPosition) or is_same


def is_backfill(step: StreamStep) -> bool:
    return isinstance(step, Load) and step.interval.is_backfill


def is_replay(step: StreamStep) -> bool:
    """Whether the table reads dead letters again, and nothing else."""
    if not isinstance(step, Load) or step.creates or step.refresh or step.interval.letters is None:
        return False
    return step.interval.lower == step.interval.upper


def is_destructive(step: StreamStep) -> bool:
    """Whether stored rows or values are lost."""
    if not isinstance(step, Load | Recover) or (isinstance(step, Load) and step.creates):
        return False
    changes = step.columns.changes if isinstance(step.columns, Columns) else ()
    return bool(step.destructive) or any(change.change_class == "destructive" for change in changes)


def _new(step: Load, details: tuple[Detail, ...]) -> Entry:
    """A first read shows its interval only if it begins at a ``start``."""
    table, interval = step.table, step.interval
    started = _reads(interval) if interval.read_from is not None else None
    says_what = isinstance(interval.upper, FilesPosition | FileLogPosition | OffsetsPosition)
    return Entry(
        table.id,
        "+",
        "green",
        f"{table.mode}, {step.reason}" if says_what else table.mode,
        (started, *details) if started else details,
        rows=step.rows,
        tail=_copies(table),
        columns=_columns(step),
        source=table.source,
        target=table.target,
    )


def _changed(step: Load, details: tuple[Detail, ...]) -> Entry:
    is_again = is_read_again(step)
    what = [
        step.table.mode,
        "read again" if is_again else step.reason,
        *(["looks for deleted keys"] if step.check_deletes else ()),
    ]
    stays = step.interval.lower == step.interval.upper and not step.interval.is_backfill
    tail = None if stays or is_again else _reads(step.interval)
    return Entry(step.id, "~", "yellow", ", ".join(what), details, step.rows, tail)


def _stopped(step: Stopped) -> Entry:
    refused, mark = [change for change in step.changes if change.action in ("fail", "show")], step.table.mark
    return Entry(
        step.id,
        "!",
        "bold red",
        f"stopped: {step.reason} ({mark.brief})",
        (*([Detail("next step", step.hint)] if step.hint else ()), *map(_change, refused)),
    )


def _copies(table: PlannedTable) -> Detail:
    return Detail("copies", f"{table.source} → {table.target}")


def _reads(interval: Interval) -> Detail | None:
    """The interval of a cursor or of versions. For files and upstream tables, the step's reason describes it."""
    if not isinstance(interval.upper, CursorPosition | VersionPosition | OffsetsPosition):
        return None
    name = f"{interval.cursor_column} " if interval.cursor_column else ""
    if interval.is_backfill and interval.read_to is not None:
        first = interval.read_from.readable() if interval.read_from is not None else "the beginning"
        between = f"{first.removesuffix(' UTC')} … {interval.read_to.readable()}"
        return Detail("reads", f"{name}{between.replace(' ', text.NO_BREAK)}")
    lag = f", lag {text.duration(interval.lag_seconds)}" if interval.lag_seconds else ""
    start = interval.read_from if interval.lower is None else None
    lower, upper = start.readable() if start else position.readable(interval.lower), position.readable(interval.upper)
    between = f"{lower.removesuffix(' UTC')} → {upper}"
    return Detail("reads", f"{name}{between.replace(' ', text.NO_BREAK)}{lag}")


def _columns(step: Load) -> str:
    if isinstance(step.columns, RuntimeColumns):
        return "known when run"
    named = (
        f"{column.name} {column.native or types.short(column.type)}{' (key)' if column.name in step.table.key else ''}"
        for column in step.columns.target
    )
    return ", ".join(column.replace(" ", text.NO_BREAK) for column in named)


def _details(step: Load | Recover, *, ddl: bool, verbose: bool) -> tuple[Detail, ...]:
    statements = step.columns.statements if isinstance(step.columns, Columns) else ()
    is_new = isinstance(step, Load) and step.creates
    return (
        *_changes(step.columns),
        *(_checks(step) if verbose or is_new else ()),
        *(_as_always(step) if verbose else ()),
        *([Detail("note", f"destructive: replaces {step.destructive}", "bold red")] if step.destructive else ()),
        *map(_note, step.notes),
        *(Detail("ddl", statement) for statement in statements if ddl),
    )


def _effects(step: Load | Recover) -> tuple[Detail, ...]:
    match step.effects:
        case None:
            return ()
        case CountedEffects() as counted:
            return (
                Detail("effects", effect_text.describe(counted)),
                *(Detail("samples", line) for line in effect_text.sample_lines(counted.samples)),
                *(Detail("warning", warning, "yellow") for warning in counted.warnings),
            )
        case PreventedEffects() as prevented:
            said = Detail("effects", effect_text.describe(prevented), "bold red")
            return (said, Detail("next step", prevented.hint)) if prevented.hint else (said,)
        case UnknownEffects() as unknown:
            return (Detail("effects", effect_text.describe(unknown), "dim"),)
        case _:
            assert_never(step.effects)


def _changes(columns: Columns | RuntimeColumns) -> tuple[Detail, ...]:
    return tuple(map(_change, columns.changes)) if isinstance(columns, Columns) else ()


def _note(note: str) -> Detail:
    return Detail("note", note, "yellow")


def _checks(step: Load | Recover) -> Iterator[Detail]:
    """The checks in the spec, each with its action on failing rows unless that is to stop the table."""
    named = [
        check.name + (f" ({check.detail})" if check.detail not in ("", "fail") else "")
        for check in step.checks
        if not is_default(check)
    ]
    if named:
        yield Detail("checks", ", ".join(named))


def _as_always(step: Runnable) -> Iterator[Detail]:
    if isinstance(step, Load) and step.creates:
        yield Detail("why", step.reason)
    else:
        yield _copies(step.table)
        yield Detail("key", ", ".join(step.table.key))
    yield Detail("interval", _exact(step.interval))
    if not isinstance(step, RecordOnly) and step.how:
        yield Detail("how", "; ".join(step.how))
    if step.table.needs:
        yield Detail("requires", ", ".join(step.table.needs))


def _exact(interval: Interval) -> str:
    if interval.is_backfill and interval.read_to is not None:
        first = interval.read_from.text() if interval.read_from is not None else "the beginning"
        return f"[{first}, {interval.read_to.text()}]"
    if interval.upper is None:
        return "nothing"
    lower = "[the beginning" if interval.lower is None else f"({position.describe(interval.lower)}"
    if interval.lower is None and interval.read_from is not None:
        lower = f"[{interval.read_from.text()}"
    return f"{lower}, {position.describe(interval.upper)}]"


def _change(change: SchemaChange) -> Detail:
    old, new = (types.short(kind) if kind else "" for kind in (change.old, change.new))
    kinds = f"{old} → {new}" if old and new and old != new else new or old
    lost = change.change_class == "destructive"
    parts = (
        f"{_sign(change)} {change.column} {kinds}".rstrip(),
        change.policy,
        "destructive" if lost else "",
        change.note,
    )
    return Detail("schema", "; ".join(filter(None, parts)), "red" if lost or change.action == "fail" else "")


def _sign(change: SchemaChange) -> str:
    match change.change:
        case "new_column":
            return "+"
        case "dropped_column":
            return "-"
        case "wider_type" | "other_type" | "nullable" | "drift" | "feature":
            return "~"
        case _:
            assert_never(change.change)
