"""The plan as people read it: plain lines that are stable, with styles that a terminal may use.

Every line is (style, text) pieces; :func:`to_text` drops the styles, :func:`to_rich` keeps them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from flowctl.model import position, types
from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import RUNNABLE, Plan, Step, StepAction
from flowctl.model.table_info import RowMethod

if TYPE_CHECKING:
    from rich.text import Text

_SYMBOLS: dict[StepAction, tuple[str, str]] = {
    "create": ("+", "green"),
    "change": ("~", "yellow"),
    "recover": (">", "cyan"),
    "stop": ("!", "bold red"),
    "removed": ("-", "magenta"),
    "none": ("=", "dim"),
}
_METHODS: dict[RowMethod, str] = {"stats": "statistics", "count": "count", "none": "", "unknown": ""}
_LABEL = 10
#: Characters of one line of a text that is wrapped, beside its label.
_WIDTH = 106


@dataclass(frozen=True)
class Piece:
    text: str
    style: str = ""


Line = tuple[Piece, ...]


def to_text(plan: Plan, command: str | None, out: str | None = None, engine: str = "") -> str:
    """Plain text without a line break at the end. ``command`` applies this plan, which was saved to ``out`` if that is
    given; without it the last line, which names it, is left out. ``engine`` says what the run will start; the plan does
    not know."""
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines(plan, command, out, engine))


def to_rich(plan: Plan, command: str | None, out: str | None = None, engine: str = "") -> Text:
    """The same text with colours, for a terminal."""
    from rich.text import Text

    text = Text()
    for line in lines(plan, command, out, engine):
        for piece in line:
            text.append(piece.text, piece.style or None)
        text.append("\n")
    text.rstrip()
    return text


def lines(plan: Plan, command: str | None, out: str | None = None, engine: str = "") -> Iterator[Line]:
    """The whole plan, line by line. Tables with nothing to do and nothing to say are only counted."""
    yield (
        Piece(plan.flow, "bold"),
        Piece(f"  {_serial(plan)}"),
        Piece(f"    {_totals(plan)}"),
    )
    groups = _groups([step for step in plan.steps if _is_shown(step)])
    width = max((len(_name(group)) for group in groups), default=0)
    objects = max((len(_objects(one)) for one, *_ in groups if one.action not in ("stop", "none")), default=0)
    for group in groups:
        yield ()
        yield from _step(group, width, objects)
    if engine or command is not None:
        yield ()
    if engine:
        yield (Piece(engine),)
    if command is not None:
        yield (Piece(_ending(plan, command, out)),)


def _is_shown(step: Step) -> bool:
    return step.action != "none" or bool(step.notes) or bool(step.schema)


def _groups(steps: Iterable[Step]) -> list[list[Step]]:
    """Tables that the same thing stops, such as the connection of all, are reported once, at the place of the first. A
    table whose begun interval is finished first has two steps."""
    found: dict[tuple[object, ...], list[Step]] = {}
    for step in steps:
        is_alone = step.action != "stop" or step.schema
        found.setdefault((step.id, step.seq) if is_alone else (step.mark, step.reason, step.hint), []).append(step)
    return list(found.values())


def _name(group: Sequence[Step]) -> str:
    return group[0].id if len(group) == 1 else f"{len(group):,} tables"


def _serial(plan: Plan) -> str:
    return f"serial {plan.serial}" if plan.serial else "never ran"


def _totals(plan: Plan) -> str:
    counted = (
        (plan.count("change"), "to change"),
        (plan.count("create"), "to create"),
        (plan.count("recover"), "to recover"),
        (plan.count("stop"), "stopped"),
        (plan.count("removed"), "removed"),
        (plan.count("none"), "up to date"),
    )
    return ", ".join(f"{count:,} {word}" for count, word in counted if count) or "no tables"


def _step(group: Sequence[Step], width: int, objects: int) -> Iterator[Line]:
    step = group[0]
    symbol, style = _SYMBOLS[step.action]
    head = (Piece(f"{symbol} ", style), Piece(f"{_name(group):<{width}}  ", "bold"))
    match step.action:
        case "create" | "change" | "recover":
            yield (*head, Piece(f"{_objects(step):<{objects}}  {_manner(step)}"))
            yield from _details(step)
        case "stop":
            yield (*head, Piece(f"stopped: {step.reason}", style), Piece(f"  {_place(step)}", "dim"))
            if step.hint:
                yield _detail("do", step.hint)
            if len(group) > 1:
                yield from _wrapped("tables", ", ".join(step.id for step in group))
            yield from _schema([change for change in step.schema or () if change.action in ("fail", "show")])
        case "none":
            yield (*head, Piece(step.reason))
            yield from _schema(step.schema or ())
            yield from (_detail("note", note, "yellow") for note in step.notes)
        case "removed":
            yield (*head, Piece(step.reason))
            yield _detail("do", step.hint)
        case _:
            assert_never(step.action)


def _objects(step: Step) -> str:
    return f"{step.source} → {step.target}"


def _manner(step: Step) -> str:
    by = f" by {', '.join(step.key)}" if step.key else ""
    return f"{step.mode}{by}, {step.via}"


def _place(step: Step) -> str:
    return f"{step.mark.file}:{step.mark.line}"


def _details(step: Step) -> Iterator[Line]:
    if step.reason:
        yield _detail("why", step.reason)
    if rows := _rows(step):
        yield _detail("rows", rows)
    if step.interval is not None and not step.record_only:
        yield _detail("interval", _interval(step.interval))
    yield from _wrapped("how", "; ".join(step.how))
    yield from _all_columns(step)
    yield from _schema(step.schema or ())
    for index, check in enumerate(step.checks):
        outcome = "checked before commit" if check.result == "pending" else check.result
        on_fail = f"  {check.detail}" if check.detail else ""
        yield _detail("checks" if index == 0 else "", f"{check.name:<22} {outcome}{on_fail}")
    if step.check_deletes:
        yield _detail("deletes", "missing keys are looked for")
    if step.needs:
        yield _detail("needs", ", ".join(step.needs))
    for note in step.notes:
        yield _detail("note", note, "bold red" if note.startswith("destructive") else "yellow")


def _rows(step: Step) -> str:
    rows, parts = step.rows, []
    if rows.value is not None:
        exact = "" if rows.method == "count" else "≈ "
        parts.append(f"{exact}{rows.value:,}  ({_METHODS[rows.method]})")
    elif rows.method == "unknown" and not step.record_only and step.interval and step.interval.cursor_column:
        parts.append("not counted  (--estimate count)")
    if rows.bytes is not None:
        parts.append(_size(rows.bytes))
    return "  ".join(parts)


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _interval(interval: Interval) -> str:
    if isinstance(interval.upper, NoPosition):
        return "everything"
    lower = "[the beginning" if interval.lower is None else f"({position.describe(interval.lower)}"
    if interval.lower is None and interval.read_from is not None:
        lower = f"[{interval.read_from.text()}"
    name = f"{interval.cursor_column} " if interval.cursor_column else ""
    lag = f"  lag {_duration(interval.lag_seconds)}" if interval.lag_seconds else ""
    return f"{name}{lower}, {position.describe(interval.upper)}]{lag}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _all_columns(step: Step) -> Iterator[Line]:
    if step.schema is None:
        yield _detail("schema", "known when run")
    elif step.action == "create" and not step.record_only:
        count = len(step.target_columns)
        yield _detail("schema", f"creates the table with {count} column{'' if count == 1 else 's'}")
        yield from (_detail("", statement) for statement in step.statements)


def _schema(changes: Sequence[SchemaChange]) -> Iterator[Line]:
    named = [f"{_sign(change)} {change.column} {_types(change)}".rstrip() for change in changes]
    width = max((len(text) for text in named), default=0)
    policies = max((len(change.policy) for change in changes), default=0)
    for index, (change, text) in enumerate(zip(changes, named, strict=True)):
        style = "red" if change.action == "fail" or change.change_class == "destructive" else ""
        rule = f"{change.policy:<{policies}}  {change.change_class}"
        yield _detail("schema" if index == 0 else "", f"{text:<{width}}  {rule}", style)
        if change.note:
            yield _detail("", f"  {change.note}", style)
        if change.statement:
            yield _detail("", f"  {change.statement}")


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


def _types(change: SchemaChange) -> str:
    old, new = (types.short(kind) if kind else "" for kind in (change.old, change.new))
    return f"{old} → {new}" if old and new and old != new else new or old


def _detail(label: str, text: str, style: str = "") -> Line:
    return (Piece(f"    {label:<{_LABEL}}", "dim"), Piece(text, style))


def _wrapped(label: str, text: str) -> Iterator[Line]:
    for index, line in enumerate(textwrap.wrap(text, _WIDTH, break_on_hyphens=False)):
        yield _detail("" if index else label, line)


def _ending(plan: Plan, command: str, out: str | None) -> str:
    if not plan.count(*RUNNABLE):
        stopped = plan.count("stop")
        return f"Nothing was changed, and there is nothing to do{' but for what is stopped' if stopped else ''}."
    return f"Nothing was changed. Apply {'exactly this' if out else 'it'} with: {command}"
