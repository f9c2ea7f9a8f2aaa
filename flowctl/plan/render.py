"""The plan as text: stable plain lines, with styles that a terminal may use.

One line per table, followed by what differs from the default. Many tables with equal text are folded into one entry
that lists them. No line is wider than the view, except commands, which are meant for copying.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowctl import text
from flowctl.model.effects import CountedEffects, PreventedEffects, UnknownEffects
from flowctl.model.step import Load, Plan, Recover, StreamAction
from flowctl.model.table_info import RowEstimate
from flowctl.plan import effect_text
from flowctl.plan.document import count_actions
from flowctl.plan.entries import Detail, Entry, entry, is_backfill, is_destructive, is_read_again, is_replay, is_shown
from flowctl.plan.stream_entries import stream_entry
from flowctl.text import Line, Piece

#: Minimum number of tables with equal text that are folded into one entry; the second is for stopped tables.
_FOLD, _FOLD_STOPPED = 8, 2
#: Entries that require action come last, next to the summary.
_LAST = ("-", "!")
_INDENT = 4
#: Longer texts are not aligned: they shift only their own line.
_ALIGNED = 32
_ALIGNED_SIGNS = ("+", "~")


@dataclass(frozen=True)
class View:
    """``width`` is in characters. ``ddl`` shows statements, ``verbose`` the details that are usually omitted.
    ``command`` applies this plan (None: it is about to be executed), from its file if ``is_saved``. ``engine``
    describes what the run will start."""

    width: int = text.WIDTH
    ddl: bool = False
    verbose: bool = False
    command: str | None = None
    is_saved: bool = False
    engine: str = ""


def render(plan: Plan, view: View) -> Iterator[Line]:
    """Renders the whole plan. Tables with nothing to do and nothing to report are only counted."""
    yield (Piece(plan.flow, "bold"), Piece(f"  {_serials(plan)}"))
    entries = [*map(stream_entry, plan.streams)]
    entries += [entry(step, ddl=view.ddl, verbose=view.verbose) for step in plan.all_steps if is_shown(step)]
    folds = sorted(_folds(entries), key=lambda fold: fold[0].sign in _LAST)
    layout = _layout([fold[0] for fold in folds if len(fold) == 1], view.width)
    is_apart = True
    for fold in folds:
        block = [*_alone(fold[0], layout)] if len(fold) == 1 else [*_folded(fold, view.width)]
        if is_apart or len(block) > 1:
            yield ()
        is_apart = len(block) > 1
        yield from block
    yield ()
    for paragraph, style in _summary(plan, view.engine):
        yield from ((Piece(line, style),) for line in text.paragraph(paragraph, view.width))
    if view.command is not None:
        yield from _ending(plan, view, view.command)


def _serials(plan: Plan) -> str:
    own = [(plan.serial, "")] if plan.steps or not plan.streams else []
    known = [*own, *((stream.serial, f"{stream.name} ") for stream in plan.streams)]
    return ", ".join(f"{name}serial {serial}" if serial else f"{name}never ran" for serial, name in known)


def _folds(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Groups entries with equal text, at the position of the first."""
    alike: dict[tuple[object, ...], list[Entry]] = {}
    for one in entries:
        connections = (one.source.partition(":")[0], one.target.partition(":")[0])
        alike.setdefault((one.sign, one.what, one.details, one.effects[1:], connections), []).append(one)
    folds: list[list[Entry]] = []
    for fold in alike.values():
        is_many = len(fold) >= (_FOLD_STOPPED if fold[0].sign == "!" else _FOLD)
        folds += [fold] if is_many else [[one] for one in fold]
    return folds


@dataclass(frozen=True)
class _Layout:
    """The width of the view and of the aligned parts of a table's line."""

    width: int
    id: int
    what: int
    rows: int


def _layout(entries: Sequence[Entry], width: int) -> _Layout:
    aligned = [one for one in entries if one.sign in _ALIGNED_SIGNS]
    return _Layout(
        width,
        id=_widest(one.id for one in aligned),
        what=_widest(one.what for one in aligned),
        rows=_widest(_rows(one.rows) for one in aligned),
    )


def _widest(texts: Iterable[str]) -> int:
    return max((len(text) for text in texts if len(text) <= _ALIGNED), default=0)


def _alone(one: Entry, layout: _Layout) -> Iterator[Line]:
    """The entry's line, followed by what does not fit on it, the columns of a new table, and the details."""
    is_aligned = one.sign in _ALIGNED_SIGNS
    name = f"{one.id:<{layout.id}}"
    rows = f"  {_rows(one.rows):>{layout.rows}}" if layout.rows else ""
    line = f"{one.what:<{layout.what}}{rows}" if is_aligned else one.what
    below = [Detail("columns", one.columns)] if one.columns else []
    if one.tail and 2 + len(f"{name}  {line}  {one.tail.text}") <= layout.width:
        line = f"{line}  {one.tail.text}"
    elif one.tail:
        below = [one.tail, *below]
    yield from _head(one, name, line.rstrip(), layout.width)
    yield from _details([*below, *one.details, *one.effects], layout.width)


def _folded(fold: Sequence[Entry], width: int) -> Iterator[Line]:
    """The common text, then each table with its own part; if no table has one, only the names."""
    first, is_new = fold[0], bool(fold[0].source)
    rows = _rows(_total(fold))
    place = f"{_common(one.source for one in fold)} → {_common(one.target for one in fold)}" if is_new else ""
    yield from _head(first, f"{len(fold):,} tables", "  ".join(filter(None, (first.what, rows, place))), width)
    named = [] if first.member else [Detail("tables", ", ".join(one.id for one in fold))]
    yield from _details([*first.details, *named], width)
    if named:
        return
    names, counts = _widest(one.id for one in fold), _widest(_rows(one.rows) for one in fold)
    for one in fold:
        rows = f"{_rows(one.rows):>{counts}}  " if counts else ""
        yield (Piece(" " * _INDENT), Piece(text.cut(f"{one.id:<{names}}  {rows}{one.member}", width - _INDENT)))


def _total(fold: Sequence[Entry]) -> RowEstimate:
    known = [one.rows for one in fold if one.rows.value is not None]
    if not known:
        return RowEstimate()
    is_exact = all(rows.method == "count" for rows in known)
    return RowEstimate(sum(rows.value or 0 for rows in known), "count" if is_exact else "stats")


def _common(names: Iterable[str]) -> str:
    listed = [*names]
    return listed[0] if len({*listed}) == 1 else f"{os.path.commonprefix(listed)}*"  # noqa: RUF071 - of names, not paths


def _head(one: Entry, name: str, rest: str, width: int) -> Iterator[Line]:
    """The name and its text, wrapped if too long for one line."""
    style = one.style if one.sign in _LAST else ""
    first, *more = text.paragraph(f"{name}  {rest}", width - 2, indent=2)
    yield (Piece(f"{one.sign} ", one.style), Piece(first[: len(name)], "bold"), Piece(first[len(name) :], style))
    yield from ((Piece(f"  {line}", style),) for line in more)


def _details(details: Sequence[Detail], width: int) -> Iterator[Line]:
    """A label is shown only before the first of consecutive details that share it."""
    label = ""
    for detail in details:
        yield from text.labelled(detail.label if detail.label != label else "", detail.text, width, detail.style)
        label = detail.label


def _summary(plan: Plan, engine: str) -> Iterator[tuple[str, str]]:
    """What changes, what is only read again, what is lost, and what requires action; each line with its style."""
    again = sum(map(is_read_again, plan.steps))
    refreshed = sum(isinstance(step, Load) and step.refresh and not step.creates for step in plan.steps)
    replayed = sum(map(is_replay, plan.steps))
    backfilled = sum(map(is_backfill, plan.steps))
    actions = count_actions(plan)
    counts = (
        (actions["create"], "to create"),
        (actions["change"] - again - refreshed - replayed - backfilled, "changed at the source"),
        (again, "only read again"),
        (replayed, "to replay dead letters"),
        (backfilled, "to read a range again"),
        (refreshed, "to refresh in full"),
        (actions.get("advance", 0), "with their streams"),
        (actions["recover"], "to recover"),
        (actions["none"], "up to date"),
        (actions["removed"], "no longer in the spec"),
    )
    listed = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    yield f"Tables: {listed or 'none to run'}", "bold"
    if plan.streams:
        yield f"Streams: {_count_streams(plan)}", "bold"
    yield from _effects(plan)
    if engine:
        yield engine, ""
    if destructive := dict.fromkeys(step.id for step in plan.all_steps if is_destructive(step)):
        yield f"Destructive: {', '.join(destructive)}", "bold red"
    if stopped := actions["stop"]:
        yield f"Action required: {stopped:,} stopped", "bold red"


_STREAMS: Mapping[StreamAction, str] = {
    "create": "to begin",
    "advance": "to advance",
    "capture": "only captured",
    "none": "up to date",
    "stop": "stopped",
    "removed": "no longer in the spec",
}


def _count_streams(plan: Plan) -> str:
    counts = Counter(stream.action for stream in plan.streams)
    return ", ".join(f"{counts[action]:,} {what}" for action, what in _STREAMS.items() if counts[action])


def _effects(plan: Plan) -> Iterator[tuple[str, str]]:
    """The total result of a dry run, and the tables that would not be committed."""
    found = [(step.id, step.effects) for step in plan.steps if isinstance(step, Load | Recover)]
    counted = [one for _, one in found if isinstance(one, CountedEffects)]
    unknown = sum(isinstance(one, UnknownEffects) for _, one in found)
    more = f"; {text.counted(unknown, 'table')} unknown" if unknown else ""
    if counted:
        yield f"Effects: {effect_text.totals(counted)}{more}", "bold"
    if prevented := [id for id, one in found if isinstance(one, PreventedEffects)]:
        yield f"Would not be committed: {', '.join(prevented)}", "bold red"


def _ending(plan: Plan, view: View, command: str) -> Iterator[Line]:
    if not plan.runs:
        but = ", except for what is stopped" if count_actions(plan)["stop"] else ""
        yield (Piece(f"Nothing was changed. There is nothing to do{but}."),)
        return
    last = f"Nothing was changed. Apply {'exactly this' if view.is_saved else 'it'} with:"
    if len(f"{last} {command}") > view.width:
        yield (Piece(last),)
        yield (Piece(command),)
    else:
        yield (Piece(f"{last} {command}"),)


def _rows(rows: RowEstimate) -> str:
    if rows.value is not None:
        return ("" if rows.method == "count" else "≈ ") + text.counted(rows.value, "row")
    return text.size(rows.bytes) if rows.bytes is not None else ""
