"""What the plan says of each step: one line, and below it only what is not ordinary. :mod:`flowctl.plan.render` lays
the entries out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from flowctl import text
from flowctl.model import position, types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, FileLogPosition, FilesPosition, NoPosition, VersionPosition
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import Step
from flowctl.model.table_info import RowEstimate
from flowctl.plan.checks import is_default

#: What a note begins with that tells of rows which are lost.
DESTRUCTIVE = "destructive"


@dataclass(frozen=True)
class Detail:
    """One labelled paragraph below a table's line."""

    label: str
    text: str
    style: str = ""


@dataclass(frozen=True)
class Entry:
    """``what`` and ``details`` are the same for all tables of a folded entry. ``rows`` and ``tail`` stand on the
    table's own line, the ``columns`` of a new one below it; ``source`` and ``target`` are empty where they are no
    news."""

    id: str
    sign: str
    style: str
    what: str
    details: tuple[Detail, ...] = ()
    rows: RowEstimate = RowEstimate()
    tail: Detail = Detail("", "")
    columns: str = ""
    source: str = ""
    target: str = ""

    @property
    def member(self) -> str:
        """What its line in a folded entry says besides (empty: it is only named there)."""
        return self.columns or self.tail.text


def entry(step: Step, *, ddl: bool, verbose: bool) -> Entry:
    """``ddl`` adds the statements, ``verbose`` what is as always."""
    match step.action:
        case "create":
            return _new(step, ddl=ddl, verbose=verbose)
        case "change":
            return _changed(step, ddl=ddl, verbose=verbose)
        case "recover":
            return _recovered(step, ddl=ddl, verbose=verbose)
        case "stop":
            return _stopped(step)
        case "none":
            return Entry(step.id, "=", "dim", step.reason, _details(step, ddl=ddl, verbose=False))
        case "removed":
            return Entry(step.id, "-", "magenta", step.reason, (Detail("next step", step.hint),))
        case _:
            assert_never(step.action)


def is_shown(step: Step) -> bool:
    """Whether the plan says more of it than that it is up to date."""
    return step.action != "none" or bool(step.notes) or bool(step.schema)


def is_read_again(step: Step) -> bool:
    """Whether it is read although nothing is known to have changed at its source: always in full, or for its keys."""
    if step.action != "change" or step.refresh or step.interval is None:
        return False
    return isinstance(step.interval.upper, NoPosition) or step.interval.lower == step.interval.upper


def is_destructive(step: Step) -> bool:
    """Whether stored rows or values are lost."""
    if step.action not in ("change", "recover"):
        return False
    lost = any(change.change_class == "destructive" for change in step.schema or ())
    return lost or any(note.startswith(DESTRUCTIVE) for note in step.notes)


def _new(step: Step, *, ddl: bool, verbose: bool) -> Entry:
    """A first read from the beginning is as always; one from a ``start`` is not."""
    interval = step.interval
    is_started = interval is not None and interval.read_from is not None
    is_of_files = interval is not None and isinstance(interval.upper, FilesPosition | FileLogPosition)
    return Entry(
        step.id,
        "+",
        "green",
        f"{step.mode}, {step.reason}" if is_of_files else step.mode,
        (*([_reads(step)] if is_started else ()), *_details(step, ddl=ddl, verbose=verbose)),
        rows=step.rows,
        tail=_copies(step),
        columns=_columns(step),
        source=step.source,
        target=step.target,
    )


def _changed(step: Step, *, ddl: bool, verbose: bool) -> Entry:
    is_again = is_read_again(step)
    what = [
        step.mode,
        "read again" if is_again else step.reason,
        *(["looks for deleted keys"] if step.check_deletes else ()),
    ]
    tail = Detail("", "") if is_again else _reads(step)
    details = _details(step, ddl=ddl, verbose=verbose)
    return Entry(step.id, "~", "yellow", ", ".join(what), details, step.rows, tail)


def _recovered(step: Step, *, ddl: bool, verbose: bool) -> Entry:
    tail = Detail("", "") if step.record_only else _reads(step)
    details = _details(step, ddl=ddl, verbose=verbose)
    return Entry(step.id, ">", "cyan", step.reason, details, tail=tail)


def _stopped(step: Step) -> Entry:
    refused = [change for change in step.schema or () if change.action in ("fail", "show")]
    return Entry(
        step.id,
        "!",
        "bold red",
        f"stopped: {step.reason} ({step.mark.file}:{step.mark.line})",
        (*([Detail("next step", step.hint)] if step.hint else ()), *map(_change, refused)),
    )


def _copies(step: Step) -> Detail:
    return Detail("copies", f"{step.source} → {step.target}")


def _reads(step: Step) -> Detail:
    """The interval of a cursor or of versions; what files and upstream tables are read, the reason tells."""
    interval = step.interval
    if interval is None or not isinstance(interval.upper, CursorPosition | VersionPosition):
        return Detail("", "")
    name = f"{interval.cursor_column} " if interval.cursor_column else ""
    lag = f", lag {text.duration(interval.lag_seconds)}" if interval.lag_seconds else ""
    start = interval.read_from if interval.lower is None else None
    lower, upper = start.readable() if start else position.readable(interval.lower), position.readable(interval.upper)
    between = f"{lower.removesuffix(' UTC')} → {upper}"
    return Detail("reads", f"{name}{between.replace(' ', text.NO_BREAK)}{lag}")


def _columns(step: Step) -> str:
    if step.schema is None:
        return "known when run"
    named = (
        f"{column.name} {types.short(column.type)}{' (key)' if column.name in step.key else ''}"
        for column in step.target_columns
    )
    return ", ".join(column.replace(" ", text.NO_BREAK) for column in named)


def _details(step: Step, *, ddl: bool, verbose: bool) -> tuple[Detail, ...]:
    schema = step.schema or () if not step.record_only else ()
    return (
        *(_change(change) for change in schema),
        *(_checks(step) if verbose or step.action == "create" else ()),
        *(_as_always(step) if verbose else ()),
        *(Detail("note", note, "bold red" if note.startswith(DESTRUCTIVE) else "yellow") for note in step.notes),
        *(Detail("ddl", statement) for statement in step.statements if ddl),
    )


def _checks(step: Step) -> Iterator[Detail]:
    """Those that the spec asks for; what they do to rows where that is not to stop them."""
    named = [
        check.name + (f" ({check.detail})" if check.detail not in ("", "fail") else "")
        for check in step.checks
        if not is_default(check)
    ]
    if named:
        yield Detail("checks", ", ".join(named))


def _as_always(step: Step) -> Iterator[Detail]:
    if step.action == "create":
        yield Detail("why", step.reason)
    else:
        yield _copies(step)
        yield Detail("key", ", ".join(step.key))
    if step.interval is not None:
        yield Detail("interval", _exact(step.interval))
    if step.how:
        yield Detail("how", "; ".join(step.how))
    if step.needs:
        yield Detail("requires", ", ".join(step.needs))


def _exact(interval: Interval) -> str:
    lower = "[the beginning" if interval.lower is None else f"({position.describe(interval.lower)}"
    if interval.lower is None and interval.read_from is not None:
        lower = f"[{interval.read_from.text()}"
    return f"{lower}, {position.describe(interval.upper)}]"


def _change(change: SchemaChange) -> Detail:
    old, new = (types.short(kind) if kind else "" for kind in (change.old, change.new))
    kinds = f"{old} → {new}" if old and new and old != new else new or old
    lost = change.change_class == "destructive"
    said = (
        f"{_sign(change)} {change.column} {kinds}".rstrip(),
        change.policy,
        DESTRUCTIVE if lost else "",
        change.note,
    )
    return Detail("schema", "; ".join(filter(None, said)), "red" if lost or change.action == "fail" else "")


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
